"""The options of `study`, `table` and `figure` that choose what of a study is run, tabulated or drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli.experiment_options import STREAM_OPTIONS
from iblurry.cli.options import PLACE, Decorator, NumberRange, bundle_options, data_home_option
from iblurry.errors import InputError
from iblurry.studies.shipped import PARTS, shipped_results

if TYPE_CHECKING:
    from iblurry.studies.selection import Selection

OPTIONS = (
    *("dataset", "methods", "only", "seeds", "scale", "stream", "published"),
    *("equal_compute", "equal_bytes", "data_home"),
)
RUN_FOLDERS = (Path("runs"), Path("results"), shipped_results())  # searched unless --runs is given


def study_options(*, default: str | None) -> Decorator:
    """Gives a verb the argument STUDY and these options, as `selected`; `default` is the data set (None: the first)."""
    option, dataset = click.option, "" if default else "  [default: the study's first]"
    options = (
        click.argument("study"),
        option("--dataset", metavar="SPEC", default=default, help=f"See `iblurry data`.{dataset}"),
        option(
            "--methods", multiple=True, metavar="LIST", help="Rows, of any methods: clib,er.  [default: the study's]"
        ),
        option("--only", multiple=True, metavar="LIST", help="Columns: N=0,N=50.  [default: all]"),
        STREAM_OPTIONS["seeds"],
        option("--scale", metavar="P", type=NumberRange(0, 1, min_open=True), default=1.0, help="Part of the stream."),
        option("--stream", metavar="NAME", help="Instead of i-Blurry: Gaussian, Listed, ..., as NAME:field=value."),
        STREAM_OPTIONS["published"],
        option("--equal-compute", metavar="METHOD", help="All with the training FLOPs of this row."),
        option("--equal-bytes", metavar="METHOD", help="All with the memory that holds the bytes of this row."),
        data_home_option,
    )
    return bundle_options("selected", dict(zip(("study", *OPTIONS), options, strict=True)))


def selection_of(selected: Mapping[str, Any], out: Path | None = None) -> Selection:
    """What these options choose."""
    from iblurry.studies.catalogue import get_study
    from iblurry.studies.selection import Selection

    study = get_study(selected["study"])
    return Selection(
        study=study,
        dataset=selected["dataset"] or study.datasets[0],
        rows=split_names(selected["methods"], study.rows),
        columns=split_names(selected["only"]),
        out=out,
        **{name: selected[name] for name in OPTIONS[OPTIONS.index("seeds") :]},
    )


def runs_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a verb `--runs`; its function gets `runs`, for `run_places`."""
    return click.option(
        "--runs",
        multiple=True,
        metavar="FOLDER",
        type=PLACE,
        help="Folders of runs. Repeatable; the first that has a run counts.  [default: runs, results, the package's]",
    )(command)


def run_places(runs: Sequence[Path], selection: Selection) -> list[Path]:
    """Where to look for runs: in the folders, and in their parts for the data set that `dev collect` makes."""
    from iblurry.studies.collect import dataset_folder

    for folder in runs:
        if not folder.is_dir():
            raise InputError(f"--runs {folder}: there is no such folder; name one that `iblurry run` wrote to.")
        if (folder / "experiment.json").exists():
            raise InputError(f"--runs {folder} is a run; name the folder that holds it, {folder.parent}.")
    folders = runs or [folder / part for folder in RUN_FOLDERS for part in PARTS]
    return [place for folder in folders for place in (folder, dataset_folder(folder, selection.dataset))]


def split_names(given: tuple[str, ...], whole: tuple[str, ...] = ()) -> tuple[str, ...] | None:
    """Names separated by commas; a row of the study may hold commas itself."""
    names = [name.strip() for word in given for name in ([word] if word in whole else word.split(","))]
    return tuple(filter(None, names)) or None
