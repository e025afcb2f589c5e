"""Small real services: their settings, samples for them, and what a learner in peace would have left."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import torch

from iblurry.data.load import load
from iblurry.live.learning import LiveLearner
from iblurry.live.log import LogEntry
from iblurry.live.messages import IncomingSample, Operation
from iblurry.live.service import Service
from iblurry.live.settings import Settings
from iblurry.storage import checkpoint

SMALL = Settings(network="mlp", image=(1, 8, 8), memory=20, max_classes=12, batch=4)
DIGITS = load("digits")
PATIENCE = 60.0


def some(begin, end):
    """Samples of digits."""
    pairs = zip(DIGITS.train.images[begin:end], DIGITS.train.labels[begin:end], strict=True)
    return [IncomingSample(DIGITS.classes[label], image) for image, label in pairs]


def operations(begin, end):
    """The same as the log keeps them."""
    for number, (label, pixels) in enumerate(some(begin, end), begin + 1):
        yield Operation("sample", number, label, pixels=pixels.tobytes())


def entries(begin, end, times=None):
    """The same as the log gives them."""
    for at, operation in enumerate(operations(begin, end), begin + 1):
        yield LogEntry(at, operation, (times or {}).get(at, 0.0))


@asynccontextmanager
async def serving(folder, settings=SMALL, limits=None, **options):
    service = Service(folder, settings, limits, **options)
    await service.start()
    try:
        yield service
    finally:
        await service.close()


async def until(condition):
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


async def taught(service, begin, end, *, seen="learnt"):
    """Returns when it has learnt these samples too, or saved them."""
    await service.learn(some(begin, end))
    await until(lambda: service.status()[seen] == end)


def left_behind(folder, count):
    """Whether the last checkpoint is that of a learner that took these samples in peace."""
    peace = folder.parent / "peace"
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    peace.mkdir(exist_ok=True)
    learning = LiveLearner(peace, SMALL)
    saved = checkpoint.load_latest(folder).state["quality"]["points"]
    for entry in entries(0, count, {point["at"]: point["time"] for point in saved}):  # when they were accepted differs
        learning.apply(entry)
    learning.save()
    torch.set_num_threads(before)
    name = f"checkpoint-{count:012d}.safetensors"
    return (folder / name).read_bytes() == (peace / name).read_bytes()
