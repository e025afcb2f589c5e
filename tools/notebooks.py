"""The examples as Jupyter notebooks, without outputs: docs/notebooks/*.ipynb, made from examples/.

python -m tools.notebooks    # writes them again; a test compares
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
FOLDER = ROOT / "docs" / "notebooks"
INSTALL = """This notebook needs iblurry. On Binder it is installed. Elsewhere, first run a cell with
`%pip install git+ADDRESS`, with the address of iblurry's repository."""


def sources() -> dict[Path, Path]:
    """Each notebook's file, and the example that it is made from."""
    return {FOLDER / f"{path.stem}.ipynb": path for path in sorted(EXAMPLES.rglob("*.py"))}


def written(example: Path) -> str:
    """The notebook of an example."""
    text = example.read_text("utf-8")
    cells = percent(text) if "# %%" in text else script(text)
    first, *rest = cells
    made = [first, ("markdown", INSTALL), *rest]
    data = {
        "cells": [cell(number, kind, source) for number, (kind, source) in enumerate(made)],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def percent(text: str) -> list[tuple[str, str]]:
    """Cells of jupytext's percent format."""
    found = []
    for part in re.split(r"^# %%", text, flags=re.MULTILINE)[1:]:
        if part.startswith(" [markdown]\n"):
            found.append(("markdown", re.sub(r"^# ?", "", part.split("\n", 1)[1].strip(), flags=re.MULTILINE)))
        else:
            found.append(("code", part.strip()))
    return found


def script(text: str) -> list[tuple[str, str]]:
    """A script's docstring, its body, and the call of `main`."""
    said = ast.get_docstring(ast.parse(text)) or ""
    title, _, rest = said.partition("\n")
    body = text.split('"""', 2)[2].split('\nif __name__ == "__main__":')[0].strip()
    return [("markdown", f"# {title}\n{rest}".strip()), ("code", body), ("code", "main()")]


def cell(number: int, kind: str, source: str) -> dict[str, object]:
    """One cell in the form of nbformat 4.5."""
    made: dict[str, object] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
    return (
        made
        | ({} if kind == "markdown" else {"execution_count": None, "outputs": []})
        | {"source": source.splitlines(keepends=True)}
    )


def code(notebook: Path) -> str:
    """All of its code cells, in order."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    return "\n\n".join("".join(one["source"]) for one in cells if one["cell_type"] == "code")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for notebook, example in sources().items():
        notebook.write_text(written(example), "utf-8")
