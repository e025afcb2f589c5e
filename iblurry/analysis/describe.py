"""Experiments in words: which runs make one row, what the row is called, and the command that runs it."""

from __future__ import annotations

import dataclasses
import re
import shlex
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iblurry.components.code_hash import DIGITS
from iblurry.components.component import hyperparameters
from iblurry.components.edit import edit
from iblurry.errors import InputError
from iblurry.experiment.experiment import Experiment
from iblurry.experiment.folder import Value, flatten_fields
from iblurry.experiment.settings import is_known, setting
from iblurry.methods import METHODS
from iblurry.streams.stream import Stream

if TYPE_CHECKING:
    from iblurry.experiment.result import Result

LONGEST = 60  # letters of a file's name: a path of it has room on a line
Fields = dict[str, Any]  # by the paths that --set takes
_FITTED = ("tasks", "memory", "query_every")  # what Experiment.of fits to the user's data
SHOWN = ("network", "freeze", "samples")  # in titles, where all runs have another one than usual
JOINT = "joint"  # trained on everything at once: neither the order of the stream nor the memory matters
DISPLAY_NAMES = {  # in figures and LaTeX: the paper's names, shorter where its tables are wordy
    "er": "ER",
    "er-constant": "ER, constant rate",
    "er-averaged": "ER, averaged",
    "ewc": "EWC++",
    "ewc schedule=Constant": "EWC++, constant rate",
    "bic": "BiC",
    "mir": "ER-MIR",
    "agem": "A-GEM",
    "gss": "GSS",
    "gdumb": "GDumb",
    "rm": "RM",
    "clib": "CLIB",
    "clib-reservoir": "CLIB, without sample importance memory",
    "clib-stream": "CLIB, without memory-only training",
    "clib-exponential": "CLIB, without adaptive rate",
    "clib-balanced": "CLIB, balanced memory",
    "clib-averaged": "CLIB, averaged",
    "er-ace": "ER-ACE",
    "derpp": "DER++",
    "mkd": "MKD",
    "sdp": "SDP",
    "sar": "SAR",
    "balm": "BALM",
    "ncm": "NCM",
    "slda": "SLDA",
    "ranpac": "RanPAC",
    "randumb": "RanDumb",
    JOINT: "Joint",
}


