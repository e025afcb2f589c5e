"""The page at /: what the service learns, keeps and answers, live in a browser."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib import resources

from iblurry import web
from iblurry.errors import UnknownNameError

SHARED: dict[str, Callable[[], str]] = {
    **{name: partial(web.text, name) for name in ("style.css", "table.css", "chart.css")},
    "uplot.js": web.uplot,
    "uplot.css": partial(web.text, "uplot/uPlot.min.css"),
}
OWN = (
    *(
        "index.html",
        "docs.html",
        "docs.css",
        "docs.js",
        "live.css",
        "icon.svg",
        "main.js",
        "api.js",
        "asking.js",
        "classes.js",
        "confusion.js",
    ),
    *("curves.js", "dom.js", "downloads.js"),
    *("events.js", "lazily.js", "memory.js", "status.js", "teaching.js", "thumbnails.js", "token.js", "tray.js"),
)
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
POLICY = (  # the Content-Security-Policy of `/`: no script, style or request but the service's own, no HTML from text
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types"
)


def names() -> tuple[str, ...]:
    """Every file of the page."""
    return (*OWN, *SHARED)


@cache
def asset(name: str) -> tuple[bytes, str]:
    """A file of the page and its content type.

    >>> asset("icon.svg")[1]
    'image/svg+xml; charset=utf-8'
    """
    if name not in names():
        raise UnknownNameError("file of the page", name, names())
    own = resources.files(__name__).joinpath("assets", name)
    text = own.read_text("utf-8") if name in OWN else SHARED[name]()
    return text.encode(), f"{TYPES[name.rpartition('.')[2]]}; charset=utf-8"
