"""Files of the service's own pages, which need nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from iblurry.live.http.answers import SAFE

NOTHING_ELSE = "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class Asset(NamedTuple):
    """A file of a page."""

    body: bytes
    kind: str  # its Content-Type
    policy: str = NOTHING_ELSE  # its Content-Security-Policy


def sent(request: Request, asset: Asset) -> Response:
    """The file, or word that the browser has it already."""
    tag = f'"{hashlib.blake2b(asset.body, digest_size=12).hexdigest()}"'
    headers = {**SAFE, "Cache-Control": "no-cache", "Content-Security-Policy": asset.policy, "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(asset.body, headers={**headers, "Content-Type": asset.kind})


@cache
def docs() -> Asset:
    """The page of the API in one piece, whose own script and style may run and nothing else."""
    folder = files("iblurry.live.http") / "docs"
    page = (folder / "page.html").read_text(encoding="utf-8")
    for name in ("style.css", "page.js"):
        page = page.replace(f"/*{name}*/", (folder / name).read_text(encoding="utf-8"))
    allowed = (f"{kind}-src 'sha256-{_digest(page, kind)}'" for kind in ("script", "style"))
    return Asset(page.encode(), "text/html; charset=utf-8", "; ".join([NOTHING_ELSE, *allowed]))


def _digest(page: str, kind: str) -> str:
    (inside,) = re.findall(rf"<{kind}>(.*?)</{kind}>", page, flags=re.DOTALL)
    return base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode("ascii")
