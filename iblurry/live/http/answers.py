"""Answers in JSON, and refusals among them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from iblurry.live.refusal import Refusal

SAFE = {  # an answer is data: not to be sniffed, kept, framed or read by another site
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Json(Response):
    """Data as JSON; a number that is none, such as the loss of a diverged run, is null."""

    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(content, status_code, headers={**SAFE, **(headers or {})})

    def render(self, content: Any) -> bytes:
        return dumps(content).encode()


def refused(no: Refusal, headers: Mapping[str, str] | None = None) -> Json:
    """`{"error": "code", "message": "A sentence."}`, with Retry-After in whole seconds where there is hope."""
    more = dict(headers or {})
    if no.retry_after is not None:
        more["Retry-After"] = str(max(1, math.ceil(no.retry_after)))
    if no.status == 401:
        more["WWW-Authenticate"] = "Bearer"
    if no.status == 408:
        more["Connection"] = "close"
    return Json({"error": no.code, "message": no.sentence}, no.status, more)


def dumps(data: Any) -> str:
    """One line of JSON.

    >>> dumps({"loss": float("nan"), "label": "π"})
    '{"loss":null,"label":"π"}'
    """
    try:
        return json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except ValueError:  # NaN and infinity: JSON has no words for them
        return json.dumps(_finite(data), allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _finite(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
