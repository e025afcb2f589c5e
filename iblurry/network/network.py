"""A body and a head of fixed rows, opened one by one as classes arrive."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from iblurry.components.code_hash import is_own
from iblurry.compute import ComputeMeter
from iblurry.errors import InputError, UnknownLabelError
from iblurry.network import FLOOR
from iblurry.network.bodies import BatchNorm
from iblurry.network.freeze import find_frozen
from iblurry.network.fused import FoldedBody, OwnConvolutions
from iblurry.network.table_mlp import TableMLP
from iblurry.network.weight_stream import LinearFunction
from iblurry.network.weights import redraw
from iblurry.rng import Rng

FEW = 2**15  # values: of 10 images of 3x32x32, folding costs a CPU as much as it saves


class Network(nn.Module):
    """Body, linear head, and a mask of the rows in use.

    All rows exist from the start and a class takes the next closed one in place, so parameters keep their addresses and
    optimisers and captured graphs never notice. Closed rows answer FLOOR: their gradient is exactly zero, and the cross
    entropy over all rows is the one over the open rows.

    Parameters
    ----------
    body : nn.Module
        Maps (B, C, H, W) to (B, features).
    rows : int
        Rows of the head.
    features : int, optional
        Default: `body.features`.
    """

    open: Tensor

    def __init__(self, body: nn.Module, rows: int, *, features: int | None = None) -> None:
        super().__init__()
        features = body.features if features is None else features  # type: ignore[assignment]
        assert isinstance(features, int), "a body says how many features it returns"
        self.body = body
        self.is_own = is_own(type(body))  # a body of the package's, which has faster ways of its own
        self.head = nn.Linear(features, rows)
        nn.init.zeros_(self.head.weight)  # a row is drawn when it opens
        nn.init.zeros_(self.head.bias)
        self.register_buffer("open", torch.zeros(rows, dtype=torch.bool))  # (rows,)
        self._mode_layers = [m for m in body.modules() if isinstance(m, _NormBase | _DropoutNd)]  # of an own body
        self._frozen: list[nn.Module] = []  # these stay in eval mode
        self.draws = False  # whether a training pass of the body draws random numbers
        self.norms_need_two = False  # whether its batch norm cannot train on one image: where its maps are 1x1
        self.keeps_weights = False  # whether the body starts with the weights it was made with, at every refit
        self.initial: dict[str, Any] | None = None  # the body's state at the start, where refits need it
        if not self.is_own:
            body.train()
        self.meter = ComputeMeter()  # counts every image that passes; shared with the networks made by `twin`
        # labels[row], in order of exposure, None where a class was deleted; not part of the state_dict
        self.labels: list[Any] = []
        self.precision: torch.dtype | None = None  # of convolutions and products, where it is not float32
        self.layout = torch.contiguous_format  # of images and convolutions in memory
        self.compiled: dict[int, Callable[[Tensor], Tensor]] = {}  # the body compiled for training batches of this size
        self.fuse: Callable[..., Any] | None = None  # makes fewer kernels of a function, where the engine can
        self.convolutions: OwnConvolutions | None = None  # those that train in ways of our own
        self.folded: FoldedBody | None = None  # made when first asked, where answers are faster by it
        self.is_held = False  # no weight has changed since `hold`

    @property
    def has_kernels(self) -> bool:
        """Whether its convolutions train by kernels of our own, which there are for a kind of GPU."""
        return self.convolutions is not None and self.open.is_cuda

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) float -> (B, rows) logits."""
        return self.forward_both(images)[1]

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

    def inputs(self, images: Tensor) -> Tensor:
        """What the first layer of the body is given, (B, n): the numbers of the images, or of the rows of a table."""
        return self.body.standardised(images) if isinstance(self.body, TableMLP) else images.flatten(1)

    def float_both(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Features and logits in eval mode and float32, by operations that can be traced; nothing is counted."""
        self.eval()
        with nullcontext() if self.convolutions is None else self.convolutions.left_out():
            features: Tensor = self.body(images)
            logits: Tensor = self.head(features)
        return features, logits.masked_fill(~self.open, FLOOR)

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
        """What maps pixels (uint8) to features and logits in eval mode, for as long as no weight changes.

        Parameters
        ----------
        normalise : callable
            From pixels to the images that the body expects.
        images : Tensor
            All that will be asked, of which parts may be given; for few, a CPU does not fold batch norm.
        """
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
            self.folded = FoldedBody(self.body, self.precision or torch.float32, fuse=self.fuse)
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
        """By the head, whose gradients are computed beside a backward pass where the body's are."""
        stream = None if self.convolutions is None else self.convolutions.weight_stream
        logits: Tensor
        if stream is not None and self.head.weight.requires_grad and torch.is_grad_enabled():
            logits = LinearFunction.apply(features, self.head.weight, self.head.bias, stream)  # type: ignore[no-untyped-call]
        else:
            logits = self.head(features)
        return logits

    def counted(self, logits: Tensor) -> Tensor:
        """Logits with closed rows at FLOOR; their images are counted, and once more when a gradient comes back."""
        images, meter = len(logits), self.meter
        meter.add(images)
        logits = logits.masked_fill(~self.open, FLOOR)  # torch.where would make a tensor of the scalar at every call
        purpose = meter.purpose
        if meter.has_backward:
            meter.add(images, backward_of=purpose)
        elif logits.requires_grad:
            logits.register_hook(lambda _: meter.add(images, backward_of=purpose))
        return logits

    def train(self, mode: bool = True) -> Self:
        """Of an own body, tells only the layers that behave differently: walking over all costs as much as a layer."""
        if mode != self.training:
            if self.is_own:
                for layer in self._mode_layers:
                    layer.training = mode
            else:
                self.body.train(mode)
                for frozen in self._frozen:
                    frozen.eval()
            self.training = mode
        return self

    def freeze(self, names: str) -> None:
        """These parts of the body are not trained any more.

        Parameters
        ----------
        names : str
            "none", "body", or names of its submodules and parameters, separated by commas.
        """
        modules, parameters = find_frozen(self.body, names)
        for parameter in parameters:
            parameter.requires_grad_(False)
        self._frozen += modules
        still = {id(inner) for module in modules for inner in module.eval().modules()}
        self._mode_layers = [layer for layer in self._mode_layers if id(layer) not in still]

    def train_head(self, trained: bool) -> Self:
        """Whether the head learns."""
        self.head.requires_grad_(trained)
        return self

    def keep_initial(self) -> None:
        """Remembers the body's weights, if refits are to start from them again."""
        if self.keeps_weights:
            self.initial = copy.deepcopy(self.body.state_dict())

    def load_initial(self, initial: dict[str, Tensor] | None) -> None:
        """Refits start from these weights of the body, if any."""
        if initial is not None and self.initial is not None:
            for name, value in self.initial.items():
                value.copy_(initial[name])

    def restart_body(self, rng: Rng) -> None:
        """The body starts again, in place: with the weights it was made with, or drawn afresh."""
        assert self.initial is not None or not self.keeps_weights, "keep_initial comes before the first update"
        if self.initial is None:
            redraw(self.body, rng)
        else:
            self.body.load_state_dict(self.initial)

    def row_of(self, label: str | int) -> int | None:
        """The head row of a label, or None when it was never exposed."""
        try:
            return self.labels.index(label)
        except ValueError:
            return None

    @torch.no_grad()
    def expose(self, label: str | int, weight: Tensor, bias: Tensor) -> int:
        """Open the next row for a new label and return it: the first that was closed again, or else a new one.

        `weight` is (features,) for the new row alone, or (rows, features) to redraw all; `bias` is (1,) or (rows,).
        """
        row = self.next_row
        if label in self.labels:
            raise InputError(
                f"The label {label!r} already has row {self.row_of(label)}; ask row_of before exposing it."
            )
        if row == self.rows:
            raise UnknownLabelError(
                f"The label {label!r} needs a new row, but all {self.rows} rows of the head are taken; "
                f"build the network with `classes` of at least {self.rows + 1}."
            )
        whole = slice(None)
        self.head.weight[row if weight.dim() == 1 else whole].copy_(weight)
        self.head.bias[slice(row, row + 1) if len(bias) == 1 else whole].copy_(bias)
        self.open[row] = True
        self.labels[row : row + 1] = [label]
        return row

    @torch.no_grad()
    def close_row(self, row: int) -> None:
        """Closes one row, which never answers again unless another class takes it."""
        self.head.weight[row] = 0
        self.head.bias[row] = 0
        self.open[row] = False
        self.labels[row] = None

    def twin(self) -> Network:
        """A network like this one with weights of its own and nothing compiled yet; the meter is shared."""
        prepared = self.compiled, self.fuse, self.folded, self.meter, self.initial
        self.compiled, self.fuse, self.folded, self.meter, self.initial = {}, None, None, ComputeMeter(), None
        twin = copy.deepcopy(self)
        self.compiled, self.fuse, self.folded, self.meter, self.initial = prepared
        twin.fuse, twin.meter, twin.initial = self.fuse, self.meter, self.initial
        return twin

    @torch.no_grad()
    def copy_(self, network: Network) -> None:
        """Takes the weights that are trained and the buffers of a network like this one, in place."""
        each: Any = torch  # its _foreach functions are one kernel for many tensors of one type
        own, given = ([*one.trainable().values(), *one.buffers()] for one in (self, network))
        for dtype in dict.fromkeys(values.dtype for values in own):
            chosen = [values.dtype is dtype for values in own]
            each._foreach_copy_([*itertools.compress(own, chosen)], [*itertools.compress(given, chosen)])

    @torch.no_grad()
    def close(self) -> None:
        """Closes every row again, in place: no class was met."""
        self.head.weight.zero_()
        self.head.bias.zero_()
        self.open.fill_(False)
        self.labels.clear()

    def constant(self) -> AbstractContextManager[None]:
        """For passes inside, between which weights do not change: what is made of them is made once."""
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
        """For one training pass inside, at the same time as another: batch norm's running statistics stay as they are.

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
        """For a backward pass inside, before which no weight has a gradient; see `OwnConvolutions`."""
        own = self.convolutions
        return nullcontext() if own is None else own.parallel_backward()

    @property
    def rows(self) -> int:
        """How many classes the head could hold."""
        return self.head.out_features

    @property
    def features(self) -> int:
        """How many numbers the body hands to the head."""
        return self.head.in_features

    @property
    def known(self) -> int:
        """How many rows were ever opened: the classes met, with those that were deleted since."""
        return len(self.labels)

    @property
    def open_rows(self) -> int:
        """How many classes there are."""
        return self.known - self.labels.count(None)

    @property
    def next_row(self) -> int:
        """The row that the next new class takes."""
        return self.labels.index(None) if None in self.labels else self.known

    def head_parameters(self) -> list[nn.Parameter]:
        """Weight and bias of the head."""
        return [parameter for parameter in self.head.parameters() if parameter.requires_grad]

    def body_parameters(self) -> list[nn.Parameter]:
        """What of the body is trained."""
        return [parameter for parameter in self.body.parameters() if parameter.requires_grad]

    def trainable(self) -> dict[str, nn.Parameter]:
        """Every parameter that is trained, by its name here: the body's and the head's."""
        return {name: parameter for name, parameter in self.named_parameters() if parameter.requires_grad}
