"""Rows of numbers: kept to the last bit, standardised by what was met, whatever their scale."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from iblurry.augment.pipeline import Augment, Pipeline
from iblurry.network.table_mlp import BYTES, CLIP, TableMLP, from_bytes, to_bytes
from iblurry.rng import Rng

ROWS = np.random.default_rng(0).normal([0, 1e6, -3e-6], [1, 30, 1e-7], (40, 3)).astype(np.float32)


def plain(numbers):
    """The pipeline that leaves bytes as they are."""
    return Pipeline(
        Augment(pad=0, flip=False, cutmix=0.0), shape=(1, numbers, BYTES), mean=(0.0,), std=(1 / 255,), device="cpu"
    )


def after(rows):
    body = TableMLP((1, rows.shape[1], BYTES), width=8)
    for image in to_bytes(rows):
        body.update_statistics(torch.from_numpy(image))
    return body


def test_bytes_are_the_numbers():
    odd = np.array([[0.0, -0.0, 1e-45, 3.4e38, -1.5, 1 / 3]], dtype=np.float32)
    assert from_bytes(to_bytes(odd)).tobytes() == odd.tobytes()
    assert to_bytes(ROWS).shape == (40, 1, 3, 4)


def test_every_byte_survives_the_pipeline():
    every = torch.arange(256, dtype=torch.uint8).view(1, 1, 64, 4)
    pipeline = plain(64)
    for images in (pipeline.test(every), pipeline.train(every, pipeline.draw_params(Rng(1), 0, 1))):
        assert images.to(torch.uint8).tolist() == every.tolist()
        assert images.flatten().tolist() == list(range(256))


@pytest.mark.parametrize("count", [1, 2, 17, 40])
def test_mean_and_scale_are_those_of_the_rows_met(count):
    rows = ROWS[:count].astype(np.float64)
    body = after(ROWS[:count])
    np.testing.assert_allclose(body.mean.numpy(), rows.mean(0), rtol=1e-12)
    want = rows.std(0) if count > 1 else np.ones(3)
    np.testing.assert_allclose(body.scale().numpy(), want, rtol=1e-7)


def test_a_number_that_never_changes_is_not_blown_up():
    constant = np.full((30, 2), 0.1, dtype=np.float32)
    body = after(constant)
    assert body.sum_squares.tolist() == [0, 0]
    assert body.scale().tolist() == [1, 1]
    assert TableMLP((1, 2, BYTES), width=8).scale().tolist() == [1, 1]  # nothing met yet


def test_what_the_layers_see():
    body, seen = after(ROWS), []
    body.layers.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    asked = np.concatenate([ROWS[:5], [[1e30, 1e6, -1e30]]]).astype(np.float32)
    assert body(plain(3).test(torch.from_numpy(to_bytes(asked)))).shape == (6, 8)
    exact = ROWS.astype(np.float64)
    want = np.clip((asked.astype(np.float64) - exact.mean(0)) / exact.std(0), -CLIP, CLIP)
    assert seen[0].dtype == torch.float32
    np.testing.assert_allclose(seen[0].numpy(), want, rtol=1e-5, atol=1e-6)
    assert seen[0][5, 0] == CLIP
    assert seen[0][5, 2] == -CLIP
