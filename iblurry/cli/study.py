"""`iblurry study`: every experiment behind a table or a figure, run or continued on what hardware there is."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli.experiment_options import check_all
from iblurry.cli.options import (
    MACHINE,
    GroupedCommand,
    OutputFolder,
    callback_option,
    import_option,
    json_option,
    launch_config,
    machine_options,
    parse_callbacks,
    say_at_once,
)
from iblurry.cli.study_options import OPTIONS, selection_of, study_options
from iblurry.errors import IblurryError

if TYPE_CHECKING:
    from iblurry.data.dataset import Dataset
    from iblurry.experiment.callback import Callback
    from iblurry.launch.config import LaunchConfig
    from iblurry.studies.selection import Selection
    from iblurry.studies.study import PlannedRun

LIST = "list"
USUAL = Path("runs")
PACK = 3  # runs side by side on a GPU unless told
GROUPS = {
    "What": (*OPTIONS, "modules", "callbacks"),
    "Places": ("out", "dry_run", "as_json"),
    "Machine (nothing here is part of the experiments)": ("on", *MACHINE),
}
EXAMPLES = """\b
Examples:
  iblurry study list
  iblurry study main --dataset digits
  iblurry study main --dataset digits --dry-run
  iblurry study memory --dataset cifar10 --methods clib,er --scale 0.1
  iblurry study main --dataset digits --on ray
