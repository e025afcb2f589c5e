"""torch, imported when a name of it is first used: an experiment is read, compared and named without it.

Modules that describe an experiment (parts, methods, optimizers as data) take torch from here; all others import it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeGuard, TypeVar

__all__ = ["F", "Tensor", "is_module", "nn", "no_grad", "torch"]

P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F
else:

    class _Lazy(ModuleType):
        """A module that gets the names of the real one, and is a plain module, once the first of them is used."""

        def __getattr__(self, name: str) -> Any:
            vars(self).update(vars(import_module(self.__name__)))
            self.__class__ = ModuleType
            return getattr(self, name)

    class _TensorType(type):
        def __instancecheck__(cls, value: object) -> bool:
            return "torch" in sys.modules and isinstance(value, torch.Tensor)

    class Tensor(metaclass=_TensorType):
        """Stands for torch.Tensor in annotations and isinstance."""

    torch, nn, F = (sys.modules.get(name) or _Lazy(name) for name in ("torch", "torch.nn", "torch.nn.functional"))


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
