"""From stored pixels to network input: random parameters drawn on the host, arithmetic on the device."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from iblurry.augment.autoaugment import AutoAugment, ImageGroups
from iblurry.augment.crop_cutmix import CropFlip, CutMix, CutMixBox, cutmix_box
from iblurry.augment.transform import NO_AUGMENT, UNIFORMS, Augment, Transform, Transforms, as_field, check_transforms
from iblurry.errors import InputError
from iblurry.rng import Rng

T = TypeVar("T")
TRIED = 3  # images that new transforms are tried on
SMALL = 32 * 32  # pixels of an image whose CutMix box is cached as a mask: calls take longer there than numbers
CACHED = 16  # blocks, each of one purpose and one batch size: a learner alternates between a few


class AugmentParams(NamedTuple):
    """All random parameters of one training batch of n images, in one row of numbers, so that one copy moves them.

    Parameters
    ----------
    table : Tensor
        (3n + 5,) int64: offsets, partner, edges and the bits of lam; see ParamViews.
    n : int
        Images in the batch.
    mixes : bool
        Whether there is a CutMix box; known on the host, so an eager step need not paste an empty one.
    image_ops : Tensor
        (2, n) int64: the operations of AutoAugment's two steps, 0 = none; (2, 0) without a policy.
    groups : tuple of ImageGroups, optional
        The images that share a kind of operation; None: every kind is computed, at fixed shapes.
    host_views : ParamViews, optional
        Views of `table`, made beforehand; None: made when needed, as a captured step does with its own copy.
    uniforms : tuple of Tensor
        (n, k) float32 in [0, 1) for each transform besides Augment.
    """

    table: Tensor
    n: int
    mixes: bool
    image_ops: Tensor
    groups: tuple[ImageGroups, ImageGroups] | None
    host_views: ParamViews | None
    uniforms: tuple[Tensor, ...] = ()

    @property
    def views(self) -> ParamViews:
        """The parts of the table."""
        return self.host_views or ParamViews(*(rows[0] for rows in _split_table(self.table[None], self.n)))

    @property
    def partner(self) -> Tensor:
        return self.views.partner

    @property
    def lam(self) -> Tensor:
        return self.views.lam

    def unmixed_from(self, first: int) -> AugmentParams:
        """The same, but the images from this one on keep themselves for a partner, so that they are not mixed."""
        table, n = self.table.clone(), self.n
        torch.arange(first, n, out=table[2 * n + first : 3 * n])
        return self._replace(table=table, host_views=None)


class StackedParams(NamedTuple):
    """The random parameters of several batches of n images each, for a pipeline that augments them as one."""

    tables: Tensor  # (batches, 3n + 5) int64: those of AugmentParams
    n: int
    image_ops: Tensor  # (2, batches * n) int64, or (2, 0)

    @classmethod
    def stack(cls, params: Sequence[AugmentParams]) -> StackedParams:
        """Joins the parameters of several batches of one size."""
        tables, image_ops = torch.stack([one.table for one in params]), torch.cat([one.image_ops for one in params], 1)
        return cls(tables, params[0].n, image_ops)

    def joined(self) -> AugmentParams:
        """The parameters of one batch of all images: boxes are given image by image, and lam (batches, 1) by batch."""
        offsets, partner, edges, lam = _split_table(self.tables, self.n)
        batches = len(self.tables)
        first = self.n * torch.arange(batches, device=partner.device)[:, None]  # image of each batch
        views = ParamViews(
            offsets.transpose(0, 1).flatten(1), (partner + first).flatten(), edges.repeat_interleave(self.n, 0).T, lam
        )
        return AugmentParams(self.tables, batches * self.n, True, self.image_ops, None, views)


class ParamViews(NamedTuple):
    """The parts of an AugmentParams' table."""

    offsets: Tensor  # (2, n) int64: the corner of each crop, and whether it is mirrored (0) or upright (1)
    partner: Tensor  # (n,) int64: a permutation
    edges: Tensor  # (4,) int64: x1, y1, x2, y2 of the CutMix box; all 0 = no box
    lam: Tensor  # (1,) float32: share of the own image, and of its label in the loss; 1 = not mixed
    inside: Tensor | None = None  # (1, H, W) float32: 1 in the box; None: made of the edges when needed
    rows: Tensor | None = None  # (n, C * H) int64: what `CropFlip.rows` makes of the offsets; None: not needed


