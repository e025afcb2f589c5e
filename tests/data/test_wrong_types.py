"""Whatever is given in the place of data gives a data set or one of our own errors, nothing else."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from PIL import Image

from iblurry.data.dataset import Dataset
from iblurry.data.load import load, register_source
from iblurry.errors import IblurryError

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 6, 6, 3), dtype=np.uint8)
PICTURE = Image.fromarray(PIXELS[0])


class Broken:
    columns = 3

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, row):
        raise RuntimeError("broken")


class Table(dict):
    columns = property(lambda self: list(self))

    def __len__(self):
        return 2


SCALARS = [None, 0, 1, -1, 3.5, float("nan"), True, "a", "", "\0", "\ud800", b"", b"xx", 1j, 10**30, object(), object]
HOLDERS = [[], (), {}, set(), [1], [None], ["a", 1], {"a": 1}, range(3), [[1, 2], [3]], Broken(3), Broken(-1), Dataset]
ARRAYS = [
    *(np.zeros(3), np.zeros((2, 2)), np.array("a"), np.zeros((0, 3, 3)), PIXELS, PIXELS / 255, PIXELS[0] * 5.0),
    *(torch.zeros(3), torch.zeros(3, 4, 4, dtype=torch.bfloat16), torch.zeros(2, 2, dtype=torch.complex64), PICTURE),
    np.array([1, None], dtype=object),
]
PAIRS = [
    *([(PICTURE, 1)], [(PIXELS[0], 0), (PIXELS[1], 1)], [(PIXELS[0], "a")], [(PIXELS[0], [1])], [(PICTURE, 10**30)]),
    *([(PIXELS[0], 1.5)], [("nofile", 1)], [("", 1)], [("\0", 1)], [(b"", 1)], [(np.zeros((3, 0, 4)), 1)]),
    *([(torch.zeros(3, 4, 4, requires_grad=True), torch.tensor(1))], [{"image": PICTURE, "label": 1}]),
    *(Table(path=["x", "y"], label=[1, 2]), Table(image=[PICTURE, PIXELS[0]], label=["a", "b"])),
    Table(image=[1], label=3),
]
ANYTHING = st.sampled_from([*SCALARS, *HOLDERS, *ARRAYS, *PAIRS])
DATA = st.one_of(ANYTHING, st.sampled_from(PAIRS))
COMMON = ("name", "classes", "size", "channels", "layout", "mean", "std")
CALLS = {
    "from_torch": (Dataset.from_torch, 2, COMMON),
    "from_huggingface": (Dataset.from_huggingface, 2, (*COMMON, "image", "label", "lazy")),
    "from_dataframe": (Dataset.from_dataframe, 2, (*COMMON, "path", "image", "label", "lazy", "root")),
    "from_arrays": (Dataset.from_arrays, 4, ("name", "classes", "mean", "std", "layout")),
    "load": (load, 1, ("size", "classes")),
    "register_source": (register_source, 1, ()),
}


@pytest.mark.quick("load", "from_arrays")
@pytest.mark.parametrize("name", CALLS)
def test_only_our_own_errors(name):
    call, places, options = CALLS[name]

    @settings(max_examples=300, derandomize=True)
    @given(st.tuples(*[DATA] * places), st.fixed_dictionaries({}, optional=dict.fromkeys(options, ANYTHING)))
    def check(data, chosen):
        with suppress(IblurryError):
            call(*data, **chosen)

    check()
