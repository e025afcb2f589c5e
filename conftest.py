"""Modules that need an extra are not asked for their doctests where it is not installed."""

from __future__ import annotations

from importlib.util import find_spec

EXTRA = ("fastapi", "uvicorn", "prometheus_client")
collect_ignore_glob = [] if all(map(find_spec, EXTRA)) else ["iblurry/live/http/*.py"]
