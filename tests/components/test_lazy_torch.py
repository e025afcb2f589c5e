"""torch at its first use: before it nothing imports torch, and after it torch.compile sees torch's own functions."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
import iblurry.methods
from iblurry.parts.gradient import gradient
from iblurry.parts.terms import term
assert "torch" not in sys.modules and not isinstance(3, gradient.Tensor)
import torch
assert isinstance(torch.ones(1), gradient.Tensor)
assert gradient.torch.sqrt is torch.sqrt and term.F.relu is torch.nn.functional.relu
one, other = [torch.tensor([1.0, 2.0])], [torch.tensor([-1.0, 0.0])]
torch.compile(gradient.project, backend="eager", fullgraph=True)(one, other)
assert one[0].tolist() == [0.0, 2.0]
"""


def test_torch_itself_takes_its_place():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
