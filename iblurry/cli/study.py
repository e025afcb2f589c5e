"""`iblurry study`: every experiment behind a table or a figure, run or continued on what hardware there is."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli.options import (
    MACHINE,
    GroupedCommand,
    OutputFolder,
    callback_option,
    import_option,
    launch_config,
    machine_options,
    parse_callbacks,
)
from iblurry.cli.study_options import OPTIONS, selection_of, study_options
from iblurry.cli.study_plan import StudyPlan, plan_study
from iblurry.errors import IblurryError

if TYPE_CHECKING:
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
@click.option("--out", type=OutputFolder(), default=USUAL, help="Where runs live.")
@click.option("--on", metavar="PLACE", default="local", help="local, or ray: a cluster.")
@machine_options(jobs="one per core; a pack per GPU", pack=f"{PACK}; 1 with --jobs")
@click.option("--dry-run", is_flag=True, help="Say what is to do and how long it takes; run nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
def study(
    selected: dict[str, Any],
    callbacks: tuple[str, ...],
    out: Path,
    on: str,
    dry_run: bool,
    as_json: bool,
    machine: dict[str, Any],
) -> int:
    """Run what is missing of a STUDY, keep what is done, and print its table; `list` names them all.

    It says first how long that will take. A run that fails does not stop the others. The same command goes on with what
    was interrupted.
    """
    if selected["study"] == LIST:
        _list(as_json=as_json)
        return 0
    chosen = selection_of(selected, None if out == USUAL else out)
    own = parse_callbacks(callbacks)
    once = {one.experiment.name: one for one in chosen.planned}
    config, plan = _plan(chosen, once, out, machine | {"on": on})
    if dry_run:
        plan.show(as_json=as_json)
        return 0
    finished, failures = _run(plan, once, config, own)
    return _tell(chosen, finished, failures, out, as_json=as_json)


def _plan(
    selection: Selection, once: Mapping[str, PlannedRun], out: Path, machine: dict[str, Any]
) -> tuple[LaunchConfig, StudyPlan]:
    """How the runs are launched, and what of them is to do; nothing is written."""
    from iblurry.cli.run import check_all
    from iblurry.data.load import load

    experiments, data = [one.experiment for one in once.values()], load(selection.dataset, selection.data_home)
    check_all(experiments, data)
    config = launch_config(_packed(machine, experiments), out, selection.data_home)
    done = {name for name in once if not config.again and (out / name / "summary.json").exists()}
    return config, plan_study(selection, once, done, config, data)


def _run(
    plan: StudyPlan, once: Mapping[str, PlannedRun], config: LaunchConfig, own: Sequence[Callback]
) -> tuple[set[str], dict[str, IblurryError]]:
    """Each experiment once, whatever its columns; the names of finished ones, and failures by theirs."""
    from iblurry.launch.launch import run_all
    from iblurry.launch.progress import ProgressDisplay

    experiments, done = [one.experiment for one in once.values()], {one.experiment.name for one in plan.done}
    failures: dict[str, IblurryError] = {}
    title = f"{plan.selection.study.name} on {plan.selection.dataset}"
    forecast = plan.forecast if plan.is_foreseen else None
    with ProgressDisplay(title, runs=len(once), forecast=forecast, pack=config.pack) as display:
        bars = []
        for name, one in once.items():
            words = [one.row, one.column, f"seed {one.experiment.seed}"]
            bars.append(display.callback(" ".join(filter(None, words)), run=name))
            if name in done:
                bars[-1].is_done()
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
    from iblurry.cli.main import FAILED, INTERRUPTED
    from iblurry.studies.tables import FORMATS
    from iblurry.studies.tables.table import tabulate_study

    form = "json" if as_json else "terminal" if sys.stdout.isatty() else "text"
    click.echo(FORMATS[form](tabulate_study(selection, [out]), None), nl=False)
    for name, error in failures.items():
        click.echo(f"iblurry: {name} failed: {error}", err=True)
    missing = {one.experiment.name for one in selection.planned} - finished - failures.keys()
    if missing:
        said = f"Stopped with {len(missing)} runs to go, and saved in {out}. The same command goes on from there."
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
