"""The networks' bodies, everything before the linear head: an MLP, a ConvNet, ResNets, ends of a pre-trained one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn import functional as F

Stem = Literal["cifar", "imagenet"]
SMALLEST_CONVNET = 8  # side in pixels; the last map is never smaller than 3x3, so batch norm can train on one image
SMALLEST_RESNET: dict[Stem, int] = {"cifar": 16, "imagenet": 64}  # the side whose last map is 2x2, likewise


class MLP(nn.Module):
    """Flatten, then twice linear and ReLU.

    Parameters
    ----------
    image : tuple of int
        (channels, height, width).
    width : int
        Units of each hidden layer.
    """

    def __init__(self, image: tuple[int, int, int], *, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(math.prod(image), width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.features = width

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, width)."""
        features: Tensor = self.layers(images)
        return features


class ConvNet(nn.Module):
    """Units of width, 2*width, 4*width, 4*width, ... that halve the map until its short side is 4 or 3, then flatten.

    8x8 images take two units. One update of 16 of them costs 2.9 ms on one Neoverse-N1 core; a third unit doubles that
    and learns digits no better, and an average pool in place of the flattening learns them worse.

    Parameters
    ----------
    image : tuple of int
        (channels, height, width); the shorter side has at least 8 pixels.
    width : int
        Channels of the first unit.
    """

    def __init__(self, image: tuple[int, int, int], *, width: int) -> None:
        super().__init__()
        channels, height, breadth = image
        units = [ConvUnit(channels, width)]
        last = width
        while min(height, breadth) > 4:
            wider = min(2 * last, 4 * width)
            units.append(ConvUnit(last, wider, stride=2))
            last, height, breadth = wider, (height + 1) // 2, (breadth + 1) // 2
        self.layers = nn.Sequential(*units, nn.Flatten())
        self.features = last * height * breadth

    def forward(self, images: Tensor) -> Tensor:
        """(B, channels, H, W) -> (B, features)."""
        features: Tensor = self.layers(images)
        return features


class ResNet(nn.Module):
    """Stem, four stages of blocks (widths 64, 128, 256, 512; strides 1, 2, 2, 2), global average pool.

    He et al., "Deep residual learning for image recognition", CVPR 2016.
    Differs: ReLU before the sum on both branches (see ResidualBlock), as in the published experiments of CLIB.

    Parameters
    ----------
    channels : int
        Channels of the images.
    blocks : sequence of int
        Blocks of each stage: (2, 2, 2, 2) is ResNet-18, (3, 4, 6, 3) is ResNet-34.
    stem : {"cifar", "imagenet"}
        cifar: 3x3 unit, stride 1. imagenet: 7x7 unit, stride 2, then 3x3 max-pool, stride 2.
    """

    def __init__(self, channels: int, *, blocks: Sequence[int], stem: Stem) -> None:
        super().__init__()
        layers: list[nn.Module] = (
            [ConvUnit(channels, 64)]
            if stem == "cifar"
            else [ConvUnit(channels, 64, kernel=7, stride=2), nn.MaxPool2d(3, stride=2, padding=1)]
        )
        last = 64
        for width, stride, depth in zip((64, 128, 256, 512), (1, 2, 2, 2), blocks, strict=True):
            layers += [ResidualBlock(last, width, stride=stride)]
            layers += [ResidualBlock(width, width) for _ in range(depth - 1)]
            last = width
        self.layers = nn.Sequential(*layers)
        self.features = last

    def forward(self, images: Tensor) -> Tensor:
        """(B, channels, H, W) -> (B, 512)."""
        maps: Tensor = self.layers(images)
        return maps.mean(dim=(2, 3))


class ResidualBlock(nn.Module):
    """unit(unit(x)) + shortcut(x): both branches end with ReLU, and nothing follows the sum.

    The shortcut is the identity when the shape stays, else a full 1x1 unit. The ReLU that the ImageNet variant has
    after the sum is left out: behind its stem both terms are never negative, so it changes nothing.
    """

    def __init__(self, channels: int, width: int, *, stride: int = 1) -> None:
        super().__init__()
        self.branch = nn.Sequential(ConvUnit(channels, width, stride=stride), ConvUnit(width, width))
        same = channels == width and stride == 1
        self.shortcut = nn.Identity() if same else ConvUnit(channels, width, kernel=1, stride=stride)

    def forward(self, maps: Tensor) -> Tensor:
        """(B, channels, H, W) -> (B, width, H / stride, W / stride)."""
        units: Any = self.branch
        first, last = units
        if first.finish is not None:
            first.receives = PassedGradient()
            if isinstance(self.shortcut, ConvUnit):
                self.shortcut.passes = first.receives
            else:
                last.passes_sum = first.receives
        added: Tensor = last(first(maps), plus=self.shortcut(maps))
        return added


