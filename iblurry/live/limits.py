"""Limits: how much one request, and all that wait, may ask of a service."""

from __future__ import annotations

from dataclasses import dataclass, fields

from iblurry.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """A request beyond one of them is refused with a sentence."""

    body: int = 16 * 2**20  # bytes of a request
    pixels: int = 16_000_000  # of one encoded image, before it is decoded
    batch: int = 256  # samples or questions of one request
    label: int = 200  # characters
    key: int = 200  # characters of an idempotency key
    queue: int = 1000  # samples accepted and not learnt yet
    seconds: float = 30  # to receive a request
    connections: int = 512
    listeners: int = 64  # to /v1/events

    def __post_init__(self) -> None:
        for limit in fields(self):
            if not getattr(self, limit.name) > 0:
                raise InputError(f"The limit {limit.name}={getattr(self, limit.name)} must be above 0.")
