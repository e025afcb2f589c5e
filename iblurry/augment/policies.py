"""AutoAugment's learned policies as data, and the ten magnitudes of each operation.

Cubuk et al., "AutoAugment: learning augmentation strategies from data", CVPR 2019.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

BINS = 10
SIGNED = frozenset(
    ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness")
)


STRENGTHS = (*sorted(SIGNED), "Posterize", "Solarize")  # operations with a magnitude


class PolicyStep(NamedTuple):
    """One of the two operations of a sub-policy."""

    operation: str
    probability: float
    bin: int | None  # index into `magnitudes`; None for operations without a magnitude


Policy = tuple[tuple[PolicyStep, PolicyStep], ...]


def magnitudes(height: int, width: int) -> dict[str, tuple[float, ...]]:
    """What the ten bins mean for images of this size; operations without a choice are not in it.

    Shears are slopes, translations whole pixels (towards zero), rotations degrees, the four enhancements are added to a
    factor of 1, posterize keeps so many bits, solarize inverts from a threshold on; in float32 as in torchvision.
    Solarize starts at 255 as in newer torchvision; older ones have 256, which is no pixel value and is refused by now.

    >>> magnitudes(32, 64)["TranslateY"][:5], magnitudes(32, 64)["TranslateX"][:5]
    ((0, 1, 3, 4, 6), (0, 3, 6, 9, 12))
    """
    shear, turn, enhance = bins(0.3), bins(30.0), bins(0.9)
    return {
        "ShearX": shear,
        "ShearY": shear,
        "TranslateX": tuple(map(int, bins(150 / 331 * width))),
        "TranslateY": tuple(map(int, bins(150 / 331 * height))),
        "Rotate": turn,
        "Brightness": enhance,
        "Color": enhance,
        "Contrast": enhance,
        "Sharpness": enhance,
        "Posterize": tuple(8 - round(4 * step / (BINS - 1)) for step in range(BINS)),
        "Solarize": bins(0.0, start=255.0),
    }


def randaugment(magnitude: int) -> Policy:
    """RandAugment with two operations an image, each any of fourteen with the same probability, all of one magnitude.

    Parameters
    ----------
    magnitude : int
        From 0 to 9, the bin of every operation.

    Cubuk et al., "RandAugment: practical automated data augmentation with a reduced search space", NeurIPS 2020.
    """
    plain = ("Identity", "AutoContrast", "Equalize")  # without a magnitude
    steps = [PolicyStep(operation, 1.0, None) for operation in plain]
    steps += [PolicyStep(operation, 1.0, magnitude) for operation in STRENGTHS]
    return tuple((first, second) for first in steps for second in steps)


def bins(end: float, *, start: float = 0.0) -> tuple[float, ...]:
    """Ten even steps."""
    return tuple(torch.linspace(start, end, BINS, dtype=torch.float32).tolist())


def _policy(text: str) -> Policy:
    """One sub-policy a line: operation, probability and bin of two steps."""
    lines = [line.split(",") for line in text.strip().splitlines()]
    return tuple((_step(first), _step(second)) for first, second in lines)


def _step(text: str) -> PolicyStep:
    operation, probability, *at = text.split()
    return PolicyStep(operation, float(probability), int(at[0]) if at else None)


POLICIES: dict[str, Policy] = {
    "cifar10": _policy("""
        Invert 0.1, Contrast 0.2 6
        Rotate 0.7 2, TranslateX 0.3 9
        Sharpness 0.8 1, Sharpness 0.9 3
        ShearY 0.5 8, TranslateY 0.7 9
        AutoContrast 0.5, Equalize 0.9
        ShearY 0.2 7, Posterize 0.3 7
        Color 0.4 3, Brightness 0.6 7
        Sharpness 0.3 9, Brightness 0.7 9
        Equalize 0.6, Equalize 0.5
        Contrast 0.6 7, Sharpness 0.6 5
        Color 0.7 7, TranslateX 0.5 8
        Equalize 0.3, AutoContrast 0.4
        TranslateY 0.4 3, Sharpness 0.2 6
        Brightness 0.9 6, Color 0.2 8
        Solarize 0.5 2, Invert 0.0
        Equalize 0.2, AutoContrast 0.6
        Equalize 0.2, Equalize 0.6
        Color 0.9 9, Equalize 0.6
        AutoContrast 0.8, Solarize 0.2 8
        Brightness 0.1 3, Color 0.7 0
        Solarize 0.4 5, AutoContrast 0.9
        TranslateY 0.9 9, TranslateY 0.7 9
        AutoContrast 0.9, Solarize 0.8 3
        Equalize 0.8, Invert 0.1
        TranslateY 0.7 9, AutoContrast 0.9
    """),
    "imagenet": _policy("""
        Posterize 0.4 8, Rotate 0.6 9
        Solarize 0.6 5, AutoContrast 0.6
        Equalize 0.8, Equalize 0.6
        Posterize 0.6 7, Posterize 0.6 6
        Equalize 0.4, Solarize 0.2 4
        Equalize 0.4, Rotate 0.8 8
        Solarize 0.6 3, Equalize 0.6
        Posterize 0.8 5, Equalize 1.0
        Rotate 0.2 3, Solarize 0.6 8
        Equalize 0.6, Posterize 0.4 6
        Rotate 0.8 8, Color 0.4 0
        Rotate 0.4 9, Equalize 0.6
        Equalize 0.0, Equalize 0.8
        Invert 0.6, Equalize 1.0
        Color 0.6 4, Contrast 1.0 8
        Rotate 0.8 8, Color 1.0 2
        Color 0.8 8, Solarize 0.8 7
        Sharpness 0.4 7, Invert 0.6
        ShearX 0.6 5, Equalize 1.0
        Color 0.4 0, Equalize 0.6
        Equalize 0.4, Solarize 0.2 4
        Solarize 0.6 5, AutoContrast 0.6
        Invert 0.6, Equalize 1.0
        Color 0.6 4, Contrast 1.0 8
        Equalize 0.8, Equalize 0.6
    """),
    "randaugment": randaugment(3),  # a third of the range, as the usual 9 of 30
}
