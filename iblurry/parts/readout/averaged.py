"""Averaged: answers come from a moving average of the network's weights."""

from __future__ import annotations

from typing import ClassVar, Literal

from iblurry.components.lazy_torch import Tensor, no_grad
from iblurry.network.shadow import AveragedNetwork, ShadowNetwork
from iblurry.parts.part import scratch
from iblurry.parts.readout.readout import Readout


class Averaged(Readout):
    """The exponential moving average of weights and batch-norm statistics answers, or its mean with the network.

    Parameters
    ----------
    decay : float
        What is kept of the average at each update; 0.99 is the paper's.
    warm_up : bool
        Whether the decay starts lower, min(decay, (1 + n) / (10 + n)) at the n-th update.

    of : {"average", "both"}
        What answers: the average, or weights halfway between it and the network, with the network's batch-norm
        statistics (MKD).
    mirror : bool
        Whether each image is asked twice, upright and mirrored, and the mean of the logits answers; once where features
        are stored (freeze="body").

    Notes
    -----
    A head row starts with the network's own fresh weights, when its class is met.

    Soutif-Cormerais et al., "Improving online continual learning performance and stability with temporal ensembles",
    CoLLAs 2023.
    """

    ranges: ClassVar[dict[str, str]] = {"decay": "[0, 1)"}
    stores: ClassVar[str] = "an average of the weights, decay {decay}"

    reads_network: ClassVar[bool] = False

    decay: float = 0.99
    warm_up: bool = False
    of: Literal["average", "both"] = "average"
    mirror: bool = False

    average: AveragedNetwork = scratch(lambda part: part.context.average(part.decay, warm_up=part.warm_up))
    halfway: ShadowNetwork | None = scratch(
        lambda part: ShadowNetwork(part.context.network) if part.of == "both" else None
    )

    @no_grad
    def prepare(self) -> None:
        if self.halfway is not None:
            self.halfway.copy_()
            pairs = zip(self.halfway.network.parameters(), self.average.network.parameters(), strict=True)
            for weight, averaged in pairs:
                weight.lerp_(averaged, 0.5)

    def prepared(self) -> dict[str, Tensor]:
        return dict((self.halfway or self.average).network.state_dict())

    def logits(self, images: Tensor) -> Tensor:
        network = (self.halfway or self.average).network
        logits = self.context.logits(images, network)
        mirrored = self.context.pipeline.mirrored(images) if self.mirror else None
        return logits if mirrored is None else (logits + self.context.logits(mirrored, network)) / 2
