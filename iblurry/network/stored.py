"""Stored features: what a body that is not trained makes of an image, kept in the memory in place of its pixels."""

from __future__ import annotations

from torch import Tensor, nn

from iblurry.network.network import Network

BYTES = 4  # of a float32


class StoredFeatures(nn.Module):
    """A body without weights for features that were computed before: the head sees them as they are.

    Parameters
    ----------
    features : int
        How many numbers a sample has.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.features = features

    def forward(self, features: Tensor) -> Tensor:
        """(B, features) float, as `FeaturePipeline` reads them from the memory."""
        return features


def stored_shape(features: int) -> tuple[int, int, int]:
    """The shape in which a memory of bytes keeps so many float32: an image of one channel and a row per number."""
    return 1, features, BYTES


def head_of(network: Network) -> Network:
    """A network for the stored features of this one's body, with a closed head of as many rows."""
    made = Network(StoredFeatures(network.features), network.rows)
    made.meter = network.meter
    return made
