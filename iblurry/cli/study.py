"""`iblurry study`: every experiment behind a table or a figure, run or continued on what hardware there is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iblurry.cli.machine import OPTIONS, machine_options, plan_for
from iblurry.cli.own import import_option, import_own
from iblurry.cli.places import check_folder
from iblurry.cli.sections import Sections
from iblurry.cli.values import Number, Seeds
from iblurry.errors import InputError

if TYPE_CHECKING:
    from iblurry.errors import IblurryError
    from iblurry.experiment.run import Result
    from iblurry.studies.study import Planned, Study

LIST = "list"
PLACE = click.Path(path_type=Path)
SOME_FAILED = 1  # exit code
SECTIONS = {
    "What": ("dataset", "methods", "only", "seeds", "scale", "equal_compute", "modules"),
    "Places": ("out", "data_home", "as_json"),
    "Machine (nothing here is part of the experiments)": ("on", *OPTIONS),
}
EXAMPLES = """\b
Examples:
  iblurry study list
  iblurry study main --dataset digits
  iblurry study memory --dataset cifar10 --methods clib,er --scale 0.1
  iblurry study main --dataset digits --on ray
"""


@click.command(cls=Sections, sections=SECTIONS, epilog=EXAMPLES)
@click.argument("name", metavar="STUDY")
@click.option("--dataset", metavar="SPEC", default="digits", show_default=True, help="See `iblurry data`.")
@click.option("--methods", metavar="LIST", help="Only these rows, separated by commas.")
@click.option("--only", metavar="LIST", help="Only these columns, as N=0,N=50.")
@click.option("--seeds", metavar="LIST", type=Seeds(), default="1,2,3", show_default=True, help="One run for each.")
@click.option("--scale", metavar="P", type=Number(0, 1), default=1.0, help="Part of the stream, as 0.1.  [default: 1]")
@click.option("--equal-compute", metavar="METHOD", help="All with the training FLOPs of this one: see docs/compute.md.")
@import_option
@click.option("--out", metavar="FOLDER", type=PLACE, default="runs", show_default=True, help="Where runs live.")
@click.option("--data-home", metavar="FOLDER", type=PLACE, help="Where imported data live, as in `iblurry data`.")
@click.option("--on", metavar="PLACE", default="local", show_default=True, help="local, or ray: a cluster.")
@machine_options(pack=3)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
def study(
    name: str,
    dataset: str,
    methods: str | None,
    only: str | None,
    seeds: tuple[int, ...],
    scale: float,
    equal_compute: str | None,
    modules: tuple[str, ...],
    out: Path,
    data_home: Path | None,
    on: str,
    as_json: bool,
    machine: dict[str, Any],
) -> int:
    """Run what is missing of a STUDY, keep what is done, and print its table; `list` names them all.

    A run that fails does not stop the others. The same command goes on with what was interrupted.
    """
    from iblurry.studies.catalogue import study_named

    if name == LIST:
        _list(as_json=as_json)
        return 0
    check_folder(out, f"--out {out}")
    import_own(modules)
    chosen = study_named(name)
    planned = chosen.planned(
        dataset, rows=_words(methods), only=_words(only), seeds=seeds, scale=scale, data_home=data_home
    )
    if equal_compute is not None:
        from iblurry.studies.compute import equal_compute as with_equal_compute

        planned = with_equal_compute(planned, equal_compute)
    results, failures = _run(chosen, planned, out, data_home, machine | {"on": on})
    return _tell(chosen, dataset, planned, results, failures, out, as_json=as_json)


def _run(
    chosen: Study, planned: Sequence[Planned], out: Path, data_home: Path | None, machine: dict[str, Any]
) -> tuple[dict[str, Result], dict[str, IblurryError]]:
    """Each experiment once, whatever its columns; finished ones and failures, by their names."""
    from iblurry.cli.run import check_all
    from iblurry.cli.watching import Watch
    from iblurry.data.load import load
    from iblurry.experiment.workers import run_all

    once = {one.experiment.name: one for one in planned}
    experiments = [one.experiment for one in once.values()]
    dataset = experiments[0].dataset
    check_all(experiments, load(dataset, data_home))
    plan = plan_for(_packed(machine, experiments), out, data_home)
    failures: dict[str, IblurryError] = {}
    with Watch(f"{chosen.name} on {dataset}", runs=len(once)) as watch:
        watchers = []
        for one in once.values():
            watchers.append(watch.watcher(" ".join(filter(None, [one.row, one.column, f"seed {one.experiment.seed}"]))))
            if (out / one.experiment.name / "summary.json").exists():
                watchers[-1].is_done()
        results = run_all(experiments, plan, watchers, failures=failures)
    return {one.experiment.name: one for one in results if one.summary is not None}, failures


def _packed(machine: dict[str, Any], experiments: Sequence[Any]) -> dict[str, Any]:
    """A pack is for a GPU; on a CPU it would only take turns."""
    from iblurry.experiment.workers import Plan

    plan = Plan(out=Path(), device=machine["device"])
    on_gpu = any(plan.device_for(one) != "cpu" for one in experiments)
    return machine if on_gpu else machine | {"pack": 1}


def _tell(
    chosen: Study,
    dataset: str,
    planned: Sequence[Planned],
    results: dict[str, Result],
    failures: dict[str, IblurryError],
    out: Path,
    *,
    as_json: bool,
) -> int:
    from iblurry.cli.main import INTERRUPTED
    from iblurry.cli.showing import show_study

    show_study(chosen, dataset, planned, out, as_json=as_json)
    for name, error in failures.items():
        click.echo(f"iblurry: {name} failed: {error}", err=True)
    missing = {one.experiment.name for one in planned} - results.keys() - failures.keys()
    if missing:
        click.echo(
            f"iblurry: Stopped with {len(missing)} runs to go, and saved in {out}. The same command goes on from there.",
            err=True,
        )
        return INTERRUPTED
    return SOME_FAILED if failures else 0


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


def _words(listed: str | None) -> list[str] | None:
    if listed is None:
        return None
    words = [word.strip() for word in listed.split(",") if word.strip()]
    if not words:
        raise InputError(f"{listed!r} names nothing; give names separated by commas, or leave the option out.")
    return words
