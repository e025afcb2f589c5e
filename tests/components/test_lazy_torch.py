"""torch at its first use: what stands for it before is gone after it, so that torch.compile sees torch itself."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
import iblurry.methods
from iblurry.parts.gradient import gradient
from iblurry.parts.part import Tensor as before
assert "torch" not in sys.modules and not isinstance(3, before)
import torch
assert gradient.torch is not torch and isinstance(torch.ones(1), before)
from iblurry import Learner
from iblurry.components import lazy_torch
Learner("agem", image=(1, 8, 8), network="mlp", memory=20, classes=3)
from iblurry.parts.terms import term
assert gradient.torch is torch and gradient.Tensor is torch.Tensor and term.F is torch.nn.functional
import iblurry.network.shadow
assert iblurry.network.shadow.nn is lazy_torch.nn is torch.nn
one, other = [torch.tensor([1.0, 2.0])], [torch.tensor([-1.0, 0.0])]
torch.compile(gradient.project, backend="eager", fullgraph=True)(one, other)
assert one[0].tolist() == [0.0, 2.0]
"""


def test_torch_itself_takes_its_place():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
