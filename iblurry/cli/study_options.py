"""The options of `study`, `table` and `figure` that choose what of a study is run, tabulated or drawn."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli.values import NumberRange, Seeds
from iblurry.errors import InputError

if TYPE_CHECKING:
    from iblurry.studies.selection import Selection

OPTIONS = ("dataset", "methods", "only", "seeds", "scale", "equal_compute", "data_home")
PLACE = click.Path(path_type=Path)
RUN_FOLDERS = (Path("runs"), Path("results"))  # searched unless --runs is given


def study_options(*, default: str | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a verb the argument STUDY and these options; its function gets `select`, to be called when all is checked.

    `default` is the data set unless told; None: the study's first.
    """
    data = "the study's first" if default is None else default
    options = (
        click.argument("study"),
        click.option("--dataset", metavar="SPEC", help=f"See `iblurry data`.  [default: {data}]"),
        click.option(
            "--methods", multiple=True, metavar="LIST", help="Rows, of any methods: clib,er.  [default: the study's]"
        ),
        click.option("--only", multiple=True, metavar="LIST", help="Columns: N=0,N=50.  [default: all]"),
        click.option("--seeds", metavar="LIST", type=Seeds(), default="1,2,3", show_default=True, help="Which runs."),
        click.option(
            "--scale", metavar="P", type=NumberRange(0, 1), default=1.0, help="Part of the stream.  [default: 1]"
        ),
        click.option("--equal-compute", metavar="METHOD", help="All with the training FLOPs of this row."),
        click.option("--data-home", metavar="FOLDER", type=PLACE, help="Where imported data live."),
    )

    def give(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def called(**given: Any) -> Any:
            words = {name: given.pop(name) for name in ("study", *OPTIONS)}
            return command(study=words["study"], select=lambda: _selection(words, default), **given)

        return functools.reduce(lambda made, option: option(made), reversed(options), called)

    return give


def runs_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a verb `--runs`; its function gets `runs`, for `run_places`."""
    return click.option(
        "--runs",
        multiple=True,
        metavar="FOLDER",
        type=PLACE,
        help="Folders of runs. Repeatable; the first that has a run counts.  [default: runs, results]",
    )(command)


def run_places(runs: Sequence[Path], selection: Selection) -> list[Path]:
    """Where to look for runs: in the folders, and in their parts for the data set, as `iblurry collect` makes them."""
    from iblurry.studies.collect import dataset_folder

    for folder in runs:
        if not folder.is_dir():
            raise InputError(f"--runs {folder}: there is no such folder; name one that `iblurry run` wrote to.")
        if (folder / "experiment.json").exists():
            raise InputError(f"--runs {folder} is a run; name the folder that holds it, {folder.parent}.")
    return [place for folder in runs or RUN_FOLDERS for place in (folder, dataset_folder(folder, selection.dataset))]


def _selection(given: dict[str, Any], default: str | None) -> Selection:
    from iblurry.studies.catalogue import get_study
    from iblurry.studies.selection import Selection

    study = get_study(given["study"])
    if given["scale"] == 0:
        raise InputError("--scale 0 leaves nothing of the stream; give a number above 0, up to 1.")
    return Selection(
        study=study,
        dataset=given["dataset"] or default or study.datasets[0],
        rows=split_names(given["methods"], study.rows),
        columns=split_names(given["only"]),
        seeds=given["seeds"],
        scale=given["scale"],
        equal_compute=given["equal_compute"],
        data_home=given["data_home"],
    )


def split_names(given: tuple[str, ...], whole: tuple[str, ...] = ()) -> tuple[str, ...] | None:
    """Names separated by commas; a row of the study may hold commas itself."""
    names = [name.strip() for one in given for name in ([one] if one in whole else one.split(","))]
    return tuple(filter(None, names)) or None
