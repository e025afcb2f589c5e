"""Everything: no sample is ever given up."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from iblurry.errors import InputError
from iblurry.memory import Sample
from iblurry.parts.admission.admission import Admission


class Everything(Admission):
    """The memory has a row for every sample of the stream; for joint training, which knows no budget."""

    keeps_all: ClassVar[bool] = True

    def choose_row(self, sample: Sample) -> Tensor:
        raise InputError(
            f"Everything keeps every sample, but all {self.context.memory.capacity} rows of the memory are taken; "
            "build the learner with a `memory` as long as its stream."
        )
