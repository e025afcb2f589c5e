"""What several verbs have on their command lines: types of values, options, and what is made of them."""

from __future__ import annotations

import importlib
import json
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iblurry.components.code_hash import IMPORTING
from iblurry.errors import InputError

if TYPE_CHECKING:
    from iblurry.experiment.callback import Callback
    from iblurry.launch.config import LaunchConfig
    from iblurry.streams.stream import Stream

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
RUNS = Path("runs")  # where runs are kept unless told
MOST_SEEDS = 10_000  # of one range: more is a slip of the finger

# ---------------------------------------------------------------------------------------------------- types of values

PLACE = click.Path(path_type=Path)
COUNT = click.IntRange(1)
PERCENT = click.FloatRange(0, 100)
SHARE = click.FloatRange(0, 1)


class Shape(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.5
    """Channels, height and width of an image, such as 3x32x32."""

    name = "shape"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int, int]:
        try:
            channels, height, width = (int(size) for size in str(value).lower().split("x"))
        except ValueError:
            channels = height = width = 0
        if min(channels, height, width) < 1:
            self.fail(f"{value}: give channels x height x width, like 3x32x32 or 1x8x8.", param, ctx)
        return channels, height, width


class Seeds(click.ParamType):  # type: ignore[type-arg]
    """Seeds and ranges of them, such as 1-3,7, separated by commas; none of them twice."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        seeds: tuple[int, ...] = ()
        for word in str(value).split(","):
            match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", word, re.ASCII)
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
            if not 0 <= last - first < MOST_SEEDS:
                self.fail(f"{value}: give whole numbers from 0 and ranges of them, like 1,2,3 or 1-3,7.", param, ctx)
            seeds += tuple(range(first, last + 1))
        if len(set(seeds)) < len(seeds):
            self.fail(f"{value} names a seed twice; a seed is one run, so name each once.", param, ctx)
        return seeds


class OutputFolder(click.Path):
    """A folder to write into, which need not exist yet; checked before the work instead of after it."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, writable=True)
        self.name = "folder"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        super().convert(
            next(place for place in (path.absolute(), *path.absolute().parents) if place.exists()), param, ctx
        )
        return path


class OutputFile(click.Path):
    """A file to write, whose name has one of these endings; any, if none is given."""

    def __init__(self, *endings: str) -> None:
        super().__init__(dir_okay=False, writable=True)
        self.endings = endings

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if self.endings and path.suffix.lower() not in self.endings:
            self.fail(f"{path} ends in {path.suffix!r}; end its name in {' or '.join(self.endings)}.", param, ctx)
        super().convert(path, param, ctx)
        OutputFolder().convert(path.parent, param, ctx)
        return path


FIGURE = OutputFile(".png", ".svg", ".pdf")

# ------------------------------------------------------------------------------------------------------------ options


