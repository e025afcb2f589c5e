"""What the pages of iblurry share in a browser: colours, type, tables, and uPlot for charts."""

from __future__ import annotations

from importlib import resources


def text(name: str) -> str:
    """One of the shared files: "style.css", "table.css", "chart.css", "uplot/uPlot.min.css"."""
    return resources.files(__name__).joinpath(*name.split("/")).read_text("utf-8")


def uplot() -> str:
    """uPlot's script under its licence, which goes with every copy."""
    return f"/*!\n{text('uplot/LICENSE').strip()}\n*/\n{text('uplot/uPlot.iife.min.js')}"