"""


@click.command(cls=GroupedCommand, groups=GROUPS, epilog=EXAMPLES)
@study_options(default="digits")
@import_option
@callback_option
@click.option("--out", type=OutputFolder(), default=USUAL, help="Folder of the runs.")
@click.option("--on", metavar="PLACE", default="local", help="local, or ray: a cluster.")
@machine_options(jobs="one per core; a pack per GPU", pack=f"{PACK}; 1 with --jobs")
@click.option("--dry-run", is_flag=True, help="List the runs and run nothing.")
@json_option
def study(
    selected: dict[str, Any],
    callbacks: tuple[str, ...],
    out: Path,
    on: str,
    dry_run: bool,
    as_json: bool,
    machine: dict[str, Any],
) -> int:
    """Run the missing runs of a STUDY and print its table; `list` names them all.

    A bar shows the time left. A run that fails does not stop the others. The same command continues interrupted
    runs.
    """
    if selected["study"] == LIST:
        _list(as_json=as_json)
        return 0
    say_at_once(f"Loading PyTorch, then {selected['dataset']}.")

    from iblurry.data.load import load

    chosen = selection_of(selected, None if out == USUAL else out)
    own = parse_callbacks(callbacks)
    once = {one.experiment.name: one for one in chosen.planned}
    experiments, data = [one.experiment for one in once.values()], load(chosen.dataset, chosen.data_home)
    check_all(experiments, data)
    config = launch_config(_packed(machine | {"on": on}, experiments), out, chosen.data_home)
    done = sum(map(config.is_done, experiments))
    counts = f"{len(once) - done} of {len(once)} runs to do, {done} done and kept"
    click.echo(f"{chosen.study.name} on {chosen.dataset}: {counts}.", err=True)
    if dry_run:
        _show_plan(chosen, once, config, data, as_json=as_json)
        return 0
    finished, failures = _run(chosen, once, config, own)
    return _tell(chosen, finished, failures, out, as_json=as_json)


def _show_plan(
    selection: Selection, once: Mapping[str, PlannedRun], config: LaunchConfig, data: Dataset, *, as_json: bool
) -> None:
    """Which runs are to do, by row and column, and the operations of their training, on standard output."""
    from iblurry.analysis.compute import size_of, training_flops
    from iblurry.analysis.describe import operations
    from iblurry.analysis.formats import rich_grid

    cells = {(one.row, one.column): {"to_do": 0, "done": 0, "training_flops": 0.0} for one in selection.planned}
    for one in once.values():
        cell, is_done = cells[one.row, one.column], config.is_done(one.experiment)
        cell["done" if is_done else "to_do"] += 1
        if not is_done:  # a list of samples may be shorter than the data
            cut = replace(one.experiment, samples=len(one.experiment.order(data)))
            cell["training_flops"] += training_flops(cut, size_of(data))
    rows = [{"row": row, "column": column} | cell for (row, column), cell in cells.items()]
    if as_json:
        about = {"study": selection.study.name, "dataset": selection.dataset}
        total = {name: sum(cell[name] for cell in cells.values()) for name in ("to_do", "done")}
        click.echo(json.dumps(about | total | {"rows": rows}, indent=2))
        return
    columns = ["column"] if any(column for _, column in cells) else []
    counts = [(f"{cell['to_do']}", f"{cell['done']}", operations(cell["training_flops"])) for cell in cells.values()]
    texts = [(*place[: 1 + len(columns)], *count) for place, count in zip(cells, counts, strict=True)]
    lines = ([(text, False) for text in line] for line in texts)
    heads, sides = ["row", *columns, "to do", "done", "training"], "l" * (1 + len(columns)) + "rrr"
    click.echo(rich_grid(heads, lines, shutil.get_terminal_size().columns, sides=sides, bold=False))


def _run(
    selection: Selection, once: Mapping[str, PlannedRun], config: LaunchConfig, own: Sequence[Callback]
) -> tuple[set[str], dict[str, IblurryError]]:
    """Each experiment once, whatever its columns; the names of finished ones, and failures by theirs."""
    from iblurry.launch.launch import run_all
    from iblurry.launch.progress import ProgressDisplay

    experiments, failures = [one.experiment for one in once.values()], dict[str, IblurryError]()
    with ProgressDisplay(f"{selection.study.name} on {selection.dataset}", runs=len(once)) as display:
        bars = []
        for one in once.values():
            words = filter(None, [one.row, one.column, f"seed {one.experiment.seed}"])
            bars.append(display.callback(" ".join(words), is_done=config.is_done(one.experiment)))
        results = run_all(experiments, config, [[bar, *own] for bar in bars], failures=failures)
    return {one.experiment.name for one in results if one.summary is not None}, failures


def _packed(machine: dict[str, Any], experiments: Sequence[Any]) -> dict[str, Any]:
    """Who says how many --jobs means runs, one to a process; who says nothing gets packs on a GPU, where they gain."""
    from iblurry.launch.config import LaunchConfig

    if machine["pack"] is not None:
        return machine
    config = LaunchConfig(out=Path(), device=machine["device"])
    on_gpu = any(config.device_for(one) != "cpu" for one in experiments)
    return machine | {"pack": PACK if on_gpu and machine["jobs"] is None else 1}


def _tell(
    selection: Selection, finished: set[str], failures: dict[str, IblurryError], out: Path, *, as_json: bool
) -> int:
    from iblurry.analysis.formats import FORMATS
    from iblurry.cli.verbs import FAILED, INTERRUPTED
    from iblurry.studies.table import tabulate_study

    form = "json" if as_json else "terminal" if sys.stdout.isatty() else "text"
    click.echo(FORMATS[form](tabulate_study(selection, [out]), None), nl=False)
    for name, error in failures.items():
        click.echo(f"iblurry: {name} failed: {error}", err=True)
    missing = {one.experiment.name for one in selection.planned} - finished - failures.keys()
    if missing:
        said = f"Stopped with {len(missing)} runs to go, and saved in {out}. The same command continues."
        click.echo(f"iblurry: {said}", err=True)
        return INTERRUPTED
    return FAILED if failures else 0


def _list(*, as_json: bool) -> None:
    from iblurry.studies.catalogue import STUDIES

    if as_json:
        fields = ("name", "title", "shows", "question", "datasets", "rows", "metrics")
        click.echo(json.dumps([{field: getattr(one, field) for field in fields} for one in STUDIES.values()], indent=2))
        return
    for one in STUDIES.values():
        click.echo(f"{one.name} - {', '.join(one.shows) or 'not in the paper'}")
        click.echo(f"  {one.title}: {one.question}")
        click.echo(f"  rows  {', '.join(one.rows)}")
        columns = [column for column in one.columns(one.datasets[0]) if column]
        click.echo(f"  data  {', '.join(one.datasets)}" + (f"; {', '.join(columns)}" if columns else ""))
