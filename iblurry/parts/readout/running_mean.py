"""RunningMean: an image is of the class whose features, over all samples seen, are nearest on average."""

from __future__ import annotations

from typing import ClassVar

from iblurry.components.lazy_torch import F, Tensor
from iblurry.parts.readout.closed_form import ClosedForm


class RunningMean(ClosedForm):
    """-|h - mu_c|^2, with mu_c the mean of the features h of every sample of class c.

    `NearestMean` has the same formula over the samples in memory, whose features it computes again for each query.

    Parameters
    ----------
    of, expand, width, gamma, mirror : str, str, int, float, bool
        What the features are, see `ClosedForm`.
    normalise : bool
        Whether features, and then their means, are divided by their length, so that angles decide.

    Mensink et al., "Distance-based image classification: generalizing to new classes at near-zero cost", PAMI 2013.
    """

    stores: ClassVar[str] = "a sum of features a class, over all samples"

    normalise: bool = True

    def features(self, images: Tensor) -> Tensor:
        features = super().features(images)
        return F.normalize(features) if self.normalise else features

    def solve(self) -> tuple[Tensor, Tensor]:
        means = F.normalize(self.sums) if self.normalise else self.means()
        return 2 * means, -means.square().sum(1)  # |h|^2 is the same for all classes
