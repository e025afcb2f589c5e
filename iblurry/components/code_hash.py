"""What identifies code that is not the package's own: a hash of its source and of everything of the user's it uses.

Files are read again whenever they have changed, and a source counts only if it compiles to the code that is running;
otherwise the running code is hashed. So two versions of a class never have one hash.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import site
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

IMPORTING: ContextVar[str | None] = ContextVar("importing", default=None)  # a file imported for its classes
DIGITS = 12  # hex digits of a hash in a name
SCRIPTS = ("__main__", "__mp_main__")  # what Python calls the script of a program, there and in its worker processes
CONSTANTS = (int, float, complex, str, bytes, bool, type(None), range)


@dataclass(frozen=True)
class Origin:
    """Where code came from.

    Parameters
    ----------
    module : str
        Its module; of a script, the file's name without the ending.
    name : str
        Its qualified name there.
    file : str or None
        The file; None for what was typed at a prompt.
    """

    module: str
    name: str
    file: str | None


def is_own(thing: Any) -> bool:
    """Whether a class or function belongs to this package."""
    return str(getattr(thing, "__module__", "")).split(".")[0] == "iblurry"


def origin(thing: Any) -> Origin:
    """Where a class or function was written."""
    module = str(getattr(thing, "__module__", None) or "__main__")
    files = (function.__code__.co_filename for function in _functions(thing))
    file = next(files, None) or getattr(sys.modules.get(module), "__file__", None)
    if file is not None and not Path(file).exists():
        file = None  # <stdin>, a notebook's cell
    if module in SCRIPTS and file is not None:
        module = Path(file).stem
    return Origin(module, getattr(thing, "__qualname__", type(thing).__qualname__), file and str(Path(file).resolve()))


def hashed_name(thing: Any) -> str:
    """`Name` for what is the package's own, else `Name@0123456789ab`.

    Parameters
    ----------
    thing : class or function
        Anything with a `__name__`.
    """
    return str(thing.__name__) if is_own(thing) else f"{thing.__name__}@{code_hash(thing)}"


def content_hash(*pieces: bytes | str) -> str:
    """Twelve hex digits of some content."""
    digest = hashlib.sha256()
    for piece in pieces:
        data = piece.encode() if isinstance(piece, str) else piece
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:DIGITS]


def code_hash(thing: Any) -> str:
    """A hash of a class or function: its source, the classes it builds on, and the functions, classes and constants
    of the user's files that it refers to. Libraries and this package count by their names in the source alone.

    Parameters
    ----------
    thing : class or function
        Anything written in Python.
    """
    found: dict[str, str] = {}
    _collect(thing, found)
    return _hash_of(found)


def object_hash(thing: Any) -> str:
    """A hash of an object: everything it holds, and the code of its classes and functions where they are a user's.

    Parameters
    ----------
    thing : object
        Anything that can be taken apart as for a copy, or a function; the order of sets does not matter.
    """
    found: dict[str, str] = {}
    _collect_object("", thing, found, {})
    return _hash_of(found)


def _hash_of(found: dict[str, str]) -> str:
    return content_hash(*(text for pair in sorted(found.items()) for text in pair))


def _collect_object(key: str, thing: Any, found: dict[str, str], seen: dict[int, Any]) -> None:
    """Adds an object's class and content by the path that leads there."""
    if isinstance(thing, CONSTANTS):
        found[key] = repr(thing)
        return
    if id(thing) in seen:
        found[key] = "again"
        return
    seen[id(thing)] = thing  # kept, so that no other gets its number
    pieces: Iterable[tuple[Any, Any]] = ()
    if isinstance(thing, type | types.FunctionType | types.BuiltinFunctionType | types.ModuleType):
        found[key] = f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', thing.__name__)}"
        if isinstance(thing, types.FunctionType) or (isinstance(thing, type) and is_users(thing)):
            _collect(thing, found)
        return
    if _is_array(thing):
        found[key] = _array_text(thing)
        return
    _collect_object(f"{key} class", type(thing), found, {})
    if isinstance(thing, dict):
        pieces = ((f"{place} {name!r}", value) for place, (name, value) in enumerate(thing.items()))
    elif isinstance(thing, list | tuple):
        pieces = enumerate(thing)
    elif isinstance(thing, set | frozenset):
        pieces = enumerate(sorted(thing, key=repr))
    else:
        taken = thing.__reduce_ex__(4)  # what makes it, arguments, state, items of a list, items of a dict
        pieces = enumerate(taken if isinstance(taken, tuple) else [taken])
        pieces = ((place, piece if place < 3 else list(piece or ())) for place, piece in pieces)
    for place, piece in pieces:
        _collect_object(f"{key}/{place}", piece, found, seen)


def _collect(thing: Any, found: dict[str, str]) -> None:
    """Adds the text of a class or function and of what it uses, by name."""
    where = origin(thing)
    key = f"{where.module}.{where.name}"
    if key in found:
        return
    found[key] = _text(thing, where)
    if isinstance(thing, type):
        for base in thing.__mro__[1:]:
            _collect_value(f"{key} base {base.__qualname__}", base, found)
        for name, value in vars(thing).items():
            if not name.startswith("__"):
                _collect_value(f"{key}.{name}", value, found)
    for function in _functions(thing):
        for name, value in _references(function):
            _collect_value(f"{key} {name}", value, found)


