"""What happens to images on their way to the network: the dice on the host, the arithmetic on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from iblurry.augment.autoaugment import DRAWS, AutoAugment
from iblurry.augment.blocks import Blocks
from iblurry.augment.cutmix import Box, Mix, box
from iblurry.augment.geometry import CropFlip
from iblurry.augment.image_ops import Groups
from iblurry.augment.policies import POLICIES
from iblurry.errors import InputError, UnknownNameError
from iblurry.rng import Rng


@dataclass(frozen=True, kw_only=True)
class Augment:
    """How training images are varied; the paper's values."""

    pad: int = 4  # pixels of black border for the random crop
    flip: bool = True  # mirror half of the images
    policy: Literal["cifar10", "imagenet"] | None = None  # of AutoAugment, after crop and flip; None = without it
    cutmix: float = 0.5  # probability that a batch is mixed; 0 = never

    def __post_init__(self) -> None:
        if not isinstance(self.pad, int) or isinstance(self.pad, bool) or self.pad < 0:
            raise InputError(f"pad is {self.pad!r}, but it must be a whole number of pixels; 0 switches the crop off.")
        if not isinstance(self.flip, bool):
            raise InputError(f"flip is {self.flip!r}, but it must be True or False.")
        if self.policy not in (None, *POLICIES):
            raise UnknownNameError("AutoAugment policy", str(self.policy), [*POLICIES, "None"])
        if isinstance(self.cutmix, bool) or not isinstance(self.cutmix, int | float) or not 0 <= self.cutmix <= 1:
            raise InputError(f"cutmix is {self.cutmix!r}, but it must be a probability from 0 (never) to 1 (always).")


class AugmentParams(NamedTuple):
    """All that chance decides about one training batch of n images: one row of numbers, so that one copy brings it."""

    table: Tensor  # (3n + 5,) int64: places, partner, edges, and the bits of lam
    n: int
    mixes: bool  # whether there is a box at all; the host knows, so an eager step need not paste an empty one
    image_ops: (
        Tensor  # (2, n) int64: what AutoAugment's two steps do to each image, 0 = nothing; (2, 0) without a policy
    )
    groups: tuple[Groups, Groups] | None  # the images that share a deed; None = all is computed, at fixed shapes
    cut: (
        ParamViews | None
    )  # the table in its parts; None = to be cut when needed, as a captured step does with its own copy

    @property
    def places(self) -> Tensor:
        return self.parts.places

    @property
    def partner(self) -> Tensor:
        return self.parts.partner

    @property
    def edges(self) -> Tensor:
        return self.parts.edges

    @property
    def lam(self) -> Tensor:
        return self.parts.lam

    @property
    def parts(self) -> ParamViews:
        return self.cut or ParamViews(*(rows[0] for rows in _cut(self.table[None], self.n)))


class ParamViews(NamedTuple):
    """What a throw says."""

    places: Tensor  # (2, n) int64: where each crop starts, and whether it is mirrored (0) or upright (1)
    partner: Tensor  # (n,) int64: a permutation
    edges: Tensor  # (4,) int64: x1, y1, x2, y2 of the mixed box; all 0 = no box
    lam: Tensor  # (1,) float32: share of the own image, and of its label in the loss; 1 = not mixed