class GroupedCommand(click.Command):
    """`groups` gives the names of the options under each heading; what it leaves out comes last."""

    def __init__(self, *arguments: Any, groups: Mapping[str, Iterable[str]], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        records = {option.name: record for option in options if (record := option.get_help_record(ctx))}
        for heading, names in self.groups.items():
            with formatter.section(heading):
                formatter.write_dl([records.pop(name) for name in names], col_max=22)
        with formatter.section("Other"):
            formatter.write_dl(list(records.values()), col_max=22)


def add(table: Mapping[str, Decorator], *names: str) -> Decorator:
    """Gives a verb the options of a table, or those of these names."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for name in reversed(names or tuple(table)):
            command = table[name](command)
        return command

    return decorate


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")
import_option = click.option(
    "--import",
    "modules",
    multiple=True,
    expose_value=False,
    callback=lambda context, option, given: import_user_modules(given),
    metavar="MODULE",
    help="Import a module, or a file like mine.py, with parts, methods or data of your own first. Repeatable.",
)
callback_option = click.option(
    "--callback",
    "callbacks",
    multiple=True,
    metavar="NAME",
    help="OnlineAccuracy, KnowledgeRatios, TensorBoard, WandB, MLflow or yours, as NAME:field=value. Repeatable.",
)
metric_option = click.option(
    "--metric",
    multiple=True,
    metavar="LIST",
    help="a_auc, min_acc, forgetting:max, or what callbacks log: mine, mine:mean.  [default: accuracies, all that was "
    "logged]",
)
runs_argument = click.argument("runs", nargs=-1, metavar="[RUN]...", type=PLACE, default=(RUNS,))
data_home_option = click.option(
    "--data-home", metavar="FOLDER", type=PLACE, help="Where imported data live, as in `iblurry data`."
)
figure_option = click.option("--figure", type=FIGURE, help="A .png, .svg or .pdf.  [default: .png and .svg in --out]")


def declare(
    rows: Mapping[str, tuple[str, click.ParamType[Any] | None, str]], *, many: Sequence[str] = (), **defaults: Any
) -> dict[str, Decorator]:
    """Options by the names of their values: what a value is called, its type (None: text), and what it is for.

    Those in `many` may be repeated.
    """
    return {
        name: click.option(
            f"--{name.replace('_', '-')}",
            metavar=metavar,
            type=kind,
            help=about,
            **{"multiple": True} if name in many else {"default": defaults.get(name)},
        )
        for name, (metavar, kind, about) in rows.items()
    }


STREAM = declare(  # the data of experiments, and their order
    {
        "dataset": ("SPEC", None, "See `iblurry data`."),
        "seeds": ("LIST", Seeds(), "One run for each, as 1,2,3 or 1-3."),
        "stream": ("NAME", None, "IBlurry (default), Gaussian, ..., as NAME:field=value."),
        "disjoint": ("N", PERCENT, "% of classes in one task only.  [default: 50]"),
        "blur": ("M", PERCENT, "% of blurry samples in other tasks.  [default: 10]"),
        "tasks": ("T", COUNT, "How many tasks.  [default: the paper's]"),
        "mode": ("NAME", None, "strict, uneven, compatible: if N does not fit."),
        "samples": ("S", COUNT, "Stop after so many.  [default: all]"),
        "share": ("P", SHARE, "Share of each class's images: 0.1.  [default: 1]"),
        "validate": ("P", SHARE, "Ask about held-out training images, as 0.1.  [default: 0.1 in a search]"),
        "published": ("FOLDER", PLACE, "Take the order from published split files."),
    },
    dataset="digits",
    seeds="1-3",
)
LEARNING = declare(  # the other fields of experiments
    {
        "memory": ("K", COUNT, "How many samples may be stored."),
        "network": ("NAME", None, "convnet, mlp, resnet18, ..., as NAME:option=value."),
        "query_every": ("S", COUNT, "Samples between two queries."),
    }
) | {
    "changes": click.option(
        "--set",
        "changes",
        multiple=True,
        metavar="PATH=VALUE",
        help="Any field: pace.stream_batch=4, admission=Balanced. `iblurry methods --json` lists them. Repeatable.",
    )
}


def machine_options(*, jobs: str, pack: str) -> dict[str, Decorator]:
    """What a verb is told about the machine, for `launch_config`; `jobs` and `pack` word its defaults."""
    rows = {
        "device": ("NAME", None, "cpu, cuda.  [default: a GPU, if there is one; not for mlp, convnet]"),
        "precision": ("NAME", None, "float32 or bfloat16.  [default: float32; bfloat16 on a GPU]"),
        "jobs": ("J", COUNT, f"Processes, of one run or --pack each.  [default: {jobs}]"),
        "pack": ("N", COUNT, f"Runs side by side in one process on a GPU.  [default: {pack}]"),
        "threads": ("T", COUNT, "Threads of each run.  [default: its share; 1 if small]"),
        "save_seconds": (
            "S",
            click.FloatRange(0),
            "Seconds between two checkpoints; more where they would take over 5 % of the time.",
        ),
        "save_samples": ("S", COUNT, "Also a checkpoint every so many samples."),
    }
    again = click.option("--again", is_flag=True, help="Delete earlier results, and start again.")
    return declare(rows, save_seconds=30) | {"again": again}


MACHINE = tuple(machine_options(jobs="", pack=""))

# -------------------------------------------------------------------------------------------------- what options say


def launch_config(given: Mapping[str, Any]) -> LaunchConfig:
    """What --out, --data-home and the options about the machine say."""
    from iblurry.experiment.checkpointer import CheckpointPolicy
    from iblurry.launch.config import LaunchConfig

    names = ("out", "data_home", "on", "device", "precision", "jobs", "pack", "threads", "again")
    fields = {name: given[name] for name in names if given.get(name) is not None}
    checkpoints = CheckpointPolicy(seconds=given["save_seconds"], samples=given["save_samples"])
    return LaunchConfig(checkpoints=checkpoints, **fields)


def parse_callbacks(texts: Sequence[str]) -> list[Callback]:
    """What --callback says: `NAME` or `NAME:field=value,field=value`."""
    from iblurry.components.edit import component
    from iblurry.experiment.callback import Callback

    importlib.import_module("iblurry.experiment.callbacks")  # the package's own are known by their names from now on
    return [component(Callback, text) for text in texts]


def parse_stream(text: str) -> Stream:
    """What --stream says: `NAME` or `NAME:field=value,field=value`."""
    from iblurry.components.edit import component
    from iblurry.streams.stream import Stream

    kind: Any = Stream
    stream: Stream = component(kind, text)
    return stream


def split_names(given: tuple[str, ...], whole: tuple[str, ...] = ()) -> tuple[str, ...] | None:
    """Names separated by commas; those in `whole` may hold commas themselves."""
    names = [name.strip() for word in given for name in ([word] if word in whole else word.split(","))]
    return tuple(filter(None, names)) or None


def import_user_modules(modules: Sequence[str]) -> None:
    """Imports modules by their names, found from the working folder too, and files by their paths.

    Worker processes find them the same way: they get this process's search path, and unpacking a part imports it.
    """
    for module in modules:
        is_file = module.endswith(".py")
        try:
            path = Path(module).resolve(strict=is_file)
            folder = str(path.parent if is_file else Path.cwd())
            if folder not in sys.path:
                sys.path.append(folder)  # last, so that nothing of the user's hides a library
            token = IMPORTING.set(module)
            try:
                found = importlib.import_module(path.stem if is_file else module).__file__
            finally:
                IMPORTING.reset(token)
            if is_file and (found is None or Path(found).resolve() != path):
                raise ImportError(f"another module is called {path.stem} already, so the file needs another name")
        except Exception as error:  # whatever the user's own code raises
            raise InputError(f"--import {module} failed: {_what(error, module)}. Correct it, and try again.") from error


def _what(error: Exception, module: str) -> str:
    """The error and, where it arose in a file of the user's, the line."""
    name = Path(module).name if module.endswith(".py") else f"{module.rsplit('.', 1)[-1]}.py"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name == name]
    if isinstance(error, FileNotFoundError) and not lines:
        return "there is no such file"
    where = f"line {lines[-1]}: " if lines else ""
    return f"{where}{type(error).__name__}: {str(error).rstrip('.')}"


def say_at_once(sentence: str) -> None:
    """Says something to a person at a terminal who would wait without a word while a verb gets ready."""
    if sys.stderr.isatty():
        click.echo(sentence, err=True)


def tell(about: object, text: str, *, as_json: bool) -> None:
    """Prints what a verb found or did: as JSON, or in words."""
    click.echo(json.dumps(about, indent=2) if as_json else text)
