"""torch, imported when a name of it is first used: an experiment is read, compared and named without it.

Modules that describe an experiment (parts, methods, optimizers as data) take torch from here; all others import it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, ParamSpec, TypeGuard, TypeVar

__all__ = ["F", "Tensor", "is_module", "nn", "no_grad", "torch"]

P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F
else:

    class _Lazy:
        def __init__(self, module: str) -> None:
            self.__name__ = module

        def __getattr__(self, name: str) -> Any:
            _replace()
            return getattr(import_module(self.__name__), name)

    class _TensorType(type):
        def __instancecheck__(cls, value: object) -> bool:
            return "torch" in sys.modules and isinstance(value, torch.Tensor)

    class Tensor(metaclass=_TensorType):
        """Stands for torch.Tensor in annotations and isinstance."""

    torch, nn, F = map(_Lazy, ("torch", "torch.nn", "torch.nn.functional"))
    _LAZY = (torch, nn, F, Tensor)

    def _replace() -> None:
        """Puts torch's own modules and Tensor in the place of these, in all modules: torch.compile needs them there."""
        if not isinstance(torch, _Lazy):
            return
        own = [import_module(one.__name__) for one in _LAZY[:3]]
        found = dict(zip(map(id, _LAZY), [*own, own[0].Tensor], strict=True))
        for module in [each for name, each in [*sys.modules.items()] if name.split(".")[0] == "iblurry"]:
            names = {name: found[id(value)] for name, value in [*vars(module).items()] if id(value) in found}
            vars(module).update(names)

    if "torch" in sys.modules:
        _replace()


def is_module(value: object) -> TypeGuard[nn.Module]:
    """Whether it is an nn.Module; where torch is not imported there is none."""
    return "torch" in sys.modules and isinstance(value, nn.Module)


def no_grad(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: the function runs under torch.no_grad()."""

    @functools.wraps(function)
    def run(*args: P.args, **keywords: P.kwargs) -> R:
        with torch.no_grad():
            return function(*args, **keywords)

    return run
