"""Responses: JSON, refusals, and the files of the service's own pages."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from iblurry.live.quota import Refusal

SECURITY_HEADERS = {  # a response is data: not to be sniffed, cached, framed or read by another site
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
SAME_ORIGIN = "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class JsonResponse(Response):
    """Data as JSON; NaN and infinity, such as the loss of a diverged run, become null."""

    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(content, status_code, headers={**SECURITY_HEADERS, **(headers or {})})

    def render(self, content: Any) -> bytes:
        return dumps(content).encode()


def refusal_response(refusal: Refusal, headers: Mapping[str, str] | None = None) -> JsonResponse:
    """`{"error": "code", "message": "A sentence."}`, with Retry-After in whole seconds where it is known."""
    more = dict(headers or {})
    if refusal.retry_after is not None:
        more["Retry-After"] = str(max(1, math.ceil(refusal.retry_after)))
    if refusal.status == 401:
        more["WWW-Authenticate"] = "Bearer"
    if refusal.status == 408:
        more["Connection"] = "close"
    return JsonResponse({"error": refusal.code, "message": refusal.message}, refusal.status, more)


def dumps(data: Any) -> str:
    """One line of JSON.

    >>> dumps({"loss": float("nan"), "label": "π"})
    '{"loss":null,"label":"π"}'
    """
    try:
        return json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except ValueError:  # NaN or infinity, which JSON cannot express
        return json.dumps(_finite(data), allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _finite(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def file_response(request: Request, body: bytes, content_type: str, policy: str = SAME_ORIGIN) -> Response:
    """A file of a page under a Content-Security-Policy, or 304 where the browser has it already."""
    tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    headers = {**SECURITY_HEADERS, "Cache-Control": "no-cache", "Content-Security-Policy": policy, "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, headers={**headers, "Content-Type": content_type})


@cache
def docs_page() -> tuple[bytes, str, str]:
    """The page of the API in one file: content, type, and a policy that allows its own script and style by hash."""
    folder = files("iblurry.live.http") / "docs"
    page = (folder / "page.html").read_text(encoding="utf-8")
    for name in ("style.css", "page.js"):
        page = page.replace(f"/*{name}*/", (folder / name).read_text(encoding="utf-8"))
    policy = SAME_ORIGIN
    for kind, inside in re.findall(r"<(script|style)>(.*?)</\1>", page, flags=re.DOTALL):
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode("ascii")
        policy += f"; {kind}-src 'sha256-{digest}'"
    return page.encode(), "text/html; charset=utf-8", policy
