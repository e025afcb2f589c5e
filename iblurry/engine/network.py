"""A network as an engine runs it: precision and layout, bodies compiled for a batch size, convolutions of our own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from iblurry.engine.convolutions import LinearFunction, OwnConvolutions
from iblurry.engine.folding import FoldedBody
from iblurry.network.bodies import BatchNorm
from iblurry.network.network import Network

FEW = 2**15  # values: of 10 images of 3x32x32, folding costs a CPU as much as it saves


class OptimizedNetwork(Network):
    """A network with other ways to the same passes, up to rounding; `Eager.setup` and `Graph.setup` choose them.

    Parameters
    ----------
    network : Network
        Whose body, head and mask it takes over; it must not be used any more.
    """

    def __init__(self, network: Network) -> None:
        super(Network, self).__init__()
        vars(self).update(vars(network))
        self.precision: torch.dtype | None = None  # of convolutions and products, where it is not float32
        self.layout = torch.contiguous_format  # of images and convolutions in memory
        self.compiled: dict[int, Callable[[Tensor], Tensor]] = {}  # the body compiled for training batches of this size
        self.fuse: Callable[..., Any] | None = None  # makes fewer kernels of a function, where the engine can
        self.convolutions: OwnConvolutions | None = None  # those that train in ways of our own
        self.folded: FoldedBody | None = None  # made when first asked, where answers are faster by it
        self.answers_often = False  # after each update, so that compiling what is folded is worth while
        self.is_held = False  # no weight has changed since `hold`

    @property
    def has_kernels(self) -> bool:
        """Whether its convolutions train by kernels of our own, which there are for a kind of GPU."""
        return self.convolutions is not None and self.open.is_cuda

    def forward_both(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, H, W) float -> features (B, features), in the body's precision, and logits (B, rows)."""
        if self.norms_need_two and self.training and len(images) == 1:
            return self._forward_one(images)
        if self.precision is None and not self.compiled:  # the way of the CPU, where every call counts
            features: Tensor = self.body(images.contiguous(memory_format=self.layout))
            return features, self.counted(self.head(features))
        compiled = self.compiled.get(len(images)) if self.training else None
        is_rare = self.training and compiled is None and bool(self.compiled)  # not worth compiling kernels for its size
        own = self.convolutions
        with nullcontext() if own is None else own.left_out() if is_rare else own.rounded():
            return self._precisely(self.body if compiled is None else compiled, images)

    def float_both(self, images: Tensor) -> tuple[Tensor, Tensor]:
        with nullcontext() if self.convolutions is None else self.convolutions.left_out():
            return super().float_both(images)

    def _forward_one(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """One training image, for which batch norm uses its running statistics."""
        norms = [layer for layer in self.body.modules() if isinstance(layer, _NormBase) and layer.training]
        try:
            for norm in norms:
                norm.training = False
            return self._precisely(self.body, image)
        finally:
            for norm in norms:
                norm.training = True

    @torch.no_grad()
    def answering(
        self, normalise: Callable[[Tensor], Tensor], images: Tensor
    ) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """Answers with batch norm folded; of few images a CPU does not fold it."""
        self.eval()
        is_few = not images.is_cuda and images.numel() < FEW
        if not self._can_fold or (is_few and not self.is_held):
            # Of 500 images, channels last saves a sixth on a Neoverse-N1; of a training batch it saves nothing.
            layout = self.layout if self.convolutions is None else torch.channels_last
            return lambda pixels: self.forward_both(normalise(pixels).contiguous(memory_format=layout))
        body = self._fold() if self.folded is None or not self.is_held else self.folded
        return lambda pixels: self._precisely(lambda pixels: body(normalise(pixels)), pixels)

    def hold(self) -> None:
        """No weight changes until the next call, so batch norm is folded now and not for each answer."""
        self.is_held = self._can_fold
        if self.is_held:
            self._fold()

    @property
    def _can_fold(self) -> bool:
        return self.layout is torch.channels_last and self.is_own

    @torch.no_grad()
    def _fold(self) -> FoldedBody:
        if self.folded is None:
            self.folded = FoldedBody(
                self.body, self.precision or torch.float32, fuse=self.fuse if self.answers_often else None
            )
        self.folded.refresh()
        return self.folded

    def _precisely(self, body: Callable[[Tensor], Tensor], images: Tensor) -> tuple[Tensor, Tensor]:
        if self.precision is None:
            features = body(images)
            return features, self.counted(self.head(features))
        if images.is_floating_point():
            images = images.contiguous(memory_format=self.layout)
        with torch.autocast(images.device.type, self.precision, cache_enabled=False):
            features = body(images)
            logits = self._logits(features)
        return features, self.counted(logits.float())

    def _logits(self, features: Tensor) -> Tensor:
        """Asks the head, whose gradients are computed beside a backward pass where the body's are."""
        stream = None if self.convolutions is None else self.convolutions.weight_stream
        logits: Tensor
        if stream is not None and self.head.weight.requires_grad and torch.is_grad_enabled():
            logits = LinearFunction.apply(features, self.head.weight, self.head.bias, stream)  # type: ignore[no-untyped-call]
        else:
            logits = self.head(features)
        return logits

    def twin(self) -> Self:
        """A network like this one with weights of its own and nothing compiled yet; the meter is shared."""
        prepared = self.compiled, self.fuse, self.folded
        self.compiled, self.fuse, self.folded = {}, None, None
        twin = super().twin()
        self.compiled, self.fuse, self.folded = prepared
        twin.fuse = self.fuse
        return twin

    def constant(self) -> AbstractContextManager[None]:
        """Weights do not change between passes inside, so what is made of them is made once."""
        own = self.convolutions if self.has_kernels else None
        return nullcontext() if own is None else own.rounded()

    @property
    def passes_can_overlap(self) -> bool:
        """Whether training passes change nothing but statistics that `apart_statistics` keeps apart.

        Not of a body that a compiler has traced: it would be traced again for other statistics.
        """
        is_plain = self.is_own and all(isinstance(layer, BatchNorm) for layer in self._mode_layers)
        is_traced = self.fuse is not None and (self.convolutions is None or self.convolutions.finish is None)
        return is_plain and not is_traced and not self.norms_need_two

    @contextmanager
    def apart_statistics(self) -> Iterator[Callable[[], None]]:
        """A training pass inside, at the same time as another, leaves batch norm's running statistics as they are.

        Calling what this yields moves them afterwards, as the pass would have. Where passes cannot overlap, the pass
        moves them.
        """
        norms = [layer for layer in self._mode_layers if isinstance(layer, BatchNorm) and layer.training]
        norms = norms if self.passes_can_overlap else []
        kept = [values for norm in norms for values in (norm.running_mean, norm.running_var) if values is not None]
        sizes = [len(values) for values in kept]
        found = kept[0].new_zeros(sum(sizes)).split(sizes) if kept else ()
        momentum = norms[0].momentum if norms else None

        def put(values: Sequence[Tensor], momentum: float | None) -> None:
            for norm, mean, var in zip(norms, values[::2], values[1::2], strict=True):
                norm.running_mean, norm.running_var, norm.momentum = mean, var, momentum

        def merge() -> None:
            each: Any = torch
            if kept:
                each._foreach_lerp_(kept, found, momentum)

        put(found, 1.0)  # what the pass finds
        try:
            yield merge
        finally:
            put(kept, momentum)

    def parallel_backward(self) -> AbstractContextManager[None]:
        """A backward pass inside, before which no weight has a gradient, may use a second stream; see
        `OwnConvolutions`.
        """
        own = self.convolutions
        return nullcontext() if own is None else own.parallel_backward()
