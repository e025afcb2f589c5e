"""Discriminant: linear discriminant analysis with running means and one running covariance (streaming LDA)."""

from __future__ import annotations

from typing import ClassVar

from iblurry.components.lazy_torch import Tensor, torch
from iblurry.parts.readout.closed_form import SecondMoments

LEAST = 1e-6  # shrinkage; less would leave the smallest directions to rounding
NO_SPREAD = 1e-10  # trace of S over that of the raw second moments below which S is rounding


class Discriminant(SecondMoments):
    """mu_c^T S^-1 h - mu_c^T S^-1 mu_c / 2, with S the covariance within classes, shrunk towards a multiple of I.

    S <- (1 - e) S + e tr(S) / d I. Relative to the trace, as the published (1 - e) S + e I with e = 1e-4 is next to no
    shrinkage where features are large, and accuracy then falls into a hole where about as many samples as features were
    seen. Before a class has two samples S is I, and the nearest mean answers.

    Parameters
    ----------
    of, expand, width, gamma, mirror : str, str, int, float, bool
        What the features are, see `ClosedForm`.
    shrinkage : float, optional
        e in [1e-6, 1]. Default: the oracle approximating shrinkage, a function of the sums (Chen et al., 2010).

    Hayes and Kanan, "Lifelong machine learning with deep streaming linear discriminant analysis", CVPR workshops 2020.
    Differs: S is the exact covariance of the samples around the means of their classes, whatever their order; the
    paper's update measures from the mean so far and weighs by the number of all samples.
    """

    ranges: ClassVar[dict[str, str]] = {"shrinkage": f"[{LEAST}, 1]"}
    stores: ClassVar[str] = "a sum of features a class and one of their products, over all samples"

    shrinkage: float | None = None

    def solve(self) -> tuple[Tensor, Tensor]:
        means, products, seen = self.means(), self.products(), self.counts.sum()
        covariance = (products - means.T @ (means * self.counts[:, None])) / seen
        shrunk = shrink(covariance, seen, self.shrinkage)
        has_spread = covariance.trace() * seen > NO_SPREAD * products.trace()
        shrunk = torch.where(has_spread, shrunk, torch.eye(len(shrunk), dtype=shrunk.dtype, device=shrunk.device))
        weights = torch.linalg.solve(shrunk, means.T).T
        return weights, -(weights * means).sum(1) / 2


def shrink(covariance: Tensor, seen: Tensor, shrinkage: float | None) -> Tensor:
    """(1 - e) S + e tr(S) / d I.

    Parameters
    ----------
    covariance : Tensor
        S, (d, d), the mean over samples.
    seen : Tensor
        How many samples.
    shrinkage : float, optional
        e; None for the oracle approximating shrinkage, without its terms in 1 / d.
    """
    size = len(covariance)
    level = covariance.trace() / size
    if shrinkage is None:
        power = covariance.square().mean()
        share = (power + level.square()) / ((seen + 1) * (power - level.square() / size)).clamp(min=0)
        amount = share.nan_to_num(1.0).clamp(LEAST, 1.0)
    else:
        amount = torch.full_like(level, shrinkage)
    shrunk = (1 - amount) * covariance
    shrunk.diagonal().add_(amount * level)
    return shrunk
