"""Builds a network from a name, a factory or a module, and opens the rows of its head."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from iblurry.components.code_hash import is_own
from iblurry.errors import InputError
from iblurry.network.network import Network
from iblurry.network.registry import AnyNetwork, Image, Initialise, find_network, is_pretrained, without_options
from iblurry.network.weights import redraw, seeded
from iblurry.rng import Rng


def build(
    network: AnyNetwork,
    image: Image,
    rows: int,
    *,
    rng: Rng,
    initialise: Initialise | None = None,
    freeze: str = "none",
) -> Network:
    """A network at its initial weights with a head whose rows are all closed.

    Parameters
    ----------
    network : str, callable or nn.Module
        A name ("mlp", "convnet", "resnet18", "resnet34" or one that was registered), with options or without
        ("resnet18:stem=cifar"); a factory from the image shape to a body; or a body, which is copied. A body maps
        (B, C, H, W) to (B, features).
    image : tuple of int
        (channels, height, width).
    rows : int
        Rows of the head: the most classes it can learn.
    rng : Rng
        The initial weights of the body are drawn from it.
    initialise : {"redraw", "keep"}, optional
        Whether all weights are drawn by the package's rules, or stay as the factory or module has them; a factory runs
        with torch's generator seeded. Default: "redraw" for the built-in networks, "keep" for a user's.
    freeze : str, default "none"
        "body", or names of the body's submodules and parameters, separated by commas, that are not trained. Submodules
        stay in eval mode.

    Examples
    --------
    >>> network = build("convnet", (1, 8, 8), 10, rng=Rng(seed=1))
    >>> network.rows, network.known
    (10, 0)
    """
    make = find_network(network)
    name = network if isinstance(network, str) else type(network).__name__
    is_module = isinstance(make, nn.Module)
    if initialise is None:
        keeps = is_module or is_pretrained(make, None) or not is_own(without_options(make))
        initialise = "keep" if keeps else "redraw"
    if not isinstance(initialise, str) or initialise not in get_args(Initialise):
        raise InputError(f"initialise={initialise!r} is neither 'redraw' nor 'keep'.")
    with seeded(rng.seed_for("network", 0)):  # torch's layers draw from the global generator when they are made
        body = copy.deepcopy(make) if is_module else make(image)
        if not isinstance(body, nn.Module):
            raise InputError(f"The network {name!r} returned {body!r:.80}, which is not an nn.Module.")
        built = Network(body, rows, features=None if is_own(type(body)) else _count_features(body.cpu(), image))
    if initialise == "redraw":
        redraw(body, rng)
    built.keeps_weights = initialise == "keep"
    built.freeze(freeze)
    if not is_own(type(body)):
        _try_training(built, image)
    return built


@torch.no_grad()
def restart(network: Network, labels: Sequence[str | int], rng: Rng) -> None:
    """The network starts again in place, with a row open for each of these classes.

    Parameters
    ----------
    network : Network
        Whose weights are drawn again, or become those that it was made with.
    labels : sequence of str or int
        In the order of their rows.
    rng : Rng
        What weights are drawn from.
    """
    network.restart_body(rng)
    network.close()
    for label in labels:
        open_row(network, label, rng)


def _count_features(body: nn.Module, image: Image) -> int:
    """How many numbers a body returns for an image, by one forward pass of zeros in eval mode."""
    name = type(body).__name__
    try:
        returned: Any = body.eval()(torch.zeros(1, *image))
    except Exception as error:
        raise InputError(f"The body {name} cannot take images of shape (B, {str(image)[1:]}: {error}") from error
    if not isinstance(returned, Tensor):
        raise InputError(
            f"The body {name} returns a {type(returned).__name__}; return a tensor of shape (B, features), as "
            "`output.pooler_output` or `output[0]` is."
        )
    if returned.dim() == 4:
        raise InputError(
            f"The body {name} returns maps of shape {tuple(returned.shape)}; pool them to (B, features), as "
            "nn.Sequential(body, nn.AdaptiveAvgPool2d(1), nn.Flatten()) does."
        )
    if returned.dim() != 2 or len(returned) != 1 or not returned.is_floating_point():
        raise InputError(
            f"The body {name} returns {returned.dtype} of shape {tuple(returned.shape)} for one image; it must return "
            "floating-point numbers of shape (B, features), as nn.Flatten() makes them."
        )
    return returned.shape[1]


@torch.no_grad()
def _try_training(network: Network, image: Image) -> None:
    """Finds out by a copy whether a training pass draws random numbers, and whether it can do with one image.

    InputError for what cannot be reproduced.
    """
    trial, name = network.twin(), type(network.body).__name__
    others = _other_generators()
    found = {}
    with seeded(0):
        for mode in (False, True):
            before = torch.get_rng_state()
            trial.train(mode).body(torch.zeros(2, *image))
            found[mode] = not torch.equal(torch.get_rng_state(), before)
        try:
            trial.body(torch.zeros(1, *image))
        except ValueError:  # of batch norm
            network.norms_need_two = True
    if _other_generators() != others:
        raise InputError(
            f"The body {name} draws from Python's or NumPy's global generator, so a run could not be resumed exactly; "
            "draw with torch instead, as torch.rand() does."
        )
    if found[False]:
        raise InputError(
            f"The body {name} draws random numbers in eval mode, so one question would have several answers; draw only "
            "`if self.training`."
        )
    network.draws = found[True]


def _other_generators() -> list[object]:
    """The states of Python's and NumPy's global generators."""
    state: Any = np.random.get_state()
    return [random.getstate(), *(value.tolist() if isinstance(value, np.ndarray) else value for value in state)]


def open_row(network: Network, label: str | int, rng: Rng, *, redraw: Literal["own", "bias", "all"] = "own") -> int:
    """Opens the next head row for a new class and returns it; numbers are drawn uniform in ±1/sqrt(features).

    Parameters
    ----------
    network : Network
        Whose head has a free row.
    label : str or int
        Of the new class.
    rng : Rng
        What weight and bias are drawn from.
    redraw : {"own", "bias", "all"}
        What is drawn: weight and bias of this row, the whole bias and the weight of this row, or the whole head.
    """
    row, rows, features = network.next_row, network.rows, network.features

    def draw(purpose: str, n: int) -> Tensor:
        drawn = (2 * rng.uniforms(purpose, row, n) - 1) * (1 / math.sqrt(features))
        return torch.from_numpy(drawn.astype(np.float32))

    own = draw("head", features + 1)
    weight = draw("head weight", rows * features).view(rows, features) if redraw == "all" else own[:features]
    bias = own[features:] if redraw == "own" else draw("head bias", rows)
    return network.expose(label, weight, bias)
