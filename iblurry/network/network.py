"""A body and a head of fixed rows, opened one by one as classes arrive."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from iblurry.components.code_hash import is_own
from iblurry.compute import ComputeMeter
from iblurry.errors import InputError, UnknownLabelError
from iblurry.network import FLOOR
from iblurry.network.registry import find_frozen
from iblurry.network.table_mlp import TableMLP
from iblurry.network.weights import redraw
from iblurry.rng import Rng


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

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) float -> (B, rows) logits."""
        return self.forward_both(images)[1]

    def forward_both(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, H, W) float -> features (B, features) and logits (B, rows)."""
        features: Tensor = self.body(images)
        return features, self.counted(self.head(features))

    def float_both(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Features and logits in eval mode and float32, by operations that can be traced; nothing is counted."""
        features: Tensor = self.eval().body(images)
        logits: Tensor = self.head(features)
        return features, logits.masked_fill(~self.open, FLOOR)

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
            All that will be asked, of which parts may be given.
        """
        self.eval()
        return lambda pixels: self.forward_both(normalise(pixels))

    def inputs(self, images: Tensor) -> Tensor:
        """What the first layer of the body is given, (B, n): the numbers of the images, or of the rows of a table."""
        return self.body.standardised(images) if isinstance(self.body, TableMLP) else images.flatten(1)

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
        """Sets the mode, of an own body only of the layers that behave differently: walking over all costs as much
        as a layer.
        """
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

    def twin(self) -> Self:
        """A network like this one with weights of its own; the meter is shared."""
        shared = self.meter, self.initial
        self.meter, self.initial = ComputeMeter(), None
        try:
            twin = copy.deepcopy(self)
        finally:
            self.meter, self.initial = shared
        twin.meter, twin.initial = shared
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
