"""Modules that need an extra are not asked for their doctests where it is not installed."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("fastapi") and find_spec("uvicorn") else ["iblurry/live/http/*.py"]