def group_runs(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Put runs that differ only in their seed into one row, by the name of `name_runs`; refuse a seed that is twice."""
    groups: dict[str, list[Result]] = {}
    for result, row in zip(results, name_runs(results), strict=True):
        for twin in groups.setdefault(row, []):  # one run counted as two seeds would make the spread too small
            if twin.experiment.seed == result.experiment.seed:
                raise InputError(f"{twin.folder} and {result.folder} are the same experiment and seed; give only one.")
        groups[row].append(result)
    return groups


def name_runs(results: Sequence[Result]) -> list[str]:
    """The row of each run: a name for all that differ only in their seed, which tells them from the others.

    Runs on data that have changed in between are other rows: their numbers are never averaged.
    """
    keys = [(replace(one.experiment, seed=0).digest, str(one.environment.get("data", ""))) for one in results]
    rows = {digest: one.experiment for (digest, _), one in reversed([*zip(keys, results, strict=True)])}
    names = dict(zip(rows, name_rows(list(rows.values())), strict=True))
    versions = Counter(digest for digest, _ in set(keys))
    return [names[digest] + (f" data={data[:6]}" if versions[digest] > 1 else "") for digest, data in keys]


def name_rows(experiments: Sequence[Experiment]) -> list[str]:
    """A name for each of several experiments: the method's, how it departs from the default, and what sets it apart.

    `clib`, or `clib admission=Balanced`, or, beside another memory, `clib memory=200`.
    """
    differing = _find_differences([_settings(one) for one in experiments])  # between different methods too
    names = []
    for experiment, fields in zip(experiments, differing, strict=True):
        same = [other for other in experiments if other.method.name == experiment.method.name]
        within = _find_differences([_parts(other) for other in same])[same.index(experiment)]
        if (default := _default(experiment)) is not None:
            defaults = _settings(default) | _parts(default) | {"dataset": ""}
            changed = _find_differences([_parts(experiment), _parts(default)])[0]
            fields = _without(fields, defaults) | changed | _without(within, defaults)
        else:
            fields = fields | within
        words = [f"{path}={format_setting(value)}" for path, value in fields.items()]
        names.append(" ".join([experiment.method.name, *words]))
    short = [_without_hashes(name) for name in names]
    names = short if len(set(short)) == len(short) else names  # two versions of code or of split files are told apart
    assert len(set(names)) == len(experiments), "two rows of one name would become one"
    return names


def display_name(row: str) -> str:
    """A row as figures and papers name it; what is not the paper's keeps its own name.

    >>> display_name("ewc"), display_name("clib-released memory=200"), display_name("mine")
    ('EWC++', 'CLIB (released) memory=200', 'mine')
    """
    if row in DISPLAY_NAMES:
        return DISPLAY_NAMES[row]
    first, space, changes = row.partition(" ")
    name = first.removesuffix("-released")
    if name not in DISPLAY_NAMES:
        return row
    return DISPLAY_NAMES[name] + (" (released)" if name != first else "") + space + changes


def is_bound(row: str) -> bool:
    """Whether a row is no contender: the paper has joint training for a soft upper bound."""
    return row.split()[0].removesuffix("-released") == JOINT


def describe_settings(experiments: Sequence[Experiment]) -> str:
    """What all of them have in common, for a title."""
    tables = [_settings(experiment) for experiment in experiments]
    common = {path: value for path, value in tables[0].items() if all(table.get(path) == value for table in tables)}
    words = [str(common["dataset"])] if "dataset" in common else []
    words += [f"{100 * common['share']:g} % of the images"] if common.get("share", 1) != 1 else []
    titles = {experiment.stream.title for experiment in experiments}
    words += titles if len(titles) == 1 else []
    words += [f"{common['tasks']} tasks"] if "tasks" in common else []
    words += [f"memory {common['memory']:,}"] if "memory" in common else []
    usual = _settings(_usual("er", experiments[0].dataset))
    words += [
        _without_hashes(f"{name} {common[name]}") for name in SHOWN if name in common and common[name] != usual[name]
    ]
    words += [describe_held_out(common["validate"])] if common.get("validate") else []
    return ", ".join(words)


def describe_held_out(validate: float) -> str:
    """What an experiment was asked about that held out this share of the training images.

    >>> describe_held_out(0.1)
    'on held-out training images (10 %)'
    """
    return f"on held-out training images ({100 * validate:g} %)"


def find_departures(experiment: Experiment, reference: Experiment) -> Fields:
    """The fields in which an experiment differs from another, by the paths that --set takes; the seed aside."""
    return _find_differences([experiment_fields(experiment), experiment_fields(reference)])[0]


def experiment_fields(experiment: Experiment) -> Fields:
    """Every field but the seed, by the paths that --set takes."""
    return _settings(experiment) | _parts(experiment)


def run_command(experiments: Sequence[Experiment]) -> str:
    """`iblurry run ...` for experiments that differ only in their seed; a comment for what only Python can build.

    >>> run_command([Experiment.of("clib", "digits", memory=80, seed=seed) for seed in (1, 2)])
    'iblurry run clib --dataset digits --seeds 1,2 --set memory=80'
    """
    wanted, seeds = experiments[0], sorted(experiment.seed for experiment in experiments)
    name, usual = wanted.method.name, _default(wanted)
    words = ["iblurry", "run", name, "--dataset", wanted.dataset, "--seeds", ",".join(map(str, seeds))]
    for where in wanted.sources().values():
        words += ["--import", where.file] if where.file is not None and where.file not in words else []
    with suppress(InputError):  # of steps on the way that are no methods by themselves
        made = replace(usual or wanted, seed=wanted.seed)
        if "stream" in find_departures(wanted, made):
            words += ["--stream", _write_stream(wanted.stream)]
            made = replace(made, stream=wanted.stream)
        fields = experiment_fields(wanted)
        changes = [  # what would be chosen by the data is said
            _write_change(path, fields[path]) for path in _FITTED if path in fields and not is_known(wanted.dataset)
        ]
        made = edit(made, *changes)
        for _ in ("parts", "and then their fields"):
            more = [_write_change(path, value) for path, value in find_departures(wanted, made).items()]
            made, changes = edit(made, *more), changes + more
        has_lists = any(isinstance(value, tuple) for value in hyperparameters(wanted.stream).values())
        if usual is not None and not has_lists and made.digest == wanted.digest:
            return shlex.join([*words, *(word for change in changes for word in ("--set", change))])
    return f"# {name} was built in Python: experiment.json of its runs has every field"


def describe_noted(run: Result, name: str) -> str:
    """What environment.json of a run says; a commit by its first digits; what is not there is not guessed."""
    if (value := run.environment.get(name)) is None:
        return "not recorded"
    return f"{value[:DIGITS]}{'+' * value.endswith('+')}" if name == "commit" else str(value)


def make_slug(text: str) -> str:
    """Letters, digits and single hyphens, for names of files and labels.

    >>> make_slug("main-shapes:classes=4")
    'main-shapes-classes-4'
    """
    return re.sub("[^A-Za-z0-9]+", "-", text).strip("-")


def _write_change(path: str, value: Value) -> str:
    """Writes a field as --set reads it."""
    return _without_hashes(f"{path}={format_setting(value)}")


def _write_stream(stream: Stream) -> str:
    """Writes a stream as --stream reads it; fields that have their default are left out."""
    fields = [f for f in dataclasses.fields(stream) if f.name != "content" and getattr(stream, f.name) != f.default]
    words = [f"{field.name}={format_setting(getattr(stream, field.name))}" for field in fields]
    return ":".join([type(stream).__name__, ",".join(words)]) if words else type(stream).__name__


def _without_hashes(text: str) -> str:
    """`Oldest` for `Oldest@0123456789ab`, `stream=Published` for `stream=Published content=0123456789ab`."""
    return re.sub(rf"(@| content=)[0-9a-f]{{{DIGITS}}}\b", "", text)


def make_file_name(words: Iterable[str]) -> str:
    """The words as one slug; what is too long ends in a checksum, so that different words have different names.

    >>> make_file_name(["main", "digits", "seeds 1-3"])
    'main-digits-seeds-1-3'
    """
    text = " ".join(words)
    slug = make_slug(text)
    return slug if len(slug) <= LONGEST else f"{slug[: LONGEST - 9].rstrip('-')}-{zlib.crc32(text.encode()):08x}"


def seed_ranges(seeds: Iterable[int]) -> str:
    """Seeds as the command line takes them.

    >>> seed_ranges([1, 2, 3, 7]), seed_ranges([1, 2])
    ('1-3,7', '1,2')
    """
    numbers = sorted(seeds)
    runs = [[seed for _, seed in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)


def name_figure(experiments: Sequence[Experiment], methods: Sequence[str], seeds: Sequence[int]) -> str:
    """A file name for the figure of these experiments; `methods` and `seeds` are the usual ones, which it leaves out.

    The data set, methods and what departs from the defaults: digits-er-schedule-gamma-0-999.
    """
    rows = list({replace(one, seed=0).digest: one for one in reversed(experiments)}.values())[::-1]
    source, _, options = rows[0].dataset.partition(":")
    words = [Path(source).stem, *(name_rows(rows) if [one.method.name for one in rows] != [*methods] else [])]
    for one in rows:
        usual = _default(one) or replace(_usual(methods[0], one.dataset), method=one.method)
        changes = [_write_change(path, value) for path, value in find_departures(one, usual).items()]
        words += [change for change in changes if not any(change in word for word in words)]
    own = {one.seed for one in experiments}
    return make_file_name(filter(None, [*words, options, f"seeds {seed_ranges(own)}" * (own != {*seeds})]))


def _without(fields: Fields, defaults: Fields) -> Fields:
    return {path: value for path, value in fields.items() if path not in defaults or defaults[path] != value}


def _default(experiment: Experiment) -> Experiment | None:
    """The same method as it comes on the same data set; None for a method of one's own."""
    known = experiment.method.name.removesuffix("-released") in METHODS
    return _usual(experiment.method.name, experiment.dataset) if known else None


def _usual(method: str, dataset: str) -> Experiment:
    """Without a look at the data."""
    numbers = setting(dataset)
    return Experiment.of(method, dataset, **{name: getattr(numbers, name) for name in _FITTED})


def _settings(experiment: Experiment) -> Fields:
    """Everything but the method and the seed."""
    fields = {name: value for name, value in experiment.to_json().items() if name not in ("method", "seed")}
    flat = flatten_fields(fields | {"stream": experiment.stream.identity_json()})  # not where files of it lie
    return {path.removeprefix("stream."): value for path, value in flat.items()}


def _parts(experiment: Experiment) -> Fields:
    """The method, field by field; a slot is the names of its parts, and their fields come after it."""
    method = experiment.to_json()["method"]
    for name, group in (("pace", experiment.method.pace), ("head", experiment.method.head)):
        missing = [field.name for field in dataclasses.fields(group) if field.name not in method[name]]
        method[name] |= {name: getattr(group, name) for name in missing}  # JSON leaves defaults of later fields out
    return flatten_fields({name: value for name, value in method.items() if name != "name" and value is not None})


def _find_differences(table: Sequence[Fields]) -> list[Fields]:
    """Returns of each table what is not the same in all; fields of parts only among those that have the same parts."""
    paths = list(dict.fromkeys(path for fields in table for path in fields))
    odd = [path for path in paths if any(fields.get(path) != table[0].get(path) for fields in table)]
    slots = {path: [other for other in odd if path.startswith(f"{other}.")] for path in odd}

    def is_shown(path: str, fields: Fields) -> bool:
        alike = [row for row in table if all(row.get(slot) == fields.get(slot) for slot in slots[path])]
        return path in fields and any(row.get(path) != fields[path] for row in alike)

    return [{path: fields[path] for path in odd if is_shown(path, fields)} for fields in table]


def format_setting(value: Value) -> str:
    """Writes a value as --set reads it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def operations(flops: float) -> str:
    """Writes a number of operations for people: 3.2 TFLOP.

    >>> operations(3.2e12), operations(4.56e15), operations(0)
    ('3.2 TFLOP', '4.6 PFLOP', '0 GFLOP')
    """
    for unit, size in (("E", 1e18), ("P", 1e15), ("T", 1e12)):
        if flops >= size:
            return f"{flops / size:,.1f} {unit}FLOP"
    return f"{flops / 1e9:,.0f} GFLOP"