def _split_table(table: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(steps, 3n + 5) -> the parts of all steps, each with its steps first; the same memory."""
    offsets, partner, edges = table[:, : 2 * n].view(-1, 2, n), table[:, 2 * n : 3 * n], table[:, 3 * n : 3 * n + 4]
    return offsets, partner, edges, table.view(torch.float32)[:, -2:-1]  # lam: the first half of the last number


class Pipeline:
    """Maps stored images (uint8) to network input (float32), for training and for testing.

    Parameters
    ----------
    augment : Transform or sequence of Transform
        What training images undergo, in this order; CutMix comes last.
    shape : tuple of int
        (channels, height, width).
    mean, std : sequence of float
        Per channel, of pixels scaled to [0, 1].
    device : torch.device or str, default "cpu"
        Where the images are.
    """

    def __init__(
        self,
        augment: Transforms,
        shape: tuple[int, int, int],
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device | str = "cpu",
    ) -> None:
        channels, height, width = shape
        transforms = check_transforms(augment)
        paper = next((one for one in transforms if type(one) is Augment), NO_AUGMENT)
        if paper.pad >= min(height, width):
            raise InputError(
                f"pad is {paper.pad}, but the images are {height}x{width} and a crop could miss them altogether; "
                f"use a pad below {min(height, width)}."
            )
        if len(mean) != channels or len(std) != channels or min(std) <= 0:
            raise InputError(
                f"mean is {tuple(mean)} and std is {tuple(std)}, but images of {channels} channels need {channels} "
                "numbers each, and every std above 0."
            )
        self.augment = as_field(transforms)
        self.compiled: dict[int, Callable[[Tensor, AugmentParams], Tensor]] = {}  # `vary_eagerly`, by batch size
        self.shape, self._height, self._width = shape, height, width
        self._device = torch.device(device)
        self._crop_flip = CropFlip(pad=paper.pad, flip=paper.flip, height=height, width=width, device=device)
        self._autoaugment = AutoAugment(paper.policy, shape, device) if paper.policy else None
        self._no_ops = torch.zeros(2, 0, dtype=torch.int64, device=device)
        self._cutmix, self._mix_share = CutMix(height=height, width=width, device=device), paper.cutmix
        self._params, self._policy_ops = BlockCache(self._make_params), BlockCache(self._make_policy_ops)
        # (x/255 - mean) / std = x * scale + shift, each (C, 1, 1)
        centre, spread = (torch.tensor(v, dtype=torch.float64).view(-1, 1, 1) for v in (tuple(mean), tuple(std)))
        self._scale = (1 / (255 * spread)).to(device, torch.float32)
        self._shift = (-centre / spread).to(device, torch.float32)
        others = [one for one in transforms if one is not paper]
        pixels = [one for one in others if one.works_on == "pixels"]
        before = transforms.index(paper) if paper in transforms else 0  # of the paper's recipe
        self._before, self._after = tuple(pixels[:before]), tuple(pixels[before:])
        self._floats = tuple(others[len(pixels) :])
        self.is_capturable = all(one.is_capturable for one in others)  # False: a step must not become a CUDA graph
        names = [type(one).__name__ for one in others]
        self._uniforms = [
            (f"transform {name} {names[:i].count(name)}", one.uniforms, BlockCache(partial(self._make_uniforms, one)))
            for i, (name, one) in enumerate(zip(names, others, strict=True))
        ]
        if others:
            _try(self, shape, others)

    def twin(self) -> Pipeline:
        """The same pipeline with a cache of its own: for another generator, as each keeps one block at a time."""
        twin = copy.copy(self)
        twin._params, twin._policy_ops = BlockCache(twin._make_params), BlockCache(twin._make_policy_ops)
        assert not self._uniforms, "further transforms have caches that this does not copy"
        return twin

    def draw_params(self, rng: Rng, step: int, n: int, purpose: str = "augment") -> AugmentParams:
        """The random parameters of a training batch of n images, drawn on the host, many steps at once.

        AutoAugment and every further transform have purposes of their own, so everything else is the same without.
        """
        params = self._params.at(rng, purpose, step, n=n, uniforms=4 * n + 4)
        if self._autoaugment is not None:
            image_ops, groups = self._policy_ops.at(rng, f"{purpose} policy", step, n=n, uniforms=UNIFORMS * n)
            params = params._replace(image_ops=image_ops, groups=groups)
        if self._uniforms:
            drawn = [cache.at(rng, f"{purpose} {name}", step, n=n, uniforms=k * n) for name, k, cache in self._uniforms]
            params = params._replace(uniforms=tuple(drawn))
        return params

    def _make_params(self, uniforms: NDArray[np.float64], n: int) -> list[AugmentParams]:
        """(steps, 4n + 4) uniforms -> the parameters of each step."""
        steps = len(uniforms)
        table = np.zeros((steps, 3 * n + 5), dtype=np.int64)
        table[:, : 2 * n] = self._crop_flip.offsets(uniforms[:, : 3 * n].reshape(steps, 3, n)).reshape(steps, 2 * n)
        table[:, 2 * n : 3 * n] = uniforms[:, 3 * n : 4 * n].argsort(axis=1, kind="stable")
        boxes = [self._draw_box(*row) for row in uniforms[:, 4 * n :].tolist()]
        table[:, 3 * n : -1] = [box[:4] for box in boxes]
        table.view(np.float32)[:, -2] = [box.lam for box in boxes]
        on_device = self._to_device(torch.from_numpy(table))
        views: list[ParamViews | None] = [None] * steps
        if self._device.type == "cpu":  # for all steps at once: a view costs as much as a small operation
            parts = _split_table(on_device, n)
            is_small = self._height * self._width <= SMALL
            inside = self._cutmix.inside(parts[2].T).unbind() if is_small else [None] * steps
            rows = self._crop_flip.rows(parts[0], self.shape[0]).unbind()
            views = [ParamViews(*row) for row in zip(*(part.unbind() for part in parts), inside, rows, strict=True)]
        return [
            AugmentParams(row, n, box.lam < 1, self._no_ops, None, view)
            for row, box, view in zip(on_device.unbind(), boxes, views, strict=True)
        ]

    def _make_policy_ops(
        self, uniforms: NDArray[np.float64], n: int
    ) -> list[tuple[Tensor, tuple[ImageGroups, ImageGroups] | None]]:
        """(steps, 5n) uniforms -> AutoAugment's operations and their groups, for each step."""
        assert self._autoaugment is not None
        steps = len(uniforms)
        image_ops = self._autoaugment.draw(uniforms.reshape(steps, UNIFORMS, n))
        on_device = self._to_device(torch.from_numpy(image_ops)).unbind()
        if self._device.type != "cpu":  # many small kernels would cost more than computing what is not needed
            return [(ops, None) for ops in on_device]
        groups = iter(self._autoaugment.image_ops.groups(image_ops.reshape(steps * 2, n)))
        return list(zip(on_device, zip(groups, groups, strict=True), strict=True))

    def _make_uniforms(self, transform: Transform, uniforms: NDArray[np.float64], n: int) -> Sequence[Tensor]:
        """(steps, nk) uniforms -> (n, k) float32 for each step; cut to 24 bits, as rounding could make 1 of them."""
        exact = (np.floor(uniforms * 2**24) * 2.0**-24).astype(np.float32)
        values = torch.from_numpy(exact.reshape(len(uniforms), n, transform.uniforms))
        return (self._to_device(values) if transform.is_capturable else values).unbind()

    def _to_device(self, values: Tensor) -> Tensor:
        return values.pin_memory().to(self._device, non_blocking=True) if self._device.type == "cuda" else values

    def _draw_box(self, mixed: float, share: float, cx: float, cy: float) -> CutMixBox:
        if mixed >= self._mix_share:
            return CutMixBox(0, 0, 0, 0, 1.0)
        return cutmix_box(share, int(cx * self._height), int(cy * self._width), self._height, self._width)

    def train(self, images: Tensor, params: AugmentParams) -> Tensor:
        """(B, C, H, W) uint8 -> float32, augmented and mixed; the parameters are on the images' device."""
        images = self.vary(images, params)
        return self._mix(images, params) if params.mixes else images

    def _mix(self, images: Tensor, params: AugmentParams) -> Tensor:
        inside = params.views.inside
        return self._cutmix(
            images, params.partner, self._cutmix.inside(params.views.edges) if inside is None else inside
        )

    def plain(self, images: Tensor, params: AugmentParams) -> Tensor:
        """(B, C, H, W) uint8 -> float32, mixed as `train` does but not augmented."""
        images = self.test(images)
        return self._mix(images, params) if params.mixes else images

    def vary(self, images: Tensor, params: AugmentParams) -> Tensor:
        """(B, C, H, W) uint8 -> float32, augmented but not mixed; parameters of a larger batch may be given."""
        return self.compiled.get(len(images), self.vary_eagerly)(images, params)

    def vary_eagerly(self, images: Tensor, params: AugmentParams) -> Tensor:
        """What `vary` does, by single operations: what an engine compiles. Mixed or not, it is compiled once."""
        n = len(images)
        drawn = iter(params.uniforms)
        for transform in self._before:
            images = _apply(transform, images, next(drawn))
        views = params.views
        images = self._crop_flip(images, views.offsets[:, :n], None if views.rows is None else views.rows[:n])
        if self._autoaugment is not None:
            images = self._autoaugment(images, params.image_ops[:, :n], params.groups)
        for transform in self._after:
            images = _apply(transform, images, next(drawn))
        images = self.test(images)
        for transform in self._floats:
            images = _apply(transform, images, next(drawn))
        return images

    def by_kernel(self) -> Callable[[Tensor, AugmentParams], Tensor] | None:
        """`vary_eagerly` as one kernel for batches of any size, where there is one for such images on this device."""
        others = self._before or self._after or self._floats
        if type(self) is not Pipeline or others or self._device.type != "cuda" or not find_spec("triton"):
            return None
        kernel = import_module("iblurry.augment.kernel")

        if not kernel.fits(self.shape):
            return None
        tables = self._autoaugment.image_ops.tables if self._autoaugment else None

        def vary(images: Tensor, params: AugmentParams) -> Tensor:
            n = len(images)
            offsets, numbers = params.views.offsets[:, :n], params.image_ops[:, :n] if tables else None
            crop = self._crop_flip.paths, self._crop_flip.pad
            done: Tensor = kernel.augment(images, offsets, *crop, numbers, tables, self._scale, self._shift)
            return done

        return vary

    def mirrored(self, images: Tensor) -> Tensor | None:
        """The stored images mirrored left to right; None where what is stored cannot be mirrored."""
        return images.flip(-1)

    def test(self, images: Tensor) -> Tensor:
        """(B, C, H, W) uint8 -> float32, normalised only."""
        assert images.dtype is torch.uint8, "pixels are uint8 until here: a float image would be scaled twice"
        return (images * self._scale).add_(self._shift)


class FeaturePipeline(Pipeline):
    """Maps stored features, the bytes of float32, to network input: nothing is augmented, mixed or normalised.

    Parameters
    ----------
    features : int
        Numbers of a sample.
    device : torch.device or str, default "cpu"
        Where they are.
    """

    def __init__(self, features: int, device: torch.device | str = "cpu") -> None:
        super().__init__((), shape=(1, features, 4), mean=(0.0,), std=(1.0,), device=device)

    def vary_eagerly(self, images: Tensor, params: AugmentParams) -> Tensor:
        return self.test(images)

    def test(self, images: Tensor) -> Tensor:
        """(B, 1, features, 4) uint8 -> (B, features) float32; floats, which an export has, stay as they are."""
        if images.is_floating_point():
            return images
        return images.contiguous().view(torch.float32).flatten(1)

    def mirrored(self, images: Tensor) -> None:
        """Features have no mirror image."""


def _apply(transform: Transform, images: Tensor, uniforms: Tensor) -> Tensor:
    done = transform(images, uniforms[: len(images)])
    if done.shape != images.shape or done.dtype != images.dtype:
        raise InputError(
            f"{type(transform).__name__} returned {done.dtype} {tuple(done.shape)} for {images.dtype} "
            f"{tuple(images.shape)}; a transform must keep shape and type."
        )
    return done


def _try(pipeline: Pipeline, shape: tuple[int, int, int], transforms: Sequence[Transform]) -> None:
    """Raises InputError for transforms that would not be the same in a resumed run, before a run has begun."""
    device = pipeline._device
    images = torch.arange(TRIED * math.prod(shape), device=device).remainder(256).to(torch.uint8).view(TRIED, *shape)
    values = torch.tensor([0.0, 0.5, 1 - 2.0**-24])[:, None]
    numbers = [values.expand(-1, one.uniforms).to(device if one.is_capturable else "cpu") for one in transforms]
    params = pipeline.draw_params(Rng(0), 0, TRIED)._replace(uniforms=tuple(numbers))
    before, generators = images.clone(), _generators(device)
    first = pipeline.train(images, params)
    names = " or ".join(type(one).__name__ for one in transforms)
    if not torch.equal(images, before):
        raise InputError(f"{names} changes the stored images that it gets; return a new tensor.")
    if not torch.equal(_generators(device), generators):
        raise InputError(
            f"{names} uses torch's global random generator, which a resumed run cannot repeat; use the argument "
            "`uniforms`, or wrap it in TorchTransform."
        )
    if not torch.equal(pipeline.train(images, params), first):
        raise InputError(
            f"{names} returns different results for the same images and random numbers, so a resumed run could "
            "not be exact; remove its state and its own random generator."
        )


def _generators(device: torch.device) -> Tensor:
    on_gpu = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return torch.cat([torch.get_rng_state(), *on_gpu])


class BlockCache(Generic[T]):
    """Computes what a block of uniforms means for all its steps at once, and keeps the result.

    Parameters
    ----------
    make : callable
        `make(uniforms, n)`: from (steps, k) uniforms to one value per step, for batches of n images.
    """

    def __init__(self, make: Callable[[NDArray[np.float64], int], Sequence[T]]) -> None:
        self._make = make
        self._cached: dict[tuple[str, int], tuple[NDArray[np.float64], Sequence[T]]] = {}

    def at(self, rng: Rng, purpose: str, step: int, *, n: int, uniforms: int) -> T:
        """The value of one step for n images, from so many uniforms of this purpose."""
        block, row = rng.block(purpose, step, uniforms)
        cached = self._cached.get((purpose, n))
        if cached is None or cached[0] is not block:
            self._cached.pop((purpose, n), None)
            if len(self._cached) == CACHED:
                del self._cached[next(iter(self._cached))]  # the oldest: a batch size that a growing memory passed
            cached = self._cached[purpose, n] = block, self._make(block, n)
        return cached[1][row]
