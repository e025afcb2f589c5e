"""`iblurry show`: the table and the figure again, from journals alone."""

from __future__ import annotations

from pathlib import Path

import click

from iblurry.errors import InputError


@click.command()
@click.argument("runs", nargs=-1, metavar="RUN...", type=click.Path(path_type=Path))
@click.option(
    "--figure", type=click.Path(path_type=Path), help="Figure file, .png .svg or .pdf.  [default: beside the runs]"
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def show(runs: tuple[Path, ...], figure: Path | None, as_json: bool) -> None:
    """Print the table and draw the figure of RUNs: run folders, or folders of them.

    Unfinished ones count as far as they got.
    """
    from iblurry.cli.showing import check_figure, show_results
    from iblurry.experiment.folder import RunFolder
    from iblurry.experiment.run import result

    check_figure(figure)
    folders = [folder for path in runs or (Path("runs"),) for folder in _folders(path)]
    results = [one for one in map(result, map(RunFolder, dict.fromkeys(folders))) if one.metrics.queries]
    if not results:
        raise InputError(
            f"No run with a query was found in {', '.join(map(str, runs or ('runs',)))}; `iblurry run` makes some."
        )
    show_results(results, figure or folders[0].parent / "accuracy.png", as_json=as_json)


def _folders(path: Path) -> list[Path]:
    if (path / "experiment.json").exists():
        return [path]
    found = sorted(child.parent for child in path.glob("*/experiment.json"))
    if not found:
        raise InputError(f"{path} is no run's folder and holds none; name a folder that `iblurry run` wrote.")
    return found
