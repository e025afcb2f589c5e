"""Every "no" to a request: a status, a code for programs and a sentence for people."""

from __future__ import annotations

from typing import Any

from iblurry.errors import InputError


class Refusal(InputError):  # noqa: N818  a no is not an error
    """Raised by anything that says no to a request; `retry_after` is in seconds."""

    def __init__(self, status: int, code: str, sentence: str, *, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.status, self.code, self.sentence, self.retry_after = status, code, sentence, retry_after

    def __reduce__(self) -> tuple[Any, ...]:  # it may have to travel from one process to another
        return _again, (self.status, self.code, self.sentence, self.retry_after)


def _again(status: int, code: str, sentence: str, retry_after: float | None) -> Refusal:
    return Refusal(status, code, sentence, retry_after=retry_after)