class PassedGradient:
    """The gradient that a block's input gets by the shortcut, on its way to the first unit of the branch.

    That unit's convolution adds it to its own by the same kernel; autograd would add them by another one.
    """

    def __init__(self) -> None:
        self.is_awaited = False  # whether the first unit will take it
        self.gradient: Tensor | None = None

    def take(self) -> Tensor | None:
        """What was put there, once."""
        gradient, self.gradient, self.is_awaited = self.gradient, None, False
        return gradient


class ConvUnit(nn.Sequential):
    """A convolution without bias that keeps the side (over the stride), batch norm with eps 1e-6, ReLU.

    Optional attributes replace parts of `forward`; see convolutions.py, folding.py and arm.py in `engine/`.
    """

    fused: Callable[..., Tensor] | None = None  # the whole unit in eval mode, and the sum behind it
    convolve: Callable[[Tensor, ConvUnit], Tensor] | None = None  # the convolution of a training step
    finish: Callable[[Tensor, ConvUnit, Tensor | None], Tensor] | None = None  # what follows it, and the sum behind
    weight_bf16: Tensor | None = None  # the convolution's weight rounded to bfloat16, during a forward pass
    receives: PassedGradient | None = None  # what the convolution's gradient is added to, during a training step
    passes: PassedGradient | None = None  # where the convolution puts the gradient for its input
    passes_sum: PassedGradient | None = None  # where `finish` puts the gradient for the maps that are added
    weight_stream: Any = None  # where the gradient for the convolution's weight is computed

    def __init__(self, channels: int, width: int, *, kernel: int = 3, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(channels, width, kernel, stride, padding=kernel // 2, bias=False),
            BatchNorm(width, eps=1e-6, momentum=0.1),
            nn.ReLU(inplace=True),
        )

    def forward(self, maps: Tensor, plus: Tensor | None = None) -> Tensor:
        """(B, channels, H, W) -> (B, width, H / stride, W / stride), with `plus` added."""
        if self.fused is not None:
            return self.fused(maps, plus)
        convolution, norm, relu = self
        maps = convolution(maps) if self.convolve is None else self.convolve(maps, self)
        if self.finish is not None:
            return self.finish(maps, self, plus)
        maps = relu(norm(maps))
        return maps if plus is None else maps + plus

    @property
    def convolution(self) -> nn.Conv2d:
        conv = self[0]
        assert isinstance(conv, nn.Conv2d)
        return conv

    @property
    def norm(self) -> nn.BatchNorm2d:
        norm = self[1]
        assert isinstance(norm, nn.BatchNorm2d)
        return norm


class BatchNorm(nn.BatchNorm2d):
    """Batch norm that does not count its batches: nothing reads the count, and counting is one kernel per layer."""

    def forward(self, maps: Tensor) -> Tensor:
        mean, var, momentum = self.running_mean, self.running_var, self.momentum
        assert momentum is not None
        return F.batch_norm(maps, mean, var, self.weight, self.bias, self.training, momentum, self.eps)


class StoredFeatures(nn.Module):
    """A body without weights for features that were computed before: the head sees them as they are.

    Parameters
    ----------
    features : int
        How many numbers a sample has.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.features = features

    def forward(self, features: Tensor) -> Tensor:
        """(B, features) float, as `FeaturePipeline` reads them from the memory."""
        return features


class Resize(nn.Module):
    """Images of 1 or 3 channels as three channels of side x side pixels, bicubic.

    Parameters
    ----------
    side : int
        Pixels.
    """

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, images: Tensor) -> Tensor:
        resized = F.interpolate(images, size=(self.side, self.side), mode="bicubic", align_corners=False)
        return resized.expand(-1, 3, -1, -1)


class FeatureMaps(nn.Module):
    """The last maps of an EfficientNet, (B, 1280, h, w).

    Parameters
    ----------
    network : nn.Module
        Of the package; its classifier is left out.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        network._fc = nn.Identity()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        extract: Any = self.network.extract_features
        maps: Tensor = extract(images)
        return maps
