"""`python -m benchmarks.gpu.doors`: networks, optimizers and transforms of a user's own, captured as well as eager."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import sys
import warnings
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from benchmarks.gpu.equality import MEMORY, equal_experiment
from benchmarks.gpu.setup import BenchmarkSetup, Mode
from iblurry import Augment, Experiment, TorchTransform, Transform
from iblurry.parts import Plain


class Jitter(Transform):
    """Brightness of each image, up to a fifth either way."""

    uniforms: ClassVar[int] = 1

    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        bright = images * (0.8 + 0.4 * uniforms[:, :, None, None])
        return bright.clamp(0, 255).to(torch.uint8)


class Noise(nn.Module):
    """Draws from torch's own generator."""

    def forward(self, image: Tensor) -> Tensor:
        return (image + torch.rand_like(image, dtype=torch.float32) * 10).clamp(0, 255).to(torch.uint8)


class ReadsValues(nn.Module):
    """Cannot be captured: the host reads a value."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.layer = nn.Linear(features, 64)

    def forward(self, maps: Tensor) -> Tensor:
        features: Tensor = self.layer(maps.flatten(1))
        return features if float(features.detach().sum()) > -1e9 else -features


class Stochastic(nn.Module):
    """A residual layer that is left out at random, image by image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU())

    def forward(self, features: Tensor) -> Tensor:
        kept = torch.rand(len(features), 1, device=features.device) < 0.8 if self.training else 1.0
        return features + self.layer(features) * kept


class SignSGD(torch.optim.Optimizer):
    """An optimizer without state that says nothing of capture."""

    def __init__(self, params: Any, lr: float = 1e-3, decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(group["lr"] * (p.grad.sign() + group["decay"] * p))


def body(*layers: nn.Module) -> nn.Module:
    stem = [
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
    ]
    return nn.Sequential(*stem, nn.Linear(256, 64), nn.LayerNorm(64), nn.GELU(), *layers)


NETWORKS: dict[str, nn.Module] = {
    "norms": body(),
    "dropout": body(nn.Dropout(0.3)),
    "stochastic depth": body(Stochastic(64), Stochastic(64)),
    "no biases": nn.Sequential(nn.Conv2d(3, 8, 3, stride=4, bias=False), nn.Flatten(), nn.Linear(512, 32, bias=False)),
    "reads values": ReadsValues(3 * 32 * 32),
}
OPTIMIZERS: dict[str, Any] = {
    "AdamW": torch.optim.AdamW,
    "NAdam": torch.optim.NAdam,
    "Rprop": torch.optim.Rprop,
    "SGD with closure-free signs": functools.partial(SignSGD, decay=0.01),
}
TRANSFORMS: dict[str, Any] = {
    "own transform": (Augment(), Jitter()),
    "wrapped transform": (Augment(cutmix=0), TorchTransform(transform=Noise())),
}


def cases(setup: BenchmarkSetup, steps: int) -> dict[str, Experiment]:
    """Each with ER; networks that draw or are frozen with a method that looks at gradients, too."""
    er, mir, gdumb = (setup.experiment(name, memory=MEMORY, samples=steps) for name in ("er", "mir", "gdumb"))
    found = {name: dataclasses.replace(er, network=network) for name, network in NETWORKS.items()}
    found |= {f"mir, {name}": dataclasses.replace(mir, network=NETWORKS[name]) for name in ("dropout", "norms")}
    found["gdumb, dropout"] = dataclasses.replace(gdumb, network=NETWORKS["dropout"])
    found["frozen body"] = dataclasses.replace(er, network=NETWORKS["norms"], freeze="body")
    for name, optimizer in OPTIMIZERS.items():
        found[name] = dataclasses.replace(
            er, method=dataclasses.replace(er.method, optimizer=optimizer, readout=Plain())
        )
    return found | {name: dataclasses.replace(er, augment=augment) for name, augment in TRANSFORMS.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150, help="samples of each case")
    parser.add_argument("--only", nargs="*", help="names of cases")
    parser.add_argument("--compiled", action="store_true", help="compiled by torch.compile, too")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dataset", default="shapes:classes=10,train=60,test=10,size=32,channels=3")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    given = parser.parse_args()
    setup = BenchmarkSetup(device=given.device, dataset=given.dataset, network="convnet")
    data, rows = setup.load(), []
    modes: tuple[Mode, ...] = ("captured", "compiled") if given.compiled else ("captured",)
    for name, experiment in cases(setup, given.steps).items():
        if given.only and name not in given.only:
            continue
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            row = equal_experiment(name, experiment, setup, data, modes=modes)
        row["said"] = sorted({str(warning.message) for warning in said})
        rows.append(row)
        print(json.dumps(row, default=str), flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2, default=str) + "\n")
    sys.exit(0 if all(row["equal"] for row in rows) else 1)


if __name__ == "__main__":
    main()
