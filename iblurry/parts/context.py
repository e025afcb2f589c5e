"""The context: the objects and counters that the parts of one learner share."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, TypeVar

from iblurry.components.lazy_torch import F, Tensor, no_grad, torch
from iblurry.compute import ComputeCounter, QueryCounter
from iblurry.network import EXPORTING
from iblurry.network.shadow import AveragedNetwork, ShadowNetwork
from iblurry.parts.memory import Memory
from iblurry.rng import Rng

if TYPE_CHECKING:
    from iblurry.augment.pipeline import AugmentParams, Pipeline
    from iblurry.engine.eager import Eager
    from iblurry.engine.network import OptimizedNetwork
    from iblurry.engine.stacked import GroupedNetwork
    from iblurry.network.network import Network

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="Shared")
# Values of the images in one forward pass on a CPU outside training. Of 3x32x32 these are 64 images on Arm, else 341:
# a Neoverse-N1 core is slower with more of them, and a Xeon core takes 100 ms instead of 87 for 500 with 64 at a time.
VALUES = 2**17 if platform.machine() == "aarch64" else 2**20
UNMEASURED = -1.0  # stands for the loss of a row; a loss is never negative
TRUST = "trust in the teacher"  # the shared number that a term sets and a schedule reads
POINTS = 2**21  # of such images on a GPU, channels not counted: 2,048 of 32x32


class Forward(NamedTuple):
    """One training forward pass, as the terms of the loss see it."""

    images: Tensor  # (B, C, H, W) float, augmented and mixed; the streamed samples first
    logits: Tensor  # (B, rows)
    labels: Tensor  # (B,) own labels
    partners: Tensor | None  # (B,) the labels mixed in; None where the host knows that nothing was mixed
    lam: Tensor  # (1,) share of the own label
    streamed: int  # how many of the batch come from the stream
    rows: Tensor  # (B - streamed,) memory rows of the others
    features: Tensor  # (B, features) what the head was given, in the precision of the body
    plain: Tensor | None = None  # `images` mixed alike but not augmented, where a term `needs_plain`
    prepared: Any = None  # what the term's own `prepare` returned


class Drawn(NamedTuple):
    """What the host drew for one part and one update."""

    rows: Tensor  # memory rows, all different
    augment_params: AugmentParams | None  # for the streamed samples and these rows, where `needs_augment_params`


class Update(NamedTuple):
    """One update that has just been taken."""

    rows: Tensor  # memory rows that were in the batch
    # (capacity,) loss of every memory row after it, where it was measured; empty rows are 0, UNMEASURED the rows that
    # `Pace.measure_rows` left out
    losses: Tensor | None
    last_of_round: bool = False  # known to the schedule, which runs on the host
    forward: Forward | None = None  # the pass that it was taken on, in `on_update`


class Refitting(Protocol):
    """Trains on the memory alone, a fresh network or the learner's own; returns the context with that network."""

    def __call__(self, *, epochs: int, fresh: bool, frozen_norm: bool) -> Context: ...


@dataclass
class Counters:
    """What changes in a context.

    Parameters
    ----------
    seen : int
        Samples observed.
    updates : int
        Optimizer steps taken.
    tasks : int
        Tasks that ended.
    lr : float or Tensor
        Learning rate of the current update; on a GPU the tensor that a captured update reads.
    """

    seen: int = 0
    updates: int = 0
    tasks: int = 0
    lr: float | Tensor = 0.0


class Shared(Protocol):
    """An object that several parts use: saved, restored and started again with the learner."""

    def state_dict(self) -> dict[str, Tensor]: ...
    def load_state_dict(self, state: dict[str, Tensor]) -> None: ...
    def reset(self) -> None: ...
    def on_rows_changed(self) -> None: ...
    def on_update(self) -> None: ...


class SharedTensor:
    """A tensor that one part sets and others read; neither a class nor an update changes it by itself.

    Parameters
    ----------
    name : str
        What a checkpoint calls it.
    start : Tensor
        Its value at the start.
    """

    def __init__(self, name: str, start: Tensor) -> None:
        self.name, self.start, self.value = name, start, start.clone()

    def state_dict(self) -> dict[str, Tensor]:
        return {self.name: self.value}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.value.copy_(state[self.name])

    def reset(self) -> None:
        self.value.copy_(self.start)

    def on_rows_changed(self) -> None:
        """A class was met or deleted."""

    def on_update(self) -> None:
        """An update was taken."""


