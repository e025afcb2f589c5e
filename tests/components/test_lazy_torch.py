"""torch at its first use: before it nothing imports torch, and after it torch.compile sees torch's own functions."""

from __future__ import annotations

import subprocess
import sys

import pytest

FIRST_USE = """
import sys
from iblurry import LearnerConfig
from iblurry.live.settings import Settings
LearnerConfig.from_json(Settings().learner_config().to_json())
from iblurry.parts.gradient import gradient
assert "torch" not in sys.modules and not isinstance(3, gradient.Tensor)
import torch
assert isinstance(torch.ones(1), gradient.Tensor) and gradient.torch.sqrt is torch.sqrt
"""
COMPILED = """
one, other = [torch.tensor([1.0, 2.0])], [torch.tensor([-1.0, 0.0])]
torch.compile(gradient.project, backend="eager", fullgraph=True)(one, other)
assert one[0].tolist() == [0.0, 2.0]
"""


@pytest.mark.quick("first use")
@pytest.mark.parametrize("code", [FIRST_USE, FIRST_USE + COMPILED], ids=["first use", "compiled"])
def test_torch_itself_takes_its_place(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
