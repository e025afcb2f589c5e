"""Calibration of a service's answers, and strangers: samples of classes that it never met.

It learns the first samples of seven tenths of the classes, as a service does. Then it is asked about test samples of
these and of the others. Closed forms read frozen features, other methods train the network. Mean over the seeds, which
choose the classes and the order:

  accuracy      of known samples, %
  ECE before    expected calibration error (15 bins) of the softmax of the logits, %
  ECE           the same at the fitted temperature, %
  alarms        known samples called unknown at --unknown-rate 0.05, %
  caught        strangers called unknown, %
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from pathlib import Path

import numpy as np
import torch

from iblurry import load
from iblurry.live.learning import LiveLearner
from iblurry.live.log import LogEntry
from iblurry.live.messages import Calibration, Operation
from iblurry.live.predictor import SnapshotModel
from iblurry.live.settings import Settings

METHODS = ["ncm", "slda", "ranpac", "er", "clib", "balm"]
CLOSED_FORMS = {"ncm", "slda", "ranpac"}
KNOWN = 0.7  # share of the classes
BATCH = 64


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--dataset", default="digits")
    arguments.add_argument("--classes", type=int, help="so many of its classes, the first ones; default: all")
    arguments.add_argument("--methods", nargs="+", default=METHODS)
    arguments.add_argument("--network", default="mlp", help="of methods that train it")
    arguments.add_argument("--frozen", default="mlp", help="of closed forms")
    arguments.add_argument("--samples", type=int, default=800, help="to learn")
    arguments.add_argument("--asked", type=int, default=1000, help="test samples of each kind, at most")
    arguments.add_argument("--seeds", type=int, default=3)
    given = arguments.parse_args()
    torch.set_num_threads(1)
    data = load(given.dataset)
    print("| method | accuracy | ECE before | ECE | alarms | caught |\n|---|---|---|---|---|---|")
    for method in given.methods:
        figures = np.array([measure(data, method, seed, given) for seed in range(1, given.seeds + 1)])
        print(f"| `{method}` | {' | '.join(f'{100 * figure:.1f}' for figure in figures.mean(0))} |", flush=True)


def measure(data, method, seed, given):
    """Shares: right, both calibration errors, false alarms, strangers caught."""
    rng = np.random.default_rng(seed)
    known = rng.permutation(given.classes or len(data.classes))
    strangers, known = known[int(KNOWN * len(known)) :], known[: int(KNOWN * len(known))]
    freeze, network = ("body", given.frozen) if method in CLOSED_FORMS else ("none", given.network)
    shape = data.train.images[0].shape
    settings = Settings(method=method, network=network, freeze=freeze, image=shape, max_classes=len(known), seed=seed)
    order = rng.permutation(np.flatnonzero(np.isin(data.train.labels, known)))[: given.samples]
    with tempfile.TemporaryDirectory() as folder:
        learning = LiveLearner(Path(folder), settings)
        for at, row in enumerate(order, 1):
            label, pixels = str(data.train.labels[row]), np.asarray(data.train.images[row]).tobytes()
            learning.apply(LogEntry(at, Operation("sample", at, label, pixels=pixels)))
    rows = [
        rng.permutation(np.flatnonzero(np.isin(data.test.labels, one)))[: given.asked] for one in (known, strangers)
    ]
    images = [np.stack([data.test.images[row] for row in each]) for each in rows]
    snapshot = learning.snapshot()
    before, _ = answer(settings, snapshot, Calibration(), images[0])
    after, least = answer(settings, snapshot, learning.calibrator.fitted, images[0])
    strange, _ = answer(settings, snapshot, learning.calibrator.fitted, images[1])
    truth = [learning.learner.labels.index(str(label)) for label in data.test.labels[rows[0]]]
    right = before.argmax(1) == truth
    errors = [ece(shares.max(1), right) for shares in (before, after)]
    return [right.mean(), *errors, (after.max(1) < least).mean(), (strange.max(1) < least).mean()]


def answer(settings, snapshot, calibration, images):
    """Probabilities (B, classes), and the threshold."""
    model = SnapshotModel(settings, 0.05)
    model.load(dataclasses.replace(snapshot, calibration=calibration))
    found = [model.predict(images[first : first + BATCH]) for first in range(0, len(images), BATCH)]
    return np.concatenate([one.probabilities for one in found]), found[0].threshold


def ece(confidences, right, bins=15):
    """Expected calibration error: the mean distance of confidence and accuracy over bins of equal width, weighted."""
    places = np.minimum((confidences * bins).astype(int), bins - 1)
    chosen = [places == place for place in range(bins)]
    return sum(one.mean() * abs(confidences[one].mean() - right[one].mean()) for one in chosen if one.any())


if __name__ == "__main__":
    main()
