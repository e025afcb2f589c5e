"""Doctests: where an extra is missing they are not asked for, and a module is imported once."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

EXTRA = ("fastapi", "uvicorn", "prometheus_client")
collect_ignore_glob = [] if all(map(find_spec, EXTRA)) else ["iblurry/live/http/*.py"]
PACKAGE = Path(__file__).parent / "iblurry"


def pytest_collect_file(file_path: Path) -> None:
    """Imports the package first: of a module that its own package imports pytest would else make a second copy."""
    if file_path.suffix == ".py" and file_path.is_relative_to(PACKAGE):
        import_module(".".join(file_path.parent.relative_to(PACKAGE.parent).parts))
