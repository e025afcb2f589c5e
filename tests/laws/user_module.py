"""Networks and optimizers as a user writes them; the laws are run over them."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

import iblurry


def flat(image, width):
    return [nn.Flatten(), nn.Linear(math.prod(image), width)]


@iblurry.register_network
def layer_norm(image, width=12):
    return nn.Sequential(*flat(image, width), nn.LayerNorm(width), nn.GELU())


@iblurry.register_network
def group_norm(image, channels: int = 8):
    convolution = nn.Conv2d(image[0], channels, 3, stride=2, padding=1)
    return nn.Sequential(convolution, nn.GroupNorm(2, channels), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())


@iblurry.register_network
def bias_free(image, width=12):
    layers = [nn.Flatten(), nn.Linear(math.prod(image), width, bias=False), nn.BatchNorm1d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, width, bias=False))


@iblurry.register_network
def dropout(image, width=12):
    return nn.Sequential(*flat(image, width), nn.ReLU(), nn.Dropout(0.3), nn.Linear(width, width), nn.ReLU())


class DropPath(nn.Module):
    """Stochastic depth: a sample, or on the host the whole block, is skipped; and dropout as a function."""

    def __init__(self, width, rate):
        super().__init__()
        self.layer, self.rate, self.scale = nn.Linear(width, width), rate, nn.Parameter(torch.ones(width))

    def forward(self, features):
        added = F.dropout(self.layer(features), self.rate, training=self.training) * self.scale
        if self.training:
            if torch.rand(()) < self.rate / 2:
                return features
            kept = torch.rand(len(features), 1, device=features.device) > self.rate
            added = added * kept / (1 - self.rate)
        return features + added


@iblurry.register_network
def stochastic_depth(image, width=12):
    return nn.Sequential(*flat(image, width), DropPath(width, 0.4), DropPath(width, 0.4), nn.ReLU())


def pretrained(image=(1, 8, 8), width=12):
    """A module with weights and statistics of its own, as one would load it from a file."""
    generator = torch.Generator().manual_seed(7)
    body = nn.Sequential(nn.Conv2d(image[0], 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(width))
    body(torch.rand(16, *image, generator=generator))
    with torch.no_grad():
        for values in body.state_dict().values():
            if values.is_floating_point():
                values.uniform_(0.1, 0.3, generator=generator)
    return body


class Lion(torch.optim.Optimizer):
    """Chen et al., "Symbolic discovery of optimization algorithms", 2023; its state has plain numbers."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), warmup: int = 5):
        super().__init__(params, {"lr": lr, "betas": betas, "warmup": warmup, "taken": 0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            group["taken"] += 1
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["steps"], state["mean"] = 0, torch.zeros_like(p)
                state["steps"] += 1
                rate = group["lr"] * min(1, state["steps"] / group["warmup"], group["taken"] / group["warmup"])
                p.add_(state["mean"].lerp(p.grad, 1 - beta1).sign(), alpha=-rate)
                state["mean"].lerp_(p.grad, 1 - beta2)


class Nesterov(iblurry.Optimizer):
    """NAdam with a decay of its own: fresh state that is not zeros."""

    decay: float = 0.01

    def build(self, groups):
        return torch.optim.NAdam([{"params": list(group)} for group in groups], momentum_decay=self.decay)
