"""Optimizers as data: hyper-parameters, and the torch optimizer built from them; any of torch.optim, or one's own.

Every optimizer of torch.optim that steps without a closure is an `Optimizer` here, its fields the arguments of its
constructor. A torch optimizer of the user's own becomes one where it is given to a method, or named.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self, cast

from iblurry.components.code_hash import is_users
from iblurry.components.component import Component, hyperparameters, register
from iblurry.components.lazy_torch import Tensor, torch
from iblurry.errors import InputError, UnknownNameError

Groups = Sequence[Sequence[Tensor]]
BY_THE_PROGRAM = ("params", "lr", "foreach", "fused", "capturable", "differentiable", "maximize")  # no fields
REFUSED = {  # of torch.optim
    "LBFGS": "its step computes the loss several times",
    "SparseAdam": "it takes sparse gradients only",
    "Muon": "it takes matrices only, and a head has a bias",
}
OWN = ("Adam", "AdamW", "SGD")  # of torch.optim, with fields as in the papers


class Optimizer(Component):
    """What takes the steps: hyper-parameters as fields, and `build`, which makes the torch optimizer."""

    kind: ClassVar[str] = "optimizer"
    # Whether a step can be captured as a CUDA graph: it reads no value on the host and keeps its numbers in tensors.
    is_capturable: ClassVar[bool] = False

    def __init_subclass__(cls, **keywords: Any) -> None:
        if is_users(cls):
            _register_torchs()  # whose names are taken
        super().__init_subclass__(**keywords)

    @abstractmethod
    def build(self, groups: Groups) -> torch.optim.Optimizer:
        """The optimizer of these parameters, a param group per sequence; the schedule sets the learning rates.

        Parameters
        ----------
        groups : sequence of sequences of Tensor
            All weights, or those of the body and those of the head; a sequence may be empty.
        """

    def start(self, groups: Groups, *, tensor_lr: bool = False) -> torch.optim.Optimizer:
        """What `build` makes, checked; the learning rates are 0 until they are set, and tensors if they must be."""
        try:
            made: Any = self.build(groups)
        except (TypeError, ValueError) as error:
            raise InputError(f"The optimizer {self} cannot be made: {error}") from error
        if not isinstance(made, torch.optim.Optimizer) or len(made.param_groups) != len(groups):
            raise InputError(
                f"{type(self).__name__}.build returned a {type(made).__name__}; it must return a torch.optim.Optimizer "
                f"with one param group for each of the {len(groups)} it was given."
            )
        for group in made.param_groups:  # on a GPU a captured step reads from a tensor what was set last
            is_tensor = tensor_lr or self._is_captured(groups)
            group["lr"] = torch.zeros((), device=_device(groups)) if is_tensor else 0.0
        cast(Any, made)._warned_capturable_if_run_uncaptured = True  # the first steps are not captured yet
        return made

    def _is_captured(self, groups: Groups) -> bool:
        return self.is_capturable and _device(groups).type == "cuda"

    @classmethod
    def named(cls, name: str) -> type[Self]:
        return Component._known[cls.kind][name] if name in OWN else super().named(name)  # type: ignore[return-value]

    @classmethod
    def known(cls) -> dict[str, type[Self]]:
        _register_torchs()
        for torch_class in _users_classes(torch.optim.Optimizer):
            with contextlib.suppress(InputError):  # its name is taken, or it needs a closure; said where it is given
                register(Component._known.setdefault(cls.kind, {}), cls.kind, component_of(torch_class))
        return super().known()


class Adam(Optimizer):
    """Adam as the paper uses it; the learning rate comes from the schedule.

    Fused: one call for all tensors, and no value of a tensor is read by the host, so a step can be captured.

    Parameters
    ----------
    beta1, beta2 : float, default 0.9 and 0.999
        Decay of the mean of gradients and of squared gradients, in [0, 1).
    eps : float, default 1e-8
        Added to the denominator.
    weight_decay : float, default 0
        L2 penalty.
    """

    is_capturable: ClassVar[bool] = True
    torch_name: ClassVar[str] = "Adam"
    ranges: ClassVar = {"beta1": "[0, 1)", "beta2": "[0, 1)", "eps": "(0, inf)", "weight_decay": "[0, inf)"}

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    def build(self, groups: Groups) -> torch.optim.Optimizer:
        """One parameter group per sequence: several only where learning rates differ."""
        betas, on_gpu = (self.beta1, self.beta2), self._is_captured(groups)
        made = _fused_class(self.torch_name, groups)
        return made(param_groups(groups), 0.0, betas, self.eps, self.weight_decay, fused=True, capturable=on_gpu)


class AdamW(Adam):
    """Adam with a weight decay apart from the gradient; the learning rate comes from the schedule.

    Parameters
    ----------
    beta1, beta2 : float, default 0.9 and 0.999
        Decay of the mean of gradients and of squared gradients, in [0, 1).
    eps : float, default 1e-8
        Added to the denominator.
    weight_decay : float, default 0.01
        Share of each weight that is taken away in a step, times the learning rate.

    Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019.
    """

    torch_name: ClassVar[str] = "AdamW"

    weight_decay: float = 0.01


class SGD(Optimizer):
    """Gradient descent with Nesterov's momentum, as GDumb and RM use it; the learning rate comes from the schedule.

    Parameters
    ----------
    momentum : float, default 0.9
        In [0, 1).
    nesterov : bool, default True
        Needs a momentum above 0.
    weight_decay : float, default 1e-4
        L2 penalty.
    """

    is_capturable: ClassVar[bool] = True
    ranges: ClassVar = {"momentum": "[0, 1)", "weight_decay": "[0, inf)"}

    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and not self.momentum:
            raise InputError(f"{self}: Nesterov's momentum needs a momentum above 0, or nesterov=False.")

    def build(self, groups: Groups) -> torch.optim.Optimizer:
        made = _fused_class("SGD", groups)(
            param_groups(groups), 0.0, self.momentum, weight_decay=self.weight_decay, nesterov=self.nesterov, fused=True
        )
        for p in [p for group in groups for p in group if self.momentum]:
            # As at a first step: -0.0 + g is g. Torch fails where some weights get their first gradient later.
            made.state[p]["momentum_buffer"] = torch.full_like(p, -0.0)
        return made


class TorchOptimizer(Optimizer, is_known=False):
    """An optimizer of torch, or of a user's, as data; `component_of` makes a class of these for each."""

    torch_class: ClassVar[type[torch.optim.Optimizer]]

    def build(self, groups: Groups) -> torch.optim.Optimizer:
        arguments: dict[str, Any] = hyperparameters(self)
        needed = inspect.signature(self.torch_class).parameters
        if "lr" in needed and needed["lr"].default is inspect.Parameter.empty:
            arguments["lr"] = 1e-3  # the schedule sets it before the first step
        if self._is_captured(groups):
            arguments["capturable"] = True
        return self.torch_class(param_groups(groups), **arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (self.torch_class, hyperparameters(self))  # its class cannot be looked up by name


def as_optimizer(given: Any) -> Optimizer:
    """An optimizer as data, from what people write: `Adam()`, `Adam`, `torch.optim.NAdam` or functools.partial of it.

    Parameters
    ----------
    given : Optimizer, class or functools.partial
        InputError for anything else, such as an optimizer that has parameters already.
    """
    if isinstance(given, Optimizer):
        return given
    target, options = (given.func, given.keywords) if isinstance(given, functools.partial) else (given, {})
    if isinstance(target, type) and not getattr(given, "args", ()):
        if issubclass(target, Optimizer) and not inspect.isabstract(target):
            return _made(target, options)
        if issubclass(target, torch.optim.Optimizer) and target is not torch.optim.Optimizer:
            return _made(component_of(target), _as_fields(target, options))
    raise InputError(
        f"optimizer={given!r:.200} is not valid; give an Optimizer such as Adam(), a class such as torch.optim.NAdam, "
        "or functools.partial(torch.optim.RMSprop, alpha=0.9). Parameters and learning rate are given by the program."
    )


def component_of(torch_class: type[torch.optim.Optimizer]) -> type[Optimizer]:
    """The optimizer that stands for a class of torch's or of a user's."""
    own: dict[Any, type[Optimizer]] = {torch.optim.Adam: Adam, torch.optim.AdamW: AdamW, torch.optim.SGD: SGD}
    return own.get(torch_class) or _new_component(cast(Any, torch_class))


@functools.cache
def _new_component(torch_class: type[torch.optim.Optimizer]) -> type[Optimizer]:
    name = torch_class.__name__
    needed = list(inspect.signature(torch_class.step).parameters.values())[1:]
    closure = [each for each in needed if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]
    is_torchs = torch_class.__module__.startswith("torch.optim")
    why = (REFUSED.get(name) if is_torchs else None) or ("its step needs more than gradients" if closure else None)
    if why is not None:
        raise InputError(f"The optimizer {name} cannot be used: {why}. Use another, such as Adam() or AdamW().")
    arguments = inspect.signature(torch_class).parameters
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    fields = {n: p for n, p in list(arguments.items())[1:] if n not in BY_THE_PROGRAM and p.kind not in variable}

    def body(namespace: dict[str, Any]) -> None:
        kinds = {field: _kind(parameter) for field, parameter in fields.items()}
        namespace |= {
            field: float(p.default) if kinds[field] is float and p.default is not None else p.default
            for field, p in fields.items()
            if p.default is not p.empty
        }
        namespace |= {
            "__annotations__": kinds,
            "__doc__": f"{torch_class.__module__}.{name}, with the arguments of its constructor as fields.",
            "__module__": __name__ if is_torchs else torch_class.__module__,
            "__qualname__": name if is_torchs else f"{torch_class.__qualname__}.component",
            "torch_class": torch_class,
            "is_capturable": "capturable" in arguments,
        }

    made: Any = types.new_class(name, (TorchOptimizer,), {}, body)
    return cast(type[Optimizer], made)


def param_groups(groups: Groups) -> list[dict[str, Any]]:
    """The groups as torch's optimizers take them."""
    return [{"params": list(group)} for group in groups]


def _fused_class(name: str, groups: Groups) -> Callable[..., torch.optim.Optimizer]:
    """torch's optimizer of this name, or the program's for a CPU."""
    from iblurry.engine import cpu_optimizer

    on_cpu = _device(groups).type == "cpu"
    made: type[torch.optim.Optimizer] = getattr(cpu_optimizer, f"CPU{name}") if on_cpu else getattr(torch.optim, name)
    return made


def _device(groups: Groups) -> torch.device:
    return next(p.device for group in groups for p in group)


def _kind(parameter: inspect.Parameter) -> Any:
    """The type of a field: by the default, else by the annotation."""
    default, hint = parameter.default, parameter.annotation
    written = getattr(hint, "__name__", hint)
    if isinstance(default, tuple):
        return tuple[float, ...] if all(isinstance(item, int | float) for item in default) else Any
    if isinstance(default, bool | str):
        return type(default)
    if isinstance(default, int | float):
        return int if written == "int" else float
    return {"int": int, "float": float, "bool": bool, "str": str}.get(str(written), Any)


def _as_fields(torch_class: type[torch.optim.Optimizer], options: dict[str, Any]) -> dict[str, Any]:
    """Arguments of torch's constructor as fields of the package's own Adam, AdamW and SGD."""
    if torch_class is torch.optim.SGD:
        return {"momentum": 0.0, "nesterov": False, "weight_decay": 0.0} | options  # torch's defaults, not the paper's
    if torch_class in (torch.optim.Adam, torch.optim.AdamW) and "betas" in options:
        rest = {name: value for name, value in options.items() if name != "betas"}
        try:
            beta1, beta2 = options["betas"]
        except (TypeError, ValueError) as error:
            raise InputError(f"betas={options['betas']!r} are not two numbers.") from error
        return rest | {"beta1": beta1, "beta2": beta2}
    return options


def _made(cls: type[Optimizer], options: dict[str, Any]) -> Optimizer:
    allowed = list(cls.__dataclass_fields__)
    for name in options:
        if name in BY_THE_PROGRAM:
            raise InputError(
                f"The optimizer {cls.__name__} got {name}={options[name]!r}, which the program sets; leave it out. "
                "The learning rate is the schedule's: schedule=Constant(initial_lr=1e-3)."
            )
        if name not in allowed:
            raise UnknownNameError(f"field of {cls.__name__}", name, allowed)
    try:
        return cls(**options)
    except TypeError as error:
        raise InputError(f"The optimizer {cls.__name__} cannot be made from {options}: {error}.") from error


def _remade(torch_class: type[torch.optim.Optimizer], values: dict[str, Any]) -> Optimizer:
    return component_of(torch_class)(**values)


def _users_classes(base: type[torch.optim.Optimizer]) -> list[type[torch.optim.Optimizer]]:
    """The torch optimizers of the user's own files, the latest of each name."""
    found: dict[str, type[torch.optim.Optimizer]] = {}
    waiting = [base]
    while waiting:
        for cls in waiting.pop(0).__subclasses__():
            waiting.append(cls)
            if not cls.__module__.startswith("torch.") and is_users(cls):
                found[cls.__name__] = cls
    return list(found.values())


@functools.cache
def _register_torchs() -> None:
    for cls in vars(torch.optim).values():
        if isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer) and cls is not torch.optim.Optimizer:
            with contextlib.suppress(InputError):  # one that is refused
                component_of(cls)
