"""NearestMean: an image is of the class whose remembered features are nearest on average."""

from __future__ import annotations

from typing import ClassVar

from iblurry.components.lazy_torch import F, Tensor, no_grad, torch
from iblurry.compute import Cost, Passes, Workload
from iblurry.network import FLOOR
from iblurry.parts.part import scratch
from iblurry.parts.readout.readout import Readout


class NearestMean(Readout):
    """-||f / |f| - mu_c||^2, with mu_c the normalised mean of the normalised features of the memory's rows of class c.

    A class without a row in memory is never answered.

    Rebuffi et al., "iCaRL", CVPR 2017; Mai et al., "Supervised contrastive replay", CVPR workshops 2021.
    """

    stores: ClassVar[str] = "a mean of features a class, made for each query"

    means: Tensor = scratch(
        lambda part: torch.zeros(part.context.network.rows, part.context.network.features, device=part.context.device)
    )  # mu, (rows, features)
    has_rows: Tensor = scratch(lambda part: torch.zeros_like(part.context.network.open))  # (rows,)

    def cost(self, workload: Workload) -> Cost:
        return Cost(query=Passes(forward=workload.capacity))

    @property
    def prepare_every(self) -> int:
        return max(1, self.context.memory.capacity // 8)

    @no_grad
    def prepare(self) -> None:
        memory = self.context.memory
        images, labels = memory.images[: memory.size], memory.labels[: memory.size]
        features = F.normalize(self.context.features(images))
        member = torch.zeros(len(self.means), len(labels), device=labels.device).scatter_(0, labels[None], 1.0)
        self.means.copy_(F.normalize(member @ features))
        self.has_rows.copy_(torch.zeros_like(self.has_rows).index_fill_(0, labels, True))

    def logits(self, images: Tensor) -> Tensor:
        features = F.normalize(self.context.features(images))
        distances = (features[:, None] - self.means).square().sum(2)
        return (-distances).masked_fill(~self.has_rows, FLOOR)