def corrected(logits: Tensor, pairs: Tensor) -> Tensor:
    """scale * logit + shift, class by class; `pairs` is (rows, 2)."""
    return logits * pairs[:, 0] + pairs[:, 1]


@dataclass(frozen=True, kw_only=True)
class Context:
    """What the parts of a learner share; they never hold each other. Frozen but for its counters.

    Parameters
    ----------
    network : OptimizedNetwork
        Body and head; `network.meter` counts every image that passes.
    memory : Memory
        The rows of stored samples.
    pipeline : Pipeline
        Augmentation and normalisation.
    rng : Rng
        Counter-based random numbers.
    budget : int
        Samples shared between the memory and what parts keep outside of it.
    engine : Eager
        What steps run on.
    refit : Refitting, optional
        Trains on the memory alone, where the method says how.
    counters : Counters
        Samples, updates, tasks and the learning rate.
    spent : ComputeCounter
        Compute spent on learning.
    queries : QueryCounter
        Compute spent on answers.
    frozen : Context, optional
        Of a body that is not trained, whose features the memory keeps in place of pixels; None: it keeps pixels.
    """

    network: OptimizedNetwork
    memory: Memory
    pipeline: Pipeline
    rng: Rng
    budget: int
    engine: Eager
    refit: Refitting | None = None
    counters: Counters = field(default_factory=Counters)
    spent: ComputeCounter = field(default_factory=ComputeCounter)
    queries: QueryCounter = field(default_factory=QueryCounter)
    frozen: Context | None = None
    shared: dict[str, Shared] = field(default_factory=dict)  # by name, made when first asked for and saved with a run

    @property
    def seen(self) -> int:
        return self.counters.seen

    @property
    def updates(self) -> int:
        return self.counters.updates

    @property
    def tasks(self) -> int:
        return self.counters.tasks

    @property
    def lr(self) -> float | Tensor:
        return self.counters.lr

    @property
    def device(self) -> torch.device:
        return self.memory.device

    def shadow(self, name: str, *, opens_rows: bool = True) -> ShadowNetwork:
        """The shadow network of this name, made when first asked for; parts that name the same one share it."""
        return self._shared(f"shadow {name}", ShadowNetwork, lambda: ShadowNetwork(self.network, opens_rows=opens_rows))

    def average(self, decay: float, *, warm_up: bool = False) -> AveragedNetwork:
        """The moving average of the network with this decay, made when first asked for; parts share it."""
        name = f"average {decay}{' with warm-up' if warm_up else ''}"
        fuse = self.engine.fuse
        return self._shared(
            name, AveragedNetwork, lambda: AveragedNetwork(self.network, decay=decay, warm_up=warm_up, fuse=fuse)
        )

    def scalar(self, name: str) -> SharedTensor:
        """The number of this name that parts share; 0 at the start."""
        return self._shared(name, SharedTensor, lambda: SharedTensor("value", torch.zeros((), device=self.device)))

    @property
    def correction(self) -> SharedTensor:
        """What the readout does to logits since the last task end, as `corrected` applies it, (rows, 2); a teacher's
        answers are corrected by it too.
        """
        return self._shared("logit correction", SharedTensor, lambda: SharedTensor("pairs", self.no_correction()))

    def no_correction(self) -> Tensor:
        """Scale 1 and shift 0 for each row of the head, (rows, 2)."""
        return torch.tensor([[1.0, 0.0]], device=self.device).repeat(self.network.rows, 1)

    def _shared(self, name: str, kind: type[S], make: Callable[[], S]) -> S:
        if name not in self.shared:
            self.shared[name] = make()
        found = self.shared[name]
        assert isinstance(found, kind)
        return found

    def compile(
        self, step: Callable[P, R], graph_key: Callable[[], Hashable] = lambda: None, *, capture: bool = True
    ) -> Callable[P, R]:
        """The step as the engine runs it best, captured on a GPU; `graph_key` is what else than its arguments it
        depends on. What a step returns is good until the engine's next step.

        If the network's body draws random numbers in training, torch's generators are seeded for each call by the
        run's Rng, and are afterwards as they were. `capture=False`: the step is never captured.
        """
        run = self.engine.compile(step, graph_key, self.network.meter) if capture else step
        if not self.network.draws:
            return run
        from iblurry.network.weights import seeded

        purpose, device = f"{step.__name__} draws", self.device

        def run_seeded(*args: P.args, **keywords: P.kwargs) -> R:
            moment = self.seen + self.updates  # grows with every sample and every update
            with seeded(self.rng.seed_for(purpose, moment), device):
                return run(*args, **keywords)

        return run_seeded

    def encode(self, images: Tensor) -> Tensor:
        """What the memory keeps of plain images (uint8): the same, or the bytes of a frozen body's float32 features.

        All other methods, and the parts, are given images that went through this.
        """
        if self.frozen is None:
            return images
        with self.network.meter.counting("features"):
            features = self.frozen.features(images)
        if EXPORTING.get():  # a file for other programs has no need of bytes
            return features
        return features.contiguous().view(torch.uint8).view(len(images), *self.memory.images.shape[1:])

    def logits(self, images: Tensor, network: Network | None = None) -> Tensor:
        """Answers to plain images (uint8) in eval mode, of the learner's network or of another; nothing is changed."""
        return self._answers(images, network)[1]

    def features(self, images: Tensor) -> Tensor:
        """What the body makes of plain images (uint8) in eval mode, (B, features) float32."""
        return self._answers(images, None)[0].float()

    @no_grad
    def pixels(self, images: Tensor) -> Tensor:
        """Plain images (uint8) normalised, (B, C * H * W) float32; of a table, its standardised numbers."""
        return self.network.inputs(self.pipeline.test(images)).float()

    @no_grad
    def _answers(self, images: Tensor, network: Network | None) -> tuple[Tensor, Tensor]:
        """Features and logits."""
        if EXPORTING.get():
            return (network or self.network).float_both(self.pipeline.test(images))
        few = min(512, max(64, VALUES // math.prod(images.shape[1:])))
        chunk = max(64, POINTS // math.prod(images.shape[2:])) if images.is_cuda else few
        with self.engine.side_stream():
            answer = (network or self.network).answering(self.pipeline.test, images)
            parts = [answer(part) for part in images.split(chunk)]
            if len(parts) == 1:
                return parts[0]
            return torch.cat([features for features, _ in parts]), torch.cat([logits for _, logits in parts])

    def expect_batch_size(self, size: int, network: Network | None = None) -> None:
        """A part will often train on so many images besides the training batch, or pass them in train mode."""
        self.engine.expect_batch_size(network or self.network, self.pipeline, size)

    def expect_images(self, size: int) -> None:
        """Announces that so many images will often be augmented together besides the training batch."""
        self.engine.expect_images(self.pipeline, size)

    def gradient(self, images: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        """The gradient of the mean cross-entropy of these images (float), by parameter that is trained, in the order of
        `network.trainable()`; the network's mode is kept.
        """
        with torch.enable_grad():
            return self.gradient_of(F.cross_entropy(self.network(images), labels))

    def gradient_of(self, loss: Tensor) -> tuple[Tensor, ...]:
        """The same of a loss."""
        trained = tuple(self.network.trainable().values())
        with self.network.parallel_backward():
            return torch.autograd.grad(loss, trained, allow_unused=True, materialize_grads=True)

    def grouped(self, groups: int) -> GroupedNetwork | None:
        """What takes the gradients of so many groups of images at once; None where own kernels for it are missing."""
        from iblurry.engine.stacked import GroupedNetwork, can_stack

        if not self.network.has_kernels or not can_stack(self.network):
            return None
        return GroupedNetwork(self.network, groups)

    def losses(self, images: Tensor, labels: Tensor) -> Tensor:
        """The cross-entropy of each plain image, (B,)."""
        return F.cross_entropy(self.logits(images), labels, reduction="none")

    def memory_losses(self, rows: Tensor | None = None) -> Tensor:
        """The loss of every memory row, or of some, (capacity,) float64; rows never written are 0, others UNMEASURED.

        Parameters
        ----------
        rows : Tensor, optional
            Filled rows, (n,) int64.
        """
        memory = self.memory
        if rows is not None:
            with self.network.meter.counting("losses"):
                some = self.losses(*memory.read(rows)).double()
            return some.new_full((memory.capacity,), UNMEASURED).index_copy_(0, rows, some)
        with self.network.meter.counting("losses", images=lambda: memory.size):
            if self.device.type == "cuda":  # of one shape always: it can be captured before the memory is full
                losses = self.losses(memory.images[:-1], memory.labels[:-1].clamp(min=0)).double()
                return losses * memory.filled()
            size = memory.size
            losses = self.losses(memory.images[:size], memory.labels[:size]).double()
            return F.pad(losses, (0, memory.capacity - size))
