"""A recipe: a named function that puts a method together, with what the paper tunes per data set as its arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypedDict, Unpack

from iblurry.components.component import register
from iblurry.components.edit import read_slot
from iblurry.engine.optimizer import Optimizer
from iblurry.errors import InputError, UnknownNameError
from iblurry.methods.method import Head, Method, Pace, Training
from iblurry.parts import Admission, GradientRule, Readout, Rehearsal, Schedule, Term


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """What the paper chooses per data set; the defaults are CIFAR-10's.

    Parameters
    ----------
    batch : int
        Images in a training batch.
    updates_per_sample : Fraction, int, float or str
        Optimizer steps for each sample of the stream, counted exactly: 3, 0.25 or "1/16".
    gamma : float
        Decay of the exponential schedule for each update.
    measure_every : int
        Updates between two measures of the memory's loss; 10 on ImageNet.
    epochs : int
        Of a refit: one warm, then cosine cycles of 1, 2, 4, ..., 128; 100 on ImageNet.
    milestones : tuple of int
        Epochs at which RM's learning rate falls, instead of cosine cycles; on ImageNet only.
    """

    batch: int = 16
    updates_per_sample: Fraction | int | float | str = 1
    gamma: float = 0.9999
    measure_every: int = 1
    epochs: int = 256
    milestones: tuple[int, ...] = ()


class Slots(TypedDict, total=False):
    """What may be put in place of a recipe's own choice."""

    name: str
    pace: Pace
    admission: Admission | str
    rehearsal: Rehearsal | str
    terms: tuple[Term, ...] | str
    gradient: tuple[GradientRule, ...] | str
    schedule: Schedule | str
    readout: Readout | str
    head: Head
    optimizer: Optimizer | str
    refit: Training | None


@dataclass(frozen=True)
class Recipe:
    """`clib()` is the method, `clib(Hyperparameters(batch=32))` tuned, `clib(admission=Balanced())` an ablation.

    Parts are also known by their names, as on the command line: `clib(admission="Balanced")`,
    `er(schedule="Exponential:gamma=0.99")`, `clib(terms="CrossEntropy,Distil")`.

    Parameters
    ----------
    name : str
        The method's name.
    idea : str
        One sentence.
    paper : str
        The citation.
    build : callable
        From hyper-parameters to the method.
    as_released : callable
        What the released program does differently besides the variants of the parts themselves.
    """

    name: str
    idea: str
    paper: str
    build: Callable[[Hyperparameters], Method]
    as_released: Callable[[Method], Method]

    def __call__(self, hyperparameters: Hyperparameters | None = None, /, **slots: Unpack[Slots]) -> Method:
        for slot in slots:
            if slot not in Slots.__annotations__:
                raise UnknownNameError(f"slot of {self.name}", slot, Slots.__annotations__)
        method = self.build(hyperparameters or Hyperparameters())
        parts: Any = {slot: read_slot(method, slot, value) for slot, value in slots.items()}
        return dataclasses.replace(method, **parts)


METHODS: dict[str, Recipe] = {}


def recipe(
    *, paper: str, as_released: Callable[[Method], Method] = lambda method: method
) -> Callable[[Callable[[Hyperparameters], Method]], Recipe]:
    """Decorator that makes a recipe of a function and lists it; its docstring is the idea in one sentence.

    A name that is taken is refused; a function that is defined again replaces itself.

    Parameters
    ----------
    paper : str
        The citation.
    as_released : callable
        What the released program does differently besides the variants of the parts themselves.
    """

    def listed(build: Callable[[Hyperparameters], Method]) -> Recipe:
        register({one.build.__name__: one.build for one in METHODS.values()}, "method", build)
        name = build.__name__.replace("_", "-")
        METHODS[name] = Recipe(name, (build.__doc__ or "").strip().splitlines()[0], paper, build, as_released)
        return METHODS[name]

    return listed


def methods() -> dict[str, str]:
    """Every method's name, and what it does in a sentence; a user's, too.

    >>> methods()["er"]
    'Each batch is half new samples, half samples drawn from a reservoir of the stream.'
    """
    return {name: one.idea for name, one in METHODS.items()}


def method(name: str | Method, hyperparameters: Hyperparameters | None = None) -> Method:
    """The method of this name; a Method stays as it is.

    Parameters
    ----------
    name : str or Method
        One of METHODS; `-released` after any gives it as the authors' released program runs it.
    hyperparameters : Hyperparameters, optional
        What the paper chooses per data set; default: CIFAR-10's.

    >>> method("clib-released").schedule.test
    'welch'
    """
    if isinstance(name, Method):
        return name
    if not isinstance(name, str):
        raise InputError(
            f"method={name!r:.80} is not a Method; give one, such as iblurry.METHODS['er'](), or its name."
        )
    plain = name.removesuffix("-released")
    if plain not in METHODS:
        raise UnknownNameError("method", name, METHODS)
    made = METHODS[plain](hyperparameters)
    return released(made) if plain != name else made


def released(method: Method) -> Method:
    """The method as the authors' released program runs it.

    Parameters
    ----------
    method : Method
        By its name, what its recipe knows of the released program is applied too.

    >>> released(Method()).head.redraw
    'bias'
    """
    made = method.released()
    return METHODS[method.name].as_released(made) if method.name in METHODS else made
