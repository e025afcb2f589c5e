"""What a request may ask for: bytes, pixels, samples, characters and seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of a service; a request beyond one is refused with a sentence."""

    body: int = 16 * 2**20  # bytes of a request
    pixels: int = 16_000_000  # of one encoded image, before it is decoded
    batch: int = 256  # samples or questions of one request
    label: int = 200  # characters
    key: int = 200  # characters of an idempotency key
    queue: int = 1000  # samples accepted and not learnt yet
    seconds: float = 30  # to receive a request
    connections: int = 512
    listeners: int = 64  # to /v1/events
