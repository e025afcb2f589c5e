"""Term: what is added to the loss?"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from iblurry.parts.context import Forward
from iblurry.parts.part import Part


class Term(Part):
    """One summand of the training loss."""

    kind: ClassVar[str] = "term"

    @abstractmethod
    def loss(self, forward: Forward) -> Tensor:
        """A scalar."""
