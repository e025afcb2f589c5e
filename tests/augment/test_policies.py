"""The policies against AutoAugment's tables, the magnitudes against the worked numbers."""

import json
from pathlib import Path

import pytest

from iblurry.augment.autoaugment import OPERATIONS, POLICIES, SIGNED, bins, magnitudes

GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text())["autoaugment_magnitudes"]


@pytest.mark.parametrize(
    "key, operations",
    [
        ("shear", ["ShearX", "ShearY"]),
        ("rotate", ["Rotate"]),
        ("enhance", ["Brightness", "Color", "Contrast", "Sharpness"]),
        ("solarize_255", ["Solarize"]),
    ],
)
def test_worked_magnitudes(key, operations):
    for operation in operations:
        assert magnitudes(32, 32)[operation] == pytest.approx(GOLDEN[key], abs=2e-5)


def test_the_older_solarize_is_another():
    assert bins(0.0, start=256.0) == pytest.approx(GOLDEN["solarize_256"], abs=2e-5)
    assert magnitudes(32, 32)["Solarize"] != pytest.approx(GOLDEN["solarize_256"], abs=0.5)


def test_whole_magnitudes():
    assert magnitudes(32, 32)["Posterize"] == tuple(GOLDEN["posterize_bits"])
    for side in (32, 64):
        for operation in ("TranslateX", "TranslateY"):
            assert magnitudes(side, side)[operation] == tuple(GOLDEN[f"translate_pixels_int_{side}"])


def test_every_worked_number_was_looked_at():
    assert set(GOLDEN) == {
        *("shear", "rotate", "enhance", "posterize_bits", "solarize_256", "solarize_255"),
        *("translate_pixels_int_32", "translate_pixels_int_64"),
    }


def test_width_shifts_along_x():
    made = magnitudes(32, 64)
    assert (made["TranslateY"], made["TranslateX"]) == tuple(
        tuple(GOLDEN[f"translate_pixels_int_{side}"]) for side in (32, 64)
    )


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_is_pairs_of_sensible_steps(name):
    policy = POLICIES[name]
    assert len(policy) == (14 * 14 if name == "randaugment" else 25)
    with_bins = set(magnitudes(32, 32))
    for pair in policy:
        assert len(pair) == 2
        for operation, chance, at in pair:
            assert operation in (*OPERATIONS, "Identity")
            assert 0 <= chance <= 1
            assert (at in range(10)) if operation in with_bins else at is None


def test_spot_checks():
    cifar, imagenet = POLICIES["cifar10"], POLICIES["imagenet"]
    assert cifar[0] == (("Invert", 0.1, None), ("Contrast", 0.2, 6))
    assert cifar[1] == (("Rotate", 0.7, 2), ("TranslateX", 0.3, 9))
    assert cifar[14] == (("Solarize", 0.5, 2), ("Invert", 0.0, None))
    assert cifar[24] == (("TranslateY", 0.7, 9), ("AutoContrast", 0.9, None))
    assert imagenet[0] == (("Posterize", 0.4, 8), ("Rotate", 0.6, 9))
    assert imagenet[12] == (("Equalize", 0.0, None), ("Equalize", 0.8, None))
    assert imagenet[18] == (("ShearX", 0.6, 5), ("Equalize", 1.0, None))
    assert imagenet[24] == imagenet[2]


@pytest.mark.parametrize("name, chances, levels", [("cifar10", 26.5, 187), ("imagenet", 31.0, 159)])
def test_sums_over_a_policy(name, chances, levels):
    """A slip in any one of the 50 steps shows here."""
    steps = [step for pair in POLICIES[name] for step in pair]
    assert (round(sum(s.probability for s in steps), 6), sum(s.bin or 0 for s in steps)) == (chances, levels)


def test_the_signed_operations():
    assert set(OPERATIONS) - SIGNED == {"Posterize", "Solarize", "AutoContrast", "Equalize", "Invert"}
    assert len(OPERATIONS) == 14
