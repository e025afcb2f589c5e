"""AverageTeacher: keeps the answers close to those of a moving average of the network (MKD and BALM)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from iblurry.components.lazy_torch import F, Tensor
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
    batch_statistics : bool
        Whether the teacher's batch norm normalises by the batch, as in train mode, instead of its running statistics.

    Notes
    -----
    The teacher answers to the same augmented and mixed images. A readout `Averaged` of the same decay shares it.
    """

    ranges: ClassVar[dict[str, str]] = {"weight": "[0, inf)", "temperature": "(0, inf)", "decay": "[0, 1)"}
    stores: ClassVar[str] = "an average of the weights, decay {decay}"

    weight: float = 1.0
    temperature: float = 2.0
    decay: float = 0.999
    warm_up: bool = True
    batch_statistics: bool = False

    teacher: AveragedNetwork = scratch(lambda part: part.context.average(part.decay, warm_up=part.warm_up))

    def cost(self, workload: Workload) -> Cost:
        return Cost(update=Passes(forward=workload.batch))

    def prepare(self, images: Tensor, plain: Tensor | None) -> tuple[Tensor, ...]:
        """The teacher's answers."""
        if self.batch_statistics and len(images) in self.context.network.compiled:  # a size worth compiling for
            self.context.expect_batch_size(len(images), self.teacher.network)
        return (self.teacher.logits(images, batch_statistics=self.batch_statistics),)

    def loss(self, forward: Forward) -> Tensor:
        (answers,) = forward.prepared
        return self.weight * self._divergence(answers, forward.logits)

    def _divergence(self, teacher: Tensor, student: Tensor) -> Tensor:
        """T^2 KL(softmax(teacher / T) || softmax(student / T)), (B, classes) each, the batch mean."""
        wanted = F.log_softmax(teacher / self.temperature, dim=1)
        given = F.log_softmax(student / self.temperature, dim=1)
        return self.temperature**2 * F.kl_div(given, wanted, reduction="batchmean", log_target=True)


class MomentumDistil(AverageTeacher):
    """MKD: weight / 2 * [KL(T(x'), S(x')) + KL(T(x), S(x'))], x' the augmented images, x the plain ones.

    Parameters
    ----------
    weight, temperature, decay, warm_up, batch_statistics : float or bool
        As of `AverageTeacher`, with the paper's values.
    views : {"teacher", "student", "one"}
        Who sees the plain images too: the teacher, as above; released: the student, KL(T(x'), S(x)); or nobody,
        weight * KL(T(x'), S(x')).

    Notes
    -----
    The temperature's square is inside KL. Differs: the plain images are mixed by CutMix as the augmented ones are; the
    paper mixes none. The teacher starts at the network's weights (released: at about a hundredth of them).

    Michel et al., "Rethinking momentum knowledge distillation in online continual learning", ICML 2024.
    """

    needs_plain: ClassVar[bool] = True
    released_fields: ClassVar[dict[str, Any]] = {"views": "student"}

    weight: float = 5.5
    temperature: float = 4.0
    decay: float = 0.99
    warm_up: bool = False
    batch_statistics: bool = True
    views: Literal["teacher", "student", "one"] = "teacher"

    def cost(self, workload: Workload) -> Cost:
        more = {"teacher": (2, 0), "student": (2, 1), "one": (1, 0)}[self.views]
        return Cost(update=Passes(forward=more[0] * workload.batch, backward=more[1] * workload.batch))

    def prepare(self, images: Tensor, plain: Tensor | None) -> tuple[Tensor, ...]:
        answers = super().prepare(images, plain)
        if self.views != "teacher":
            return answers
        assert plain is not None
        return answers + super().prepare(plain, None)

    def loss(self, forward: Forward) -> Tensor:
        answers, *of_plain = forward.prepared
        loss = self._divergence(answers, forward.logits)
        if self.views == "one":
            return self.weight * loss
        if of_plain:
            other = self._divergence(of_plain[0], forward.logits)
        else:
            assert forward.plain is not None
            other = self._divergence(answers, self.context.network(forward.plain))
        return self.weight / 2 * (loss + other)
