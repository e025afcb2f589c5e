"""GradientRule: what is done to the gradient before the step?"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from iblurry.parts.context import Drawn
from iblurry.parts.part import Part


class GradientRule(Part):
    """Changes the gradients of the network in place."""

    kind: ClassVar[str] = "gradient"

    @abstractmethod
    def adjust(self, drawn: Drawn) -> None:
        """Works on `parameter.grad`; `drawn` are the `draws` memory rows the host drew for it."""
