"""Switching accelerations off: every switch fits the package, what takes their place computes the same, lines last."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from benchmarks.gpu import switches
from benchmarks.gpu.accelerations import AnyTriton, table
from iblurry.engine.convolutions import OwnConvolutions
from iblurry.network.bodies import ConvUnit, ResNet

ROOT = Path(__file__).parents[1]
DATA = "shapes:classes=10,train=80,test=6,size=8,channels=3"
SMALL = ["--device", "cpu", "--network", "mlp", "--memory", "32", "--dataset", DATA, "--epochs", "1"]
SHORT = ["--methods", "er", "gdumb", "--samples", "er=300", "gdumb=100", "--first", "100", "--rounds", "1"]


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own: switches change the whole package, and a test's process should not be forked."""
    places = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *words], env=os.environ | places, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.slow
def test_all_that_is_replaced_is_there():
    done = run("-m", "benchmarks.gpu.accelerations", "--check")
    assert done.returncode == 0, done.stdout
    assert set(json.loads(done.stdout)) == set(switches.ROWS)


@pytest.mark.slow
def test_a_training_pass_without_own_kernels_has_the_same_gradients():
    done = run(Path(__file__))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_every_measurement_is_a_line_and_a_second_call_continues(tmp_path):
    out = tmp_path / "lines.jsonl"
    words = ["-m", "benchmarks.gpu.accelerations", *SMALL, *SHORT, "--out", out, "--only", "on", "forward"]
    run(*words)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line["method"], line["row"]) for line in lines] == [
        (method, row) for method in ("er", "gdumb") for row in ("on", "forward")
    ]
    for line in lines:
        failed = line["row"] == "forward" and find_spec("triton") is None  # the others go on
        assert ("error" in line) == failed
        assert failed or line["whole seconds"] > 0
    out.write_text("".join(json.dumps(line) + "\n" for line in lines[1:]) + '{"row": "on", "me')
    again = run(*words)
    assert len([json.loads(line) for line in out.read_text().splitlines()]) == 4
    assert "er     on" in again.stdout


def test_ratios_are_those_of_the_least_and_of_the_mean():
    def line(row, seconds, journal="a"):
        usual = {"method": "er", "samples": 9, "query ms": 1.0, "process seconds": 1.0}
        return {"row": row, "whole seconds": seconds, "journal": journal, **usual}

    failed = {"row": "norm", "method": "er", "error": "ValueError: no"}
    words = table([line("on", 2.0), line("on", 4.0), line("adam", 3.0, "b"), line("adam", 6.0, "b"), failed])
    assert words.splitlines()[2].split() == ["er", "adam", "3.0", "1.500", "1.500", "1.00", "1.0", "other"]
    assert "ValueError: no" in words.splitlines()[3]


def compare_passes() -> None:
    """A ResNet by torch, and one by what takes the place of the own kernels; bit for bit."""
    if find_spec("triton") is None:
        sys.meta_path.append(AnyTriton())
    switches.leave_out_forward()
    switches.leave_out_input_gradient()
    switches.leave_out_weight_gradient()
    switches.leave_out_norm()
    switches.leave_out_patches()
    from iblurry.engine.hopper import training

    torch.manual_seed(0)
    plain = ResNet(3, blocks=(1, 1, 1, 1), stem="cifar").to(memory_format=torch.channels_last)
    other = copy.deepcopy(plain)
    units = [unit for unit in other.modules() if isinstance(unit, ConvUnit)]
    OwnConvolutions(units, training.convolve, training.finish)
    images = torch.randn(16, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    for body in (plain, other):
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            features = body(images)
        features.float().square().sum().backward()
    for one, same in zip(plain.parameters(), other.parameters(), strict=True):
        assert torch.equal(one.grad, same.grad)


if __name__ == "__main__":
    compare_passes()
