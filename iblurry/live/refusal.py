"""Refusal: every "no" to a request, with what to do about it."""

from __future__ import annotations

from iblurry.errors import InputError


class Refusal(InputError):  # noqa: N818 - nothing is wrong with the service
    """An HTTP status, a code for programs, a sentence for people, and seconds after which to try again."""

    def __init__(self, status: int, code: str, sentence: str, *, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.status, self.code, self.sentence, self.retry_after = status, code, sentence, retry_after