def _cut(table: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(steps, 3n + 5) -> the parts of all steps, each with its steps first; the same memory."""
    places, partner, edges = table[:, : 2 * n].view(-1, 2, n), table[:, 2 * n : 3 * n], table[:, 3 * n : 3 * n + 4]
    return places, partner, edges, table.view(torch.float32)[:, -2:-1]  # lam: the first half of the last number


class Pipeline:
    """Images as stored to images as the network wants them, for training and for testing."""

    def __init__(
        self,
        augment: Augment,
        shape: tuple[int, int, int],
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device | str = "cpu",
    ) -> None:
        channels, height, width = shape
        if augment.pad >= min(height, width):
            raise InputError(
                f"pad is {augment.pad}, but the images are {height}x{width} and a crop could miss them altogether; "
                f"use a pad below {min(height, width)}."
            )
        if len(mean) != channels or len(std) != channels or min(std) <= 0:
            raise InputError(
                f"mean is {tuple(mean)} and std is {tuple(std)}, but images of {channels} channels need {channels} "
                "numbers each, and every std above 0."
            )
        self.augment = augment
        self._height, self._width = height, width
        self._autoaugment = AutoAugment(augment.policy, shape, device) if augment.policy else None
        self._crop_flip = CropFlip(pad=augment.pad, flip=augment.flip, height=height, width=width, device=device)
        self._device = torch.device(device)
        self._no_deeds = torch.zeros(2, 0, dtype=torch.int64, device=device)
        self._mix = Mix(height=height, width=width, device=device)
        centre, spread = (torch.tensor(v, dtype=torch.float64).view(-1, 1, 1) for v in (tuple(mean), tuple(std)))
        self.compiled: dict[
            int, Callable[[Tensor, AugmentParams], Tensor]
        ] = {}  # `train` compiled for batches of this size
        self._thrown, self._drawn = Blocks(self._throw_all), Blocks(self._draw_all)
        # (x/255 - mean) / std = x * scale + shift, each (C, 1, 1)
        self._scale = (1 / (255 * spread)).to(device, torch.float32)
        self._shift = (-centre / spread).to(device, torch.float32)

    def draw_params(self, rng: Rng, step: int, n: int, purpose: str = "augment") -> AugmentParams:
        """Throw the dice for a training batch of n images, on the host; many steps are thrown at once.

        AutoAugment has dice of its own, so all else is the same with and without it.
        """
        params = self._thrown.at(rng, purpose, step, n=n, uniforms=4 * n + 4)
        if self._autoaugment is None:
            return params
        image_ops, groups = self._drawn.at(rng, f"{purpose} policy", step, n=n, uniforms=DRAWS * n)
        return params._replace(image_ops=image_ops, groups=groups)

    def _throw_all(self, uniforms: NDArray[np.float64], n: int) -> list[AugmentParams]:
        """(steps, 4n + 4) uniforms -> what they mean, step by step."""
        steps = len(uniforms)
        table = np.zeros((steps, 3 * n + 5), dtype=np.int64)
        table[:, : 2 * n] = self._crop_flip.places(uniforms[:, : 3 * n].reshape(steps, 3, n)).reshape(steps, 2 * n)
        table[:, 2 * n : 3 * n] = uniforms[:, 3 * n : 4 * n].argsort(axis=1, kind="stable")
        boxes = [self._box(*row) for row in uniforms[:, 4 * n :].tolist()]
        table[:, 3 * n : -1] = [box[:4] for box in boxes]
        table.view(np.float32)[:, -2] = [box.lam for box in boxes]
        there = self._to_device(torch.from_numpy(table))
        on_host = self._device.type == "cpu"  # cut here for all steps at once
        cuts = (
            [ParamViews(*row) for row in zip(*(part.unbind() for part in _cut(there, n)), strict=True)]
            if on_host
            else None
        )
        return [
            AugmentParams(row, n, box.lam < 1, self._no_deeds, None, cuts[step] if cuts else None)
            for step, (row, box) in enumerate(zip(there.unbind(), boxes, strict=True))
        ]

    def _draw_all(self, uniforms: NDArray[np.float64], n: int) -> list[tuple[Tensor, tuple[Groups, Groups] | None]]:
        """(steps, 5n) uniforms -> the deeds of both steps and who shares them, update by update."""
        assert self._autoaugment is not None
        steps = len(uniforms)
        image_ops = self._autoaugment.draw(uniforms.reshape(steps, DRAWS, n))
        there = self._to_device(torch.from_numpy(image_ops)).unbind()
        if self._device.type != "cpu":  # many small kernels would cost more than computing what is not needed
            return [(one, None) for one in there]
        groups = iter(self._autoaugment.image_ops.groups(image_ops.reshape(steps * 2, n)))
        return list(zip(there, zip(groups, groups, strict=True), strict=True))

    def _to_device(self, values: Tensor) -> Tensor:
        """Where the images are; the host does not wait for them to arrive there."""
        return values.pin_memory().to(self._device, non_blocking=True) if self._device.type == "cuda" else values

    def _box(self, mixed: float, share: float, cx: float, cy: float) -> Box:
        if mixed >= self.augment.cutmix:
            return Box(0, 0, 0, 0, 1.0)
        return box(share, int(cx * self._height), int(cy * self._width), self._height, self._width)

    def train(self, images: Tensor, params: AugmentParams) -> Tensor:
        """(B, C, H, W) uint8 -> float32, varied and mixed; the throw lies on the images' device."""
        images = self.vary(images, params)
        return self._mix(images, params.partner, params.edges) if params.mixes else images

    def vary(self, images: Tensor, params: AugmentParams) -> Tensor:
        """(B, C, H, W) uint8 -> float32, varied but not mixed; of a larger throw the first B count."""
        n = len(images)
        images = self._crop_flip(images, params.places[:, :n])
        if self._autoaugment is not None:
            images = self._autoaugment(images, params.image_ops[:, :n], params.groups)
        return self._normalise(images)

    def test(self, images: Tensor) -> Tensor:
        """(B, C, H, W) uint8 -> float32, as they are."""
        return self._normalise(images)

    def _normalise(self, images: Tensor) -> Tensor:
        assert images.dtype is torch.uint8, "pixels are uint8 until here: a float image would be scaled twice"
        return (images * self._scale).add_(self._shift)
