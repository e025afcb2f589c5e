"""BiasCorrected: corrects the logits of the newest classes, fitted on a validation set (BiC)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from iblurry.components.lazy_torch import F, Tensor, no_grad, torch
from iblurry.compute import Cost, Passes, Workload
from iblurry.parts.context import SharedTensor, corrected
from iblurry.parts.memory import Sample
from iblurry.parts.part import scratch, state
from iblurry.parts.readout.readout import Readout

BETAS, EPS = (0.9, 0.999), 1e-8  # Adam's


class BiasCorrected(Readout):
    """BiC: logit <- alpha * logit + beta for the classes first met in this task, fitted before each query.

    Parameters
    ----------
    share : float
        Validation set, as a share of the budget left after the stream's samples; in (0, 1).
    epochs, batch, lr : int, int, float
        The fit: epochs over the validation set, batch size, Adam's learning rate.

    Notes
    -----
    A share of the budget is a validation set with equal quotas per class; its samples are never trained on. The fit
    starts from (1, 0) each time and needs a full set, a second task, and a class that is new in it.

    Differs: only the current task's pair is applied, earlier ones are dropped; as released.

    Wu et al., "Large scale incremental learning", CVPR 2019.
    """

    ranges: ClassVar[dict[str, str]] = {"share": "(0, 1)", "epochs": "[1, inf)", "batch": "[1, inf)", "lr": "(0, inf)"}
    needs_boundaries: ClassVar[bool] = True
    stores: ClassVar[str] = "{share:.0%} of the budget as a validation set, never trained on"

    share: float = 0.1
    epochs: int = 256
    batch: int = 100
    lr: float = 1e-3

    images: Tensor = state(
        lambda part: part.context.memory.images.new_zeros(part.size, *part.context.memory.images.shape[1:])
    )
    labels: Tensor = state(lambda part: part.context.memory.labels.new_zeros(part.size))
    owners: list[int] = state(lambda part: [-1] * part.size)  # the class in each place; -1 is free
    newest: list[int] = state(lambda part: [])  # classes first met in this task
    task: int = state(lambda part: 0)
    ended: bool = state(lambda part: False)  # between the end of a task and the next sample
    at_last_boundary: SharedTensor = scratch(lambda part: part.context.correction)  # teachers are corrected by it
    pairs: Tensor = scratch(lambda part: part.context.no_correction())  # made anew before each query
    fit: Callable[[Tensor, Tensor, Tensor], Tensor] = scratch(lambda part: part.context.compile(part._fit))

    def samples_outside_memory(self, budget: int) -> int:
        return round(self.share * budget)

    def cost(self, workload: Workload) -> Cost:
        if not workload.tasks:
            return Cost()
        # Each place is answered once; the fit needs no network.
        rows = self.samples_outside_memory(workload.budget) // workload.classes * workload.classes
        return Cost(query=Passes(forward=rows), task=Passes(forward=rows))

    @property
    def size(self) -> int:
        """Places in the validation set."""
        return self.samples_outside_memory(self.context.budget)

    def quota(self, classes: int) -> int:
        """Places per class."""
        return self.size // max(1, classes)

    def on_class(self, label: int) -> None:
        self._begin_task()
        self.newest.append(label)
        quota = self.quota(label + 1)
        for other in range(label):
            places = [i for i, owner in enumerate(self.owners) if owner == other]
            excess = max(0, len(places) - quota)
            step = label * self.context.network.rows + other
            for i in self.context.rng.sample_without_replacement(
                "validation cut", step, excess, population=len(places)
            ):
                self.owners[places[i]] = -1

    def takes(self, sample: Sample) -> bool:
        self._begin_task()
        if self.is_full() or self.owners.count(sample.label) >= self.quota(self.context.network.known):
            return False
        place = self.owners.index(-1)
        self.images[place : place + 1].copy_(sample.images)
        self.labels[place : place + 1].copy_(sample.labels)
        self.owners[place] = sample.label
        return True

    def is_full(self) -> bool:
        known = self.context.network.known
        return len(self.owners) - self.owners.count(-1) == self.quota(known) * known

    def on_boundary(self) -> None:
        self.at_last_boundary.value.copy_(self._fitted())
        self.ended = True

    def prepare(self) -> None:
        self.pairs = self._fitted()

    def logits(self, images: Tensor) -> Tensor:
        return corrected(self.context.logits(images), self.pairs)

    def _begin_task(self) -> None:
        if self.ended:
            self.ended, self.task, self.newest = False, self.task + 1, []

    def _can_fit(self) -> bool:
        return bool(self.task and self.newest and any(owner >= 0 for owner in self.owners) and self.is_full())

    def _fitted(self) -> Tensor:
        if not self._can_fit():
            return self.context.no_correction()
        places = [i for i, owner in enumerate(self.owners) if owner >= 0]
        device = self.context.memory.device
        chosen, newest = torch.tensor(places, device=device), torch.zeros(self.context.network.rows, device=device)
        newest[self.newest] = 1.0
        logits = self.context.logits(self.images.index_select(0, chosen))
        return self.fit(logits, self.labels.index_select(0, chosen), newest).clone()

    def _fit(self, logits: Tensor, labels: Tensor, newest: Tensor) -> Tensor:
        return fit(logits, labels, newest, self.epochs, self.batch, self.lr)


@no_grad
def fit(logits: Tensor, labels: Tensor, newest: Tensor, epochs: int, batch: int, lr: float) -> Tensor:
    """The (rows, 2) pairs that suit these answers best; one pair for all classes where `newest` is 1, else (1, 0).

    Adam with its gradient written out: with autograd the fit, made before each query, takes a CPU eight times as long.
    """
    wanted = F.one_hot(labels, logits.shape[1]).to(logits.dtype)
    batches = []
    for some, target in zip(logits.split(batch), wanted.split(batch), strict=True):
        slopes = torch.stack([some * newest, newest.expand_as(some)])  # of the corrected logits: in alpha, in beta
        batches.append((some, target, slopes, slopes / len(some)))
    moved, mean, square = logits.new_zeros(3, 2).unbind()  # (alpha - 1, beta), and Adam's moments
    for step in range(1, epochs * len(batches) + 1):
        some, target, slopes, shares = batches[(step - 1) % len(batches)]
        errors = (some + (slopes * moved[:, None, None]).sum(0)).softmax(1) - target
        gradient = (shares * errors).sum((1, 2))
        mean.lerp_(gradient, 1 - BETAS[0])
        square.lerp_(gradient.square(), 1 - BETAS[1])
        spread = (square / (1 - BETAS[1] ** step)).sqrt() + EPS
        moved.addcdiv_(mean, spread, value=-lr / (1 - BETAS[0] ** step))
    pairs: Tensor = newest[:, None] * moved
    pairs[:, 0] += 1
    return pairs
