"""AverageTeacher: keeps the answers close to those of a moving average of the network (MKD and BALM)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from iblurry.compute import Cost, Passes, Workload
from iblurry.network.shadow import AveragedNetwork
from iblurry.parts.context import Forward
from iblurry.parts.part import scratch
from iblurry.parts.terms.term import Term


class AverageTeacher(Term):
    """weight * T^2 * KL(softmax(teacher / T) || softmax(student / T)), the mean over the batch as it is trained on.

    Parameters
    ----------
    weight : float
        Of the term.
    temperature : float
        T.
    decay : float
        Of the teacher, the average of the weights and of batch norm's statistics.
    warm_up : bool
        Whether the decay starts lower, min(decay, (1 + n) / (10 + n)) at the n-th update.

    Notes
    -----
    The teacher answers in eval mode, to the same augmented and mixed images. A readout `Averaged` of the same decay
    shares it.

    Michel et al., "Rethinking momentum knowledge distillation in online continual learning", ICML 2024.
    """

    ranges: ClassVar[dict[str, str]] = {"weight": "[0, inf)", "temperature": "(0, inf)", "decay": "[0, 1)"}
    stores: ClassVar[str] = "an average of the weights, decay {decay}"

    weight: float = 1.0
    temperature: float = 2.0
    decay: float = 0.999
    warm_up: bool = True

    teacher: AveragedNetwork = scratch(lambda part: part.context.average(part.decay, warm_up=part.warm_up))

    def cost(self, workload: Workload) -> Cost:
        return Cost(update=Passes(forward=workload.batch))

    def loss(self, forward: Forward) -> Tensor:
        answers = self.teacher.logits(forward.images)
        return self.weight * kl_divergence(answers, forward.logits, self.temperature)


def kl_divergence(teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    """T^2 KL(softmax(teacher / T) || softmax(student / T)), (B, classes) each, the batch mean."""
    wanted = F.log_softmax(teacher / temperature, dim=1)
    given = F.log_softmax(student / temperature, dim=1)
    return temperature**2 * F.kl_div(given, wanted, reduction="batchmean", log_target=True)
