"""Training images on the device: the same pixels, one copy, and only where they fit."""

from __future__ import annotations

import dataclasses
import gc
import weakref

import numpy as np
import pytest
import torch

from iblurry.data.images import PictureFiles
from iblurry.data.load import load
from iblurry.experiment import evaluator as module
from iblurry.experiment import run_loop
from iblurry.experiment.evaluator import device_images
from iblurry.launch.launch import run
from tests.experiment.small import DATA, kept, small

CPU = torch.device("cpu")


@pytest.fixture
def data():
    return load(DATA)


@pytest.mark.parametrize("chunk", [7, 80, 4096])
def test_the_same_pixels_in_a_copy(chunk, data, monkeypatch):
    monkeypatch.setattr(module, "COPIED", chunk)
    images = device_images(data, CPU)
    assert images.dtype == torch.uint8
    assert np.array_equal(images.numpy(), data.train.images)
    assert not np.shares_memory(images.numpy(), data.train.images)


def test_an_array_that_may_not_be_written_to(data):
    pixels = data.train.images.copy()
    pixels.flags.writeable = False
    fixed = dataclasses.replace(data, train=dataclasses.replace(data.train, images=pixels))
    assert np.array_equal(device_images(fixed, CPU).numpy(), pixels)


def test_one_copy_for_a_data_set_while_there_is_one(data):
    images = device_images(data, CPU)
    assert device_images(data, torch.device("cpu")) is images
    assert device_images(load(DATA), CPU) is not images


@pytest.mark.slow
def test_it_goes_with_the_data_set():
    data = load(DATA)
    gone = weakref.ref(device_images(data, CPU))
    gc.collect()
    assert gone() is not None
    del data
    gc.collect()
    assert gone() is None


def test_only_what_fits(data, monkeypatch):
    size = data.train.images.size
    monkeypatch.setenv("IBLURRY_EAGER_BYTES", str(size - 1))
    assert device_images(data, CPU) is None
    monkeypatch.setenv("IBLURRY_EAGER_BYTES", str(size))
    assert device_images(data, CPU) is not None


def test_pictures_stay_on_the_disk(data, tmp_path):
    pictures = PictureFiles(tmp_path, [f"{n}.png" for n in range(len(data.train))], data.shape)
    lazy = dataclasses.replace(data, train=dataclasses.replace(data.train, images=pictures))
    assert device_images(lazy, CPU) is None


def test_a_run_that_takes_its_images_from_there(data, tmp_path, monkeypatch):
    plain = run(small("clib"), tmp_path / "plain", dataset=data)
    taken = []

    class Counting:
        def __getitem__(self, index):
            taken.append(index)
            return device_images(data, CPU)[index]

    monkeypatch.setattr(run_loop.RunLoop, "has_remote_tensors", True)
    monkeypatch.setattr(run_loop, "device_images", lambda dataset, device: Counting())
    there = run(small("clib"), tmp_path / "there", dataset=data)
    assert kept(there.folder) == kept(plain.folder)
    assert taken == small("clib").order(data).indices.tolist()
