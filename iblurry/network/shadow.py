"""A shadow network: a second set of weights that follows the learner's, as a teacher or for averaged answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from iblurry.components.lazy_torch import Tensor, nn, no_grad, torch

if TYPE_CHECKING:
    from iblurry.network.network import Network


class ShadowNetwork:
    """A copy of a network's weights, batch-norm statistics and open head rows, changed only by the methods below.

    Everything happens in place on tensors, so it may be part of a captured step.

    Parameters
    ----------
    network : Network
        The network that is followed; the shadow starts as a copy of it.
    opens_rows : bool
        Whether a new class opens its head row here too, with the network's fresh weights; a teacher that must not know
        new classes says no.
    """

    def __init__(self, network: Network, *, opens_rows: bool = True) -> None:
        self.followed, self.opens_rows = network, opens_rows
        self.network = network.twin().eval().requires_grad_(False)
        values = network.state_dict()
        self._pairs = [(shadow, values[name]) for name, shadow in self.network.state_dict().items()]

    @no_grad
    def copy_(self) -> None:
        """Becomes what the network is now."""
        for shadow, value in self._pairs:
            shadow.copy_(value)

    @no_grad
    def lerp_(self, weight: float | Tensor) -> None:
        """Moves towards the network: `shadow += weight * (network - shadow)`, batch norm's statistics included.

        1 - weight is the decay of an exponential moving average.
        """
        for shadow, value in self._pairs:
            if shadow.is_floating_point():
                shadow.lerp_(value, weight)

    @no_grad
    def on_rows_changed(self) -> None:
        """The network has opened or closed a head row."""
        if self.opens_rows:
            new = self.followed.open & ~self.network.open
            self.network.head.weight.copy_(
                torch.where(new[:, None], self.followed.head.weight, self.network.head.weight)
            )
            self.network.head.bias.copy_(torch.where(new, self.followed.head.bias, self.network.head.bias))
            self.network.open.copy_(self.followed.open)
        else:
            self.network.open &= self.followed.open

    def logits(self, images: Tensor, *, batch_statistics: bool = False) -> Tensor:
        """Answers to augmented training images (float); see `forward_both`."""
        return self.forward_both(images, batch_statistics=batch_statistics)[1]

    @no_grad
    def forward_both(self, images: Tensor, *, batch_statistics: bool = False) -> tuple[Tensor, Tensor]:
        """Features and logits of augmented training images (float), counted as distillation.

        Parameters
        ----------
        images : Tensor
            (B, C, H, W).
        batch_statistics : bool
            Whether batch norm normalises by the batch, as in train mode; its running statistics stay as they are.
        """
        possible = len(images) > 1 or not self.network.norms_need_two
        with self.network.meter.counting("distillation"):
            if batch_statistics and possible:
                with self._batch_statistics():
                    return self.network.forward_both(images)
            return self.network.answering(lambda images: images, images)(images)

    @contextmanager
    def _batch_statistics(self) -> Iterator[None]:
        norms = [layer for layer in self.network.body.modules() if isinstance(layer, nn.modules.batchnorm._NormBase)]
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.training, norm.momentum = True, 0.0
        self.network.training = self.network.is_own  # whose body may be compiled for training; it has no dropout
        try:
            yield
        finally:
            self.network.training = False
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.training, norm.momentum = False, momentum

    def on_update(self) -> None:
        """The network has taken an update; a part decides what that means here."""

    def reset(self) -> None:
        """Starts again as a copy of the network."""
        self.copy_()

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self.network.state_dict())

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for name, value in self.network.state_dict().items():
            value.copy_(state[name])


class AveragedNetwork(ShadowNetwork):
    """An exponential moving average of the weights and of batch norm's statistics, moved by each update.

    A head row starts with the network's fresh weights when its class is met.

    Parameters
    ----------
    network : Network
        The network that is followed.
    decay : float
        What is kept of the average at each update, in [0, 1).
    fuse : callable
        Makes fewer kernels of a function, where the engine can.
    warm_up : bool
        Whether the decay starts lower: min(decay, (1 + n) / (10 + n)) at the n-th update, of a head row at the n-th
        since it opened.
    """

    def __init__(
        self, network: Network, *, decay: float, warm_up: bool, fuse: Callable[[Callable[[], None]], Callable[[], None]]
    ) -> None:
        super().__init__(network)
        self.decay, self.warm_up = decay, warm_up
        self.updates = torch.zeros((), device=network.open.device)  # n
        self.row_updates = torch.zeros(network.rows, device=network.open.device)  # n of each head row, (rows,)
        followed = network.state_dict()
        own = {name: value for name, value in self.network.state_dict().items() if not name.startswith("head.")}
        averaged = [name for name, value in own.items() if value.is_floating_point()]
        self._averages, self._values = [own[name] for name in averaged], [followed[name] for name in averaged]
        self._fused = fuse(self._move)

    @no_grad
    def on_update(self) -> None:
        self.updates += 1
        self.row_updates += self.network.open
        self._fused()

    def _move(self) -> None:
        each: Any = torch  # its _foreach functions are one kernel for many tensors
        head, followed = self.network.head, self.followed.head
        if self.warm_up:
            if self._values:  # of stored features only the head has weights
                differences = each._foreach_sub(self._values, self._averages)
                each._foreach_mul_(differences, self._weight(self.updates))
                each._foreach_add_(self._averages, differences)
            rows = self._weight(self.row_updates)
            head.weight.lerp_(followed.weight, rows[:, None])
            head.bias.lerp_(followed.bias, rows)
        else:
            values = [*self._values, followed.weight, followed.bias]
            each._foreach_lerp_([*self._averages, head.weight, head.bias], values, 1 - self.decay)

    def _weight(self, updates: Tensor) -> Tensor:
        """1 - the decay of the n-th update."""
        return torch.clamp(9 / (10 + updates), min=1 - self.decay)

    def reset(self) -> None:
        super().reset()
        self.updates.zero_()
        self.row_updates.zero_()

    def state_dict(self) -> dict[str, Tensor]:
        return super().state_dict() | {"updates": self.updates, "row updates": self.row_updates}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        super().load_state_dict(state)
        self.updates.copy_(state["updates"])
        self.row_updates.copy_(state["row updates"])
