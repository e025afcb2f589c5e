"""What searches do on the command line: `iblurry run --grid`, and the end of it that `iblurry tune` has as well."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli.experiment_options import check_all, make_experiments
from iblurry.cli.options import launch_config

if TYPE_CHECKING:
    from iblurry.errors import IblurryError
    from iblurry.studies.search.points import PointResult, SearchPoint

USUAL = Path("runs")


def run_grid(
    rows: Sequence[str],
    about: Mapping[str, Any],
    grids: Sequence[str],
    machine: Mapping[str, Any],
    *,
    out: Path,
    figure: Path | None,
    data_home: Path | None,
    as_json: bool,
) -> int:
    """Run every point of a grid; a point whose run fails does not stop the others."""
    from iblurry.cli.verbs import FAILED, INTERRUPTED
    from iblurry.data.load import load
    from iblurry.launch.launch import run_all
    from iblurry.launch.progress import ProgressDisplay
    from iblurry.studies.search.figure import draw_search
    from iblurry.studies.search.points import expand_grid, grid_results, parse_spaces

    spaces = parse_spaces(grids, taken_paths(rows, about), option="--grid")
    points = expand_grid(make_experiments(rows, with_validation(about)), spaces)
    experiments = [experiment for point in points for experiment in point.experiments]
    check_all(experiments, load(about["dataset"], data_home))
    failures: dict[str, IblurryError] = {}
    config = launch_config(machine, out, data_home)
    with ProgressDisplay(f"grid on {about['dataset']}", runs=len(experiments)) as display:
        callbacks = []
        for point in points:
            for experiment in point.experiments:
                name, is_done = f"{point.row} {point} seed {experiment.seed}", config.is_done(experiment)
                callbacks.append(display.callback(name, is_done=is_done))
        results = run_all(experiments, config, callbacks, failures=failures)
    if any(run.summary is None and run.experiment.name not in failures for run in results):
        click.echo(f"iblurry: Stopped, and saved in {out}. The same command continues.", err=True)
        return INTERRUPTED
    digest = zlib.crc32(" ".join(experiment.digest for experiment in experiments).encode())
    stem = f"grid-{experiments[0].name.rsplit('-', 2)[0]}-{digest:08x}"
    show_search(
        grid_results(points, results, failures),
        [figure] if figure else [out / f"{stem}.png", out / f"{stem}.svg"],
        draw_search,
        about=about,
        out=out,
        data_home=data_home,
        as_json=as_json,
    )
    return FAILED if failures else 0


def with_validation(about: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the experiments of a search: without --validate, the usual share is held out."""
    from iblurry.studies.search.points import VALIDATE

    return {**about, "validate": VALIDATE if about["validate"] is None else about["validate"]}


def taken_paths(rows: Sequence[str], about: Mapping[str, Any]) -> list[str]:
    """Paths that options, --set or a row's own changes set."""
    own = [word for row in rows for word in row.split()[1:]]
    given = [name for name, value in about.items() if value is not None and name != "changes"]
    return [*given, *(change.partition("=")[0].strip() for change in (*about["changes"], *own))]


def show_search(
    results: Sequence[PointResult],
    figures: Sequence[Path],
    draw: Callable[..., None],
    *,
    about: Mapping[str, Any],
    out: Path,
    data_home: Path | None,
    as_json: bool,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Draw the figure into its files; print the table and the commands of the best points.

    The commands are for the same experiments and folders, and on the test images; `more` are entries for the JSON.
    """
    from iblurry.analysis.describe import describe_settings
    from iblurry.storage.files import replacing
    from iblurry.studies.search.points import best_points
    from iblurry.studies.search.table import search_to_json, search_to_terminal

    title = describe_settings([one for result in results for one in result.point.experiments])
    best = best_points(results)
    drawn = list(figures) if best else []
    for path in drawn:
        with replacing(path) as part:
            draw(results, part, title=title)
    places = [*(["--out", out] if out != USUAL else []), *(["--data-home", data_home] if data_home else [])]
    commands = {row: shlex.join(map(str, [*_test_words(one.point, about), *places])) for row, one in best.items()}
    for result in results:
        if result.note:
            click.echo(f"iblurry: {result.point.row} {result.point}: {result.note}", err=True)
    if as_json:
        chosen = [
            {"method": row, "fields": dict(one.point.changes), "command": commands[row]} for row, one in best.items()
        ]
        about = {"title": title, "metric": "a_auc", "unit": "percent", "points": search_to_json(results)}
        click.echo(json.dumps(about | {"best": chosen, "figures": list(map(str, drawn))} | dict(more or {}), indent=2))
        return
    click.echo(title)
    click.echo(search_to_terminal(results, width=shutil.get_terminal_size().columns, bold=sys.stdout.isatty()))
    if drawn:
        click.echo("Figure: " + "\n        ".join(map(str, drawn)))
    for row, one in best.items():
        click.echo(f"Best{f' of {row}' if len(best) > 1 else ''}: {one.point}; on the test images:")
        click.echo(f"  {commands[row]}")


def _test_words(point: SearchPoint, about: Mapping[str, Any]) -> list[str]:
    """The command line of a point without --validate: what was told about the experiments, and its values."""
    method, *own = point.row.split()
    words = ["iblurry", "run", method]
    for name, value in about.items():
        if value is not None and name not in ("changes", "validate"):
            text = (
                ",".join(map(str, value)) if name == "seeds" else f"{value:g}" if type(value) is float else str(value)
            )
            words += [f"--{name.replace('_', '-')}", text]
    changes = [*about["changes"], *own, *(f"{path}={value}" for path, value in point.changes.items())]
    return words + [word for change in changes for word in ("--set", change)]
