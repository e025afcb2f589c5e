"""ER-ACE: experience replay whose new samples compete only among themselves."""

from __future__ import annotations

from iblurry.methods.er import er
from iblurry.methods.method import Method
from iblurry.methods.recipe import Hyperparameters, recipe
from iblurry.parts import AsymmetricCrossEntropy


@recipe(
    paper="Caccia et al., New insights on reducing abrupt representation change in online continual learning, ICLR 2022"
)
def er_ace(hyperparameters: Hyperparameters) -> Method:
    """ER; the loss of streamed samples sees only the classes among them, that of remembered ones all classes."""
    return er(hyperparameters, name="er-ace", terms=(AsymmetricCrossEntropy(),))
