"""Our ER against CapyMOA's, one sample and one update at a time: `python -m benchmarks.capymoa_er`.

Needs Java and `pip install capymoa==0.15.1`. Both train the same MLP on the same stream with fused Adam and one thread:
one update per sample, each on 8 new and 8 remembered images. CapyMOA gets normalised floats and trains on them as they
are; ours gets pixels, normalises and crops them, and mixes half of the batches by CutMix.
"""

from __future__ import annotations

import statistics
import sys
from functools import partial
from unittest.mock import MagicMock

import numpy as np
import torch

from benchmarks.cost import BLOCK, bare_network, in_turns, observe_next, ratio, start
from iblurry import Experiment, StreamIterator, load

SPEC, HALF, MEMORY = "shapes:classes=10,train=8000,size=16,channels=1", 8, 500


def main() -> None:
    torch.set_num_threads(1)
    for name in ("", ".transforms", ".transforms.functional"):  # imported by CapyMOA for data sets not used here
        sys.modules[f"torchvision{name}"] = MagicMock()
    try:
        from capymoa.classifier import Finetune
        from capymoa.ocl.strategy import ExperienceReplay
        from capymoa.stream import Schema
    except ImportError as error:
        sys.exit(f"{error}. Install Java and CapyMOA first: pip install capymoa==0.15.1")
    data, experiment = load(SPEC), Experiment.of("er", SPEC, network="mlp", memory=MEMORY)
    learner, samples = start(experiment, data)
    stream = list(StreamIterator(data, experiment.order(data)))
    pixels = torch.from_numpy(np.stack([sample.image for sample in stream]))
    images = learner.context.pipeline.test(pixels).flatten(1)
    labels = torch.tensor([data.classes.index(sample.label) for sample in stream])
    batches = zip(images.split(HALF), labels.split(HALF), strict=True)
    names = [f"p{i}" for i in range(images.shape[1])]
    schema = Schema.from_custom([*names, "class"], "class", {"class": [str(label) for label in data.classes]})
    adam = partial(torch.optim.Adam, lr=3e-4, fused=True)
    theirs = ExperienceReplay(Finetune(schema, bare_network("mlp", data), adam), buffer_size=MEMORY, repeat=HALF)

    def observe() -> None:
        for _ in range(BLOCK):
            observe_next(learner, samples)

    def batch_train() -> None:
        for _ in range(BLOCK // HALF):
            theirs.batch_train(*next(batches))

    for _ in range(10):  # both memories are full
        observe(), batch_train()
    mine, capymoa = in_turns(observe, batch_train)
    print(f"ours / CapyMOA {ratio(mine, capymoa):.3f}, {1e3 * statistics.median(mine) / BLOCK:.2f} ms a sample")


if __name__ == "__main__":
    main()
