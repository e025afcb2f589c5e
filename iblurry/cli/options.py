"""What several verbs have on their command lines: types of values, places to write to, `--import`, the machine."""

from __future__ import annotations

import functools
import importlib
import math
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
PLACE = click.Path(path_type=Path)
MOST_SEEDS = 10_000  # of one range: more is a slip of the finger


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


class NumberRange(click.FloatRange):
    """`click.FloatRange` that refuses "nan", which compares with nothing and would pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return number


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


PERCENT = NumberRange(0, 100)
FIGURE = OutputFile(".png", ".svg", ".pdf")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")
data_home_option = click.option(
    "--data-home", metavar="FOLDER", type=PLACE, help="Where imported data live, as in `iblurry data`."
)


def runs_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a verb the argument [RUN]...: folders of runs, or folders of them; "runs" unless given."""
    default = (Path("runs"),)
    return click.argument(
        "runs", nargs=-1, metavar="[RUN]...", type=PLACE, callback=lambda context, argument, given: given or default
    )(command)


def bundle_options(name: str, options: dict[str, Decorator]) -> Decorator:
    """A decorator that adds these options to a verb, whose function gets their values as one dict called `name`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def call(**given: Any) -> Any:
            return command(**{name: {option: given.pop(option) for option in options}}, **given)

        decorated: Callable[..., Any] = call
        for option in reversed(options.values()):
            decorated = option(decorated)
        return decorated

    return decorate


MACHINE = ("device", "precision", "jobs", "pack", "threads", "save_seconds", "save_samples", "again")


def machine_options(*, jobs: str, pack: str) -> Decorator:
    """Gives a verb what it is told about the machine, as `machine`; `jobs` and `pack` word its defaults."""
    positive, option = click.IntRange(1), click.option
    options = (
        option(
            "--device",
            metavar="NAME",
            default="auto",
            show_default=False,
            help="cpu, cuda.  [default: a GPU, if there is one; not for mlp, convnet]",
        ),
        option("--precision", metavar="NAME", help="float32 or bfloat16.  [default: float32; bfloat16 on a GPU]"),
        option("--jobs", metavar="J", type=positive, help=f"Processes, of one run or --pack each.  [default: {jobs}]"),
        option(
            "--pack", metavar="N", type=positive, help=f"Runs side by side in one process on a GPU.  [default: {pack}]"
        ),
        option("--threads", metavar="T", type=positive, help="Threads of each run.  [default: its share; 1 if small]"),
        option(
            "--save-seconds",
            metavar="S",
            type=NumberRange(0),
            default=30,
            help="Seconds between two checkpoints; more where they would take over 5 % of the time.",
        ),
        option("--save-samples", metavar="S", type=positive, help="Also a checkpoint every so many samples."),
        option("--again", is_flag=True, help="Delete earlier results, and start again."),
    )
    return bundle_options("machine", dict(zip(MACHINE, options, strict=True)))


def launch_config(machine: Mapping[str, Any], out: Path, data_home: Path | None) -> LaunchConfig:
    """What these options say."""
    from iblurry.experiment.checkpointer import CheckpointPolicy
    from iblurry.launch.config import LaunchConfig

    rest = {name: value for name, value in machine.items() if not name.startswith("save") and value is not None}
    checkpoints = CheckpointPolicy(seconds=machine["save_seconds"], samples=machine["save_samples"])
    return LaunchConfig(out=out, data_home=data_home, checkpoints=checkpoints, **rest)


def import_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a verb `--import`, which imports what is the user's own before the verb's function is called."""
    return click.option(
        "--import",
        "modules",
        multiple=True,
        expose_value=False,
        callback=lambda context, option, given: import_user_modules(given),
        metavar="MODULE",
        help="Import a module, or a file like mine.py, with parts, methods or data of your own first. Repeatable.",
    )(command)


def callback_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a verb `--callback`; its function gets `callbacks`, for `parse_callbacks`."""
    return click.option(
        "--callback",
        "callbacks",
        multiple=True,
        metavar="NAME",
        help="OnlineAccuracy, KnowledgeRatios, TensorBoard, WandB, MLflow or yours, as NAME:field=value. Repeatable.",
    )(command)


def metric_option(words: str, default: str) -> Decorator:
    """Gives a verb `--metric`; its function gets `metric`, for `split_names`."""
    return click.option("--metric", multiple=True, metavar="LIST", help=f"{words}  [default: {default}]")


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
