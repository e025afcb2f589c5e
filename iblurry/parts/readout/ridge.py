"""Ridge: least squares from random features to classes, with a penalty (RanPAC, GACL)."""

from __future__ import annotations

from typing import ClassVar, Literal

from iblurry.components.lazy_torch import Tensor, torch
from iblurry.parts.readout.closed_form import SecondMoments

POWERS = (2.0, -6.0, 17)  # penalties tried, as powers of ten of the mean eigenvalue: from, to, how many
ROUNDING = 1e-11  # eigenvalues below this share of the largest are 0


class Ridge(SecondMoments):
    """h W^T with W^T = (G + penalty I)^-1 Q: G sums h^T h and Q sums h by class, over all samples.

    Parameters
    ----------
    of, expand, width, gamma, mirror : str, str, int, float, bool
        What the features are, see `ClosedForm`; relu(x R) unless given.
    penalty : float, optional
        Added to the diagonal of G. Default: that of the least generalised cross-validation error at each moment asked,
        among 10^-6 to 10^2 times the mean eigenvalue of G. It is a function of the sums, so no sample is held out.

    McDonnell et al., "RanPAC: random projections and pre-trained models for continual learning", NeurIPS 2023. Zhuang
    et al., "GACL: exemplar-free generalized analytic continual learning", NeurIPS 2024, is the same by a recursion.
    Golub, Heath and Wahba, "Generalized cross-validation as a method for choosing a good ridge parameter", 1979.
    Differs: RanPAC chooses the penalty on a fifth of each task that is held out, so it needs task ends, and tunes an
    adapter of the body on the first task; 10,000 random features, 800 MB of sums, are `width=10000`.
    """

    ranges: ClassVar[dict[str, str]] = {"penalty": "(0, inf)"}
    stores: ClassVar[str] = "a sum of features a class and one of their products, over all samples"

    expand: Literal["none", "relu", "fourier"] = "relu"
    penalty: float | None = None

    def solve(self) -> tuple[Tensor, Tensor]:
        gram, by_class = self.products(), self.sums.T
        if self.penalty is not None:
            gram.diagonal().add_(self.penalty)
            return torch.linalg.solve(gram, by_class).T, torch.zeros_like(self.counts)
        values, vectors = torch.linalg.eigh(gram)
        values = values.where(values > ROUNDING * values[-1], 0.0)
        turned = vectors.T @ by_class  # (size, rows)
        penalty = cross_validated(values, turned.square().sum(1), self.counts.sum())
        return (vectors @ (turned / (values + penalty)[:, None])).T, torch.zeros_like(self.counts)


def cross_validated(values: Tensor, powers: Tensor, seen: Tensor) -> Tensor:
    """The penalty of the least generalised cross-validation error, |Y - A Y|^2 / (n - tr A)^2 with A Y the answers.

    Parameters
    ----------
    values : Tensor
        Eigenvalues of G, (size,).
    powers : Tensor
        Squared length of each row of V^T Q, (size,), V the eigenvectors.
    seen : Tensor
        How many samples, each with a target of length 1.
    """
    start, stop, count = POWERS
    tried = values.mean() * 10 ** torch.linspace(start, stop, int(count), dtype=values.dtype, device=values.device)
    inverse = 1 / (values + tried[:, None])  # (tried, size)
    residual = seen - 2 * inverse @ powers + inverse.square() @ (powers * values)
    error = residual.clamp(min=0) / (seen - inverse @ values).square()
    return tried[error.nan_to_num(torch.inf).argmin()]
