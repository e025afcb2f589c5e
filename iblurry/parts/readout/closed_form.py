"""ClosedForm: readouts that learn each sample by adding to sums, and are solved from the sums when asked."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, Literal

from iblurry.components.lazy_torch import Tensor, no_grad, torch
from iblurry.compute import Cost, Passes, Workload
from iblurry.network import FLOOR
from iblurry.parts.memory import Sample
from iblurry.parts.part import scratch, state
from iblurry.parts.readout.readout import Readout

BLOCK = 64  # samples whose products are added at once: one by one, writing the matrix takes seven times as long
UNMET = -1e30  # bias of a class without a sample


class ClosedForm(Readout):
    """Linear in fixed features x of every sample seen, h(x) W^T + b, with W and b solved from sums over the samples.

    Needs no gradient, no memory and no task ends. Sums are float64, so the order of the samples changes answers by no
    more than rounding.

    Parameters
    ----------
    of : {"features", "pixels"}
        What x is: features of the body, which must not be trained, or the normalised pixels without any network.
    expand : {"none", "relu", "fourier"}
        h: x itself; relu(x R) with R ~ N(0, 1); or sqrt(2 / width) cos(x R + u) with R ~ N(0, 2 gamma / d) and u
        uniform in [0, 2 pi), d the size of x: inner products of these approximate exp(-gamma |x - x'|^2 / d).
    width : int
        Random features, where there are any; the seed of the run draws them. Papers have 10,000 and more: sums of
        products are width^2 float64, and each moment asked solves for them.
    gamma : float
        Of "fourier"; 1 suits pixels normalised to a variance of 1.
    mirror : bool
        Whether each sample is learnt twice, upright and mirrored; once where features are stored (freeze="body").
    """

    ranges: ClassVar[dict[str, str]] = {"width": "[1, inf)", "gamma": "(0, inf)"}
    learns: ClassVar[bool] = True
    reads_network: ClassVar[bool] = False  # whose body stays as it was made

    of: Literal["features", "pixels"] = "features"
    expand: Literal["none", "relu", "fourier"] = "none"
    width: int = 1000
    gamma: float = 1.0
    mirror: bool = False

    counts: Tensor = state(lambda part: part.zeros(part.context.network.rows))  # samples of each class
    sums: Tensor = state(lambda part: part.zeros(part.context.network.rows, part.size))  # of their features
    drawn: tuple[Tensor, Tensor] = scratch(lambda part: part.draw())  # R (d, width) and u (width,)
    weights: Tensor = scratch(lambda part: torch.zeros_like(part.sums))  # W
    bias: Tensor = scratch(lambda part: torch.zeros_like(part.counts))  # b

    @property
    def needs_fixed_body(self) -> bool:
        return self.of == "features"

    def cost(self, workload: Workload) -> Cost:
        return Cost(sample=Passes(forward=1 + self.mirror)) if self.of == "features" else Cost()

    @property
    def inputs(self) -> int:
        """Size of x."""
        context = self.context
        return context.network.features if self.of == "features" else context.pixels(context.memory.images[:1]).shape[1]

    @property
    def size(self) -> int:
        """Size of h(x)."""
        return self.inputs if self.expand == "none" else self.width

    def zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.float64, device=self.context.device)

    def draw(self) -> tuple[Tensor, Tensor]:
        """Draws on the CPU, so that every device has the same."""
        if self.expand == "none":
            return torch.zeros(0), torch.zeros(0)
        generator = torch.Generator().manual_seed(self.context.rng.seed_for("random features", 0))
        normal = torch.randn(self.inputs, self.width, generator=generator)
        phase = torch.rand(self.width, generator=generator) * 2 * math.pi
        scale = math.sqrt(2 * self.gamma / self.inputs) if self.expand == "fourier" else 1.0
        return (normal * scale).to(self.context.device), phase.to(self.context.device)

    def features(self, images: Tensor) -> Tensor:
        """h(x) of plain images (uint8), (B, size) float64."""
        context = self.context
        x = context.features(images) if self.of == "features" else context.pixels(images)
        if self.expand == "none":
            return x.double()
        matrix, phase = self.drawn
        if self.expand == "relu":
            return (x @ matrix).relu().double()
        return math.sqrt(2 / self.width) * (x @ matrix + phase).cos().double()

    @no_grad
    def on_stored(self, row: Tensor, sample: Sample) -> None:
        features = self.learnt_features(sample.images)
        labels = sample.labels.expand(len(features))
        self.counts.index_add_(0, labels, torch.ones_like(features[:, 0]))
        self.sums.index_add_(0, labels, features)
        self.add(features)

    def learnt_features(self, images: Tensor) -> Tensor:
        """h(x) of a sample, (1, size), and where it is learnt twice also of its mirror image."""
        mirrored = self.context.pipeline.mirrored(images) if self.mirror else None
        return self.features(images if mirrored is None else torch.cat([images, mirrored]))

    @no_grad
    def on_corrected(self, images: Tensor, label: int, to: int | None) -> None:
        features = self.learnt_features(images)
        self.counts[label] -= len(features)
        self.sums[label] -= features.sum(0)
        if to is None:
            self.subtract(features)
        else:
            self.counts[to] += len(features)
            self.sums[to] += features.sum(0)

    @no_grad
    def on_class_closed(self, label: int, into: int | None) -> None:
        if into is None:
            self.subtract((self.sums[label] / self.counts[label].clamp(min=1).sqrt())[None])
        for sums in (self.counts, self.sums):
            if into is not None:
                sums[into] += sums[label]
            sums[label] = 0

    def add(self, features: Tensor) -> None:
        """Adds features of a sample, (B, size), to what else is summed."""

    def subtract(self, features: Tensor) -> None:
        """Takes features, (B, size), out of what `add` sums. Of a deleted class these are sqrt(n) times its mean.

        Its n samples are not known any more. What their products are beyond those of the mean stays in the sum.
        """

    @abstractmethod
    def solve(self) -> tuple[Tensor, Tensor]:
        """W (rows, size) and b (rows,) of the sums as they are."""

    def prepared(self) -> dict[str, Tensor]:
        return {"weights": self.weights, "bias": self.bias}

    @no_grad
    def prepare(self) -> None:
        weights, bias = self.solve()
        self.weights.copy_(weights)
        self.bias.copy_(bias.masked_fill(self.counts == 0, UNMET))

    @no_grad
    def logits(self, images: Tensor) -> Tensor:
        """0 for the best class; shifted so that none of those met can fall below a closed row by its scale."""
        scores = self.features(images) @ self.weights.T + self.bias
        return (scores - scores.amax(1, keepdim=True)).clamp(min=FLOOR).float()

    def means(self) -> Tensor:
        """The mean features of each class, (rows, size)."""
        return self.sums / self.counts.clamp(min=1)[:, None]


class SecondMoments(ClosedForm):
    """A closed form that also needs G, the sum of h(x)^T h(x): a matrix of size x size float64."""

    gram: Tensor = state(lambda part: part.zeros(part.size, part.size))
    waiting: Tensor = state(lambda part: part.zeros(BLOCK, part.size))  # features not in `gram` yet; else 0
    filled: int = state(lambda part: 0)  # rows of `waiting`

    @property
    def prepare_every(self) -> int:
        return max(1, self.size // 8)

    def add(self, features: Tensor) -> None:
        self.waiting[self.filled : self.filled + len(features)].copy_(features)
        self.filled += len(features)
        if self.filled == BLOCK:
            self.gram.addmm_(self.waiting.T, self.waiting)
            self.waiting.zero_()
            self.filled = 0

    def subtract(self, features: Tensor) -> None:
        self.gram.addmm_(features.T, features, alpha=-1)

    def products(self) -> Tensor:
        """G of all samples, (size, size)."""
        return torch.addmm(self.gram, self.waiting.T, self.waiting)