def _collect_value(key: str, value: Any, found: dict[str, str]) -> None:
    """Adds what a name stands for, where that is the user's own or a constant."""
    if isinstance(value, type | types.FunctionType):
        if is_users(value):
            _collect(value, found)
    elif isinstance(value, CONSTANTS):
        found[key] = repr(value)
    elif isinstance(value, tuple | list | set | frozenset | dict):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for at, item in items if not isinstance(value, set | frozenset) else enumerate(sorted(value, key=repr)):
            _collect_value(f"{key}[{at!r}]", item, found)
    elif _is_array(value):
        found[key] = _array_text(value)
    elif is_users(type(value)):
        _collect(type(value), found)


def _is_array(value: Any) -> bool:
    """Whether it is a tensor or an array."""
    return not isinstance(value, type) and (hasattr(value, "numpy") or hasattr(value, "tobytes"))


def _array_text(value: Any) -> str:
    tensor = value.detach().cpu() if hasattr(value, "detach") else None
    exact = tensor.double() if tensor is not None and "bfloat16" in str(tensor.dtype) else tensor  # NumPy has none
    array = value if exact is None else exact.numpy()
    return content_hash(repr(getattr(array, "shape", "")), array.tobytes())


def _functions(thing: Any) -> Iterator[types.FunctionType]:
    """The functions that a class holds in its own body, or the function itself."""
    values = [thing] if not isinstance(thing, type) else [v for v in vars(thing).values() if not isinstance(v, type)]
    for value in values:
        if isinstance(value, property):
            values += [f for f in (value.fget, value.fset) if f is not None]
            continue
        inner = getattr(value, "__func__", None) or getattr(value, "func", None) or value
        function = inspect.unwrap(inner) if callable(inner) else None
        if isinstance(function, types.FunctionType) and not function.__code__.co_filename.startswith("<string>"):
            yield function


def _references(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What the names of a function stand for outside of it: globals, attributes of modules, enclosing variables."""
    code, scope = function.__code__, function.__globals__
    names = sorted(_names(code))
    for name in names:
        value = scope.get(name)
        if isinstance(value, types.ModuleType) and is_users(value):
            yield from ((f"{name}.{inner}", getattr(value, inner)) for inner in names if hasattr(value, inner))
        elif name in scope:
            yield name, value
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        if name != "__class__":
            yield name, cell.cell_contents


def _names(code: types.CodeType) -> set[str]:
    return {name for each in (code, *_nested(code)) for name in each.co_names}


def _text(thing: Any, where: Origin) -> str:
    """The source of a class or function, and the running code of functions that are not compiled from it."""
    pieces = _pieces(where.file, Path(where.file).stat().st_mtime_ns) if where.file is not None else {}
    running = []
    for function in _functions(thing):
        name, code = function.__qualname__, _bare(function.__code__)
        if name not in pieces or pieces[name].code != code:
            running.append(f"{name} {code!r}")
    return (pieces[where.name].text if where.name in pieces else "") + "\n".join(running)


class Piece(NamedTuple):
    """A class or function of a file: its text, and the code of a function without the numbers of its lines."""

    text: str
    code: Any


@functools.lru_cache(maxsize=256)
def _pieces(file: str, mtime: int) -> dict[str, Piece]:
    """Every class and function of a file, by qualified name."""
    try:
        text = Path(file).read_text(encoding="utf-8")
        tree, module = ast.parse(text), compile(text, file, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return {}
    codes = {code.co_qualname: _bare(code) for code in _nested(module)}
    lines = text.splitlines()
    pieces: dict[str, Piece] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = prefix
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{prefix}{child.name}"
                first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                body = "\n".join(line.rstrip() for line in lines[first - 1 : child.end_lineno])
                pieces[name] = Piece(inspect.cleandoc("\n" + body), codes.get(name))
                inner = f"{name}." if isinstance(child, ast.ClassDef) else f"{name}.<locals>."
            visit(child, inner)

    visit(tree, "")
    return pieces


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield const
            yield from _nested(const)


def _bare(code: types.CodeType) -> Any:
    """What a code object computes, without file and lines: comparable between two compilations."""
    consts = tuple(_bare(const) if isinstance(const, types.CodeType) else repr(const) for const in code.co_consts)
    return code.co_code, consts, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars


def is_users(thing: Any) -> bool:
    """Whether a class, function or module lies in a file of the user's: not this package, Python's or installed."""
    if is_own(thing) or (isinstance(thing, types.ModuleType) and thing.__name__.split(".")[0] == "iblurry"):
        return False
    file = getattr(thing, "__file__", None) if isinstance(thing, types.ModuleType) else origin(thing).file
    if file is None:
        return getattr(thing, "__module__", None) in SCRIPTS  # typed at a prompt; built in otherwise
    return not any(Path(file).is_relative_to(folder) for folder in _library_folders())


@functools.cache
def _library_folders() -> list[str]:
    kept = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return sorted({*kept, *site.getsitepackages(), site.getusersitepackages()})
