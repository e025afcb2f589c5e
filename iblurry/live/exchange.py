"""What the HTTP side and the learner's side say to each other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from iblurry.live.limits import Limits

Shape = tuple[int, int, int]  # (C, H, W)
Event = tuple[str, dict[str, Any]]  # its name, its data


class Labelled(NamedTuple):
    """A sample to learn."""

    label: str
    pixels: NDArray[np.uint8]  # (C, H, W), of the service's shape


class Receipt(NamedTuple):
    """The numbers under which samples were accepted, from 1."""

    first: int
    last: int
    repeated: bool = False  # this request had been accepted before


class Answers(NamedTuple):
    """What one published state of the model makes of some images."""

    model: int  # samples it had learnt
    labels: tuple[str, ...]
    probabilities: NDArray[np.float32]  # (B, len(labels))


class Kept(NamedTuple):
    """A sample in the memory."""

    row: int
    label: str
    importance: float | None
    since: int  # the sample's number
    pixels: NDArray[np.uint8]  # (C, H, W)


class Shaped(Protocol):
    """Settings, as far as pictures are concerned."""

    @property
    def image(self) -> Shape: ...


class Service(Protocol):
    """A learner as HTTP sees it; everything is called from one asyncio loop, and a no is a Refusal."""

    @property
    def settings(self) -> Shaped: ...

    @property
    def limits(self) -> Limits: ...

    async def start(self) -> None: ...

    async def learn(self, samples: Sequence[Labelled], *, key: str | None = None) -> Receipt: ...

    async def predict(self, pixels: NDArray[np.uint8]) -> Answers: ...  # (B, C, H, W)

    def status(self) -> dict[str, Any]: ...

    def classes(self) -> list[dict[str, Any]]: ...

    def history(self) -> list[dict[str, Any]]: ...

    async def memory(self) -> list[Kept]: ...

    def ready(self) -> str | None: ...  # None, or a sentence why not

    def subscribe(self) -> AbstractContextManager[asyncio.Queue[Event]]: ...

    async def close(self) -> None: ...
