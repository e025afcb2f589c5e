"""The page at /: what the service learns, keeps and answers, live in a browser."""

from __future__ import annotations

from functools import cache
from importlib import resources

from iblurry.errors import UnknownNameError

ASSETS = tuple(sorted(file.name for file in resources.files(__name__).joinpath("assets").iterdir()))
UPLOT = {"uplot.js": "uPlot.iife.min.js", "uplot.css": "uPlot.min.css"}  # the library for curves, under its licence
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
POLICY = (  # the Content-Security-Policy of `/`: no script, style or request but the service's own, no HTML from text
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types"
)


def names() -> tuple[str, ...]:
    """Every file of the page."""
    return (*ASSETS, *UPLOT)


@cache
def asset(name: str) -> tuple[bytes, str]:
    """A file of the page and its content type.

    >>> asset("icon.svg")[1]
    'image/svg+xml; charset=utf-8'
    """
    if name not in names():
        raise UnknownNameError("file of the page", name, names())
    here = resources.files(__name__)
    if name in UPLOT:  # its notice goes with every copy
        licence, library = (here.joinpath("uplot", file).read_text("utf-8") for file in ("LICENSE", UPLOT[name]))
        text = f"/*!\n{licence.strip()}\n*/\n{library}"
    else:
        text = here.joinpath("assets", name).read_text("utf-8")
    if name.endswith(".html"):  # the dialog of every page
        text = text.replace("<!-- token.html -->\n", here.joinpath("token.html").read_text("utf-8"))
    return text.encode(), f"{TYPES[name.rpartition('.')[2]]}; charset=utf-8"
