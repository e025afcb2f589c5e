"""Components: what experiments are put together from, written as data and known by kind and name, a user's too."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
from abc import ABC
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

from iblurry.components.code_hash import Origin, hashed_name, is_own, origin
from iblurry.errors import InputError, UnknownNameError, check_fields

C = TypeVar("C", bound="Component")


@dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field,))
class Component(ABC):
    """Base of parts, optimizers, transforms and streams.

    A subclass is a keyword-only dataclass without further ado: annotated fields are hyper-parameters, held as numbers,
    strings, booleans, None or tuples of these. It is known by its name once its module is imported, so `--set` and
    experiment.json can name it. A class that is not the package's own is written `Name@hash` (see
    `iblurry.components.code_hash`): an edited one is another component, and a run of it another run.
    """

    kind: ClassVar[str]
    is_frozen: ClassVar[bool] = True
    ranges: ClassVar[dict[str, str]] = {}  # legal values of its numbers: {"gamma": "(0, 1]"}; Literals need no word
    is_missing: ClassVar[bool] = False  # True: its code is not here, so it can be read and compared but not run
    _known: ClassVar[dict[str, dict[str, type[Component]]]] = {}

    def __init_subclass__(cls, *, is_known: bool = True) -> None:
        super().__init_subclass__()
        dataclass(kw_only=True, eq=True, frozen=cls.is_frozen, unsafe_hash=not cls.is_frozen)(
            cls
        )  # hashable either way
        if is_known and not inspect.isabstract(cls) and hasattr(cls, "kind") and "kind" not in vars(cls):
            register(Component._known.setdefault(cls.kind, {}), cls.kind, cls)

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            if field.init and isinstance(value := getattr(self, field.name), list):
                object.__setattr__(self, field.name, _as_tuples(value))  # equal and hashable after JSON
        ranges = [vars(cls).get("ranges", {}) for cls in reversed(type(self).__mro__)]
        check_fields(self, {name: interval for declared in ranges for name, interval in declared.items()})

    def to_json(self) -> dict[str, dict[str, object]]:
        """{name: {field: value}}, with the code's hash in the name of a user's class."""
        return {self.written: hyperparameters(self)}

    def identity_json(self) -> dict[str, dict[str, object]]:
        """What of its JSON tells runs apart: all of it, unless a field only says where something lies."""
        return self.to_json()

    @property
    def written(self) -> str:
        """The component's name in JSON: that of the class, with the code's hash where it is a user's."""
        return hashed_name(type(self))

    def refuse(self) -> None:
        """Raises InputError if the code is not here: it was read from a run and stands for what ran there."""

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """The component of this kind that `to_json` described.

        Parameters
        ----------
        data : dict
            {name: {field: value}}; a name with a hash that no class here has becomes a placeholder, which can be read
            and compared but not run.
        """
        if not (isinstance(data, dict) and len(data) == 1 and isinstance(next(iter(data.values())), dict)):
            raise InputError(f"{data!r} is not a valid {cls.kind}; write {{name: {{field: value}}}}.")
        ((written, values),) = data.items()
        name, _, code = written.partition("@")
        if code and (name not in (known := cls.known()) or hashed_name(known[name]) != written):
            missing: type[Self] = _placeholder(cls, written, tuple(values))
            return missing(**values)
        made = cls.named(name)
        allowed = [f.name for f in fields(made) if f.init]  # type: ignore[arg-type]
        for field in values:
            if field not in allowed:
                raise UnknownNameError(f"field of {name}", field, allowed)
        try:
            return made(**values)
        except TypeError as error:
            raise InputError(f"The {cls.kind} {name} cannot be made from {values}: {error}.") from error

    @classmethod
    def named(cls, name: str) -> type[Self]:
        """The class of this kind with this name."""
        known = cls.known()
        if name not in known:
            raise UnknownNameError(cls.kind, name, known)
        return known[name]

    @classmethod
    def known(cls) -> dict[str, type[Self]]:
        """Every class of this kind by its name, a user's among them."""
        return dict(sorted(Component._known.get(cls.kind, {}).items()))  # type: ignore[arg-type]


def hyperparameters(component: Component) -> dict[str, object]:
    """Name and value of each field a user may set."""
    return {f.name: getattr(component, f.name) for f in fields(component) if f.init}  # type: ignore[arg-type]


def register(known: dict[str, Any], kind: str, thing: Any) -> None:
    """Makes a class or function known by its name; one that is executed again (a notebook's cell) replaces itself.

    Parameters
    ----------
    known : dict
        What is known by name; InputError if something of another origin has the name.
    kind : str
        What the error calls it.
    thing : class or function
        Anything written in Python.
    """
    name = thing.__name__
    other = known.get(name)
    if other is not None and not _is_same(origin(other), origin(thing)):
        whose = "the package's own" if is_own(other) else f"that of {origin(other).file or origin(other).module}"
        raise InputError(
            f"Another {kind} is called {name!r} already, {whose}; give the one in "
            f"{origin(thing).file or origin(thing).module} another name."
        )
    known[name] = thing


def _is_same(a: Origin, b: Origin) -> bool:
    return a.name == b.name and (a.module == b.module or (a.file is not None and a.file == b.file))


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(item) for item in value) if isinstance(value, list | tuple) else value


@functools.cache
def _placeholder(kind: type[C], written: str, names: tuple[str, ...]) -> type[C]:
    """A class for components whose code is not here: they can be read, shown and compared, but not run."""
    name = written.partition("@")[0]

    def refuse(self: Component, *args: Any, **keywords: Any) -> Any:
        raise InputError(
            f"The {kind.kind} {name!r} was run with code that is not here, {written}. Import that version "
            "(--import FILE.py; experiment.json says where it was), or run the experiment again with the code you have."
        )

    def body(namespace: dict[str, Any]) -> None:
        namespace |= dict.fromkeys(kind.__abstractmethods__, refuse)
        namespace |= {"__annotations__": dict.fromkeys(names, Any), "__module__": kind.__module__}
        namespace |= {"is_missing": True, "refuse": refuse, "written": written}

    return types.new_class(name, (kind,), {"is_known": False}, body)
