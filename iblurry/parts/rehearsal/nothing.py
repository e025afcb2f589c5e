"""Nothing: no memory row joins the batch."""

from __future__ import annotations

from torch import Tensor

from iblurry.memory import Batch
from iblurry.parts.context import Drawn
from iblurry.parts.rehearsal.rehearsal import Rehearsal


class Nothing(Rehearsal):
    """Training on the stream alone."""

    def choose(self, stream: Batch, drawn: Drawn) -> Tensor:
        return drawn.rows  # empty: it asked for none
