"""ScheduledPrior: distils features from a scheduled average of past selves, as far as it is trusted (SDP)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from iblurry.components.lazy_torch import Tensor, no_grad, torch
from iblurry.compute import Cost, Passes, Workload
from iblurry.errors import InputError
from iblurry.network.shadow import AveragedNetwork, ShadowNetwork
from iblurry.parts.context import TRUST, Forward, SharedTensor, Update
from iblurry.parts.memory import Sample
from iblurry.parts.part import scratch, state
from iblurry.parts.terms.term import Term, cross_entropy

if TYPE_CHECKING:
    from iblurry.network.network import Network


class ScheduledPrior(Term):
    """mean of (1 - w) CE + w beta ||f - f'||^2, with f' the features of a teacher and w how far it is trusted.

    Parameters
    ----------
    mean : float
        Mean age of the selves that the teacher averages, in updates.
    variance : float
        Of that age, as a share of mean^2; between 0.5 - 1/mean and 1 - 1/mean.
    window : int
        Recent samples of each class whose answers tell how good the teacher is.

    Notes
    -----
    teacher = (r2 E1 - r1 E2) / (r2 - r1), with E1 and E2 exponential averages of the body of rates r1 < r2:
    r = (1 -+ sqrt(2 variance - 1 + 2/mean)) / (mean (1 - variance) - 1). The weights on past selves are never negative,
    0 on the present one, and have the mean age and variance asked for. Batch norm's statistics and the head are the
    network's own.

    The teacher answers each new sample: m is the mean over classes of the mean probability of the right one, over the
    window; w = clip(m - 1/C, 0, 1) C / (C + 1) for C classes met. beta makes both terms pull equally hard on the
    features: the mean of sqrt(||d CE / d f||^2 / (4 ||f - f'||^2 + 1e-8)), a constant.

    Koh et al., "Online boundary-free continual learning by scheduled data prior", ICLR 2023.
    """

    ranges: ClassVar[dict[str, str]] = {"mean": "(2, inf)", "variance": "(0, 1)", "window": "[1, inf)"}
    stores: ClassVar[str] = "two averages of the weights and their mixture, and {window} probabilities a class"

    mean: float = 10_000.0
    variance: float = 0.75
    window: int = 100

    recent: Tensor = state(
        lambda part: torch.zeros(part.context.network.rows, part.window, device=part.context.device)
    )  # (rows, window): a ring of the last probabilities of each class
    counts: Tensor = state(
        lambda part: torch.zeros(part.context.network.rows, dtype=torch.int64, device=part.context.device)
    )  # (rows,) samples of each class
    slow: AveragedNetwork = scratch(lambda part: part.context.average(1 - part.rates[0]))
    fast: AveragedNetwork = scratch(lambda part: part.context.average(1 - part.rates[1]))
    teacher: ShadowNetwork = scratch(lambda part: part.context.shadow("scheduled average"))
    trust: SharedTensor = scratch(lambda part: part.context.scalar(TRUST))  # w
    judge: Callable[[Tensor, Tensor], None] = scratch(lambda part: part.context.compile(part._judge))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.5 - 1 / self.mean < self.variance < 1 - 1 / self.mean:
            raise InputError(
                f"ScheduledPrior(mean={self.mean:g}, variance={self.variance:g}): no such average exists; give a "
                f"variance between {0.5 - 1 / self.mean:g} and {1 - 1 / self.mean:g}."
            )

    @property
    def rates(self) -> tuple[float, float]:
        """r1 and r2."""
        spread = math.sqrt(2 * self.variance - 1 + 2 / self.mean)
        below = self.mean * (1 - self.variance) - 1
        return (1 - spread) / below, (1 + spread) / below

    def cost(self, workload: Workload) -> Cost:
        return Cost(update=Passes(forward=workload.batch), sample=Passes(forward=1))

    def on_stored(self, row: Tensor, sample: Sample) -> None:
        self.judge(sample.images, sample.labels)

    @no_grad
    def _judge(self, image: Tensor, label: Tensor) -> None:
        """Asks the teacher about a new sample, and sets w."""
        pipeline, network = self.context.pipeline, self.context.network
        right = self.teacher.logits(pipeline.test(image)).softmax(1).index_select(1, label)[0]  # (1,)
        place = label * self.window + self.counts.index_select(0, label) % self.window
        self.recent.view(-1).index_copy_(0, place, right)
        self.counts.index_add_(0, label, torch.ones_like(label))
        met, classes = self.counts > 0, network.open.sum()
        means = self.recent.sum(1) / self.counts.clamp(min=1, max=self.window)
        mean = means.sum() / met.sum()
        self.trust.value.copy_((mean - 1 / classes).clamp(0, 1) * classes / (classes + 1))

    def prepare(self, images: Tensor, plain: Tensor | None) -> Tensor:
        """The teacher's features."""
        return self.teacher.forward_both(images, batch_statistics=True)[0].float()

    def loss(self, forward: Forward) -> Tensor:
        features, logits, trust = forward.features.float(), forward.logits, self.trust.value
        distances: Tensor = (features - forward.prepared).square().sum(1)
        with torch.no_grad():
            slopes = logits.softmax(1)
            own = torch.zeros_like(slopes).scatter_(1, forward.labels[:, None], 1.0)
            if forward.partners is not None:
                own = torch.lerp(torch.zeros_like(own).scatter_(1, forward.partners[:, None], 1.0), own, forward.lam[0])
            pulls = ((slopes - own) @ self.context.network.head.weight).square().sum(1)
            beta = (pulls / (4 * distances + 1e-8)).sqrt().mean()
        losses = cross_entropy(forward, logits, reduction="none")
        return ((1 - trust) * losses + trust * beta * distances).mean()

    def on_update(self, update: Update) -> None:
        self._mix()

    @no_grad
    def _mix(self) -> None:
        each: Any = torch  # its _foreach functions are one kernel for many tensors
        r1, r2 = self.rates
        teacher, network = self.teacher.network, self.context.network
        mixed = each._foreach_mul(list(self.slow.network.body.parameters()), r2 / (r2 - r1))
        each._foreach_sub_(mixed, each._foreach_mul(list(self.fast.network.body.parameters()), r1 / (r2 - r1)))
        values = [*mixed, *network.head.parameters(), *_statistics(network)]
        each._foreach_copy_([*teacher.parameters(), *_statistics(teacher)], values)


def _statistics(network: Network) -> list[Tensor]:
    """Returns batch norm's running means and variances."""
    return [buffer for buffer in network.body.buffers() if buffer.is_floating_point()]
