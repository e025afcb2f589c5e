"""Where the collected results that travel with the package are; importing this loads nothing else."""

from __future__ import annotations

from pathlib import Path

PARTS = ("", "leaderboard", "equal-compute")  # folders of collected results that a wheel has


def shipped_results() -> Path:
    """The folder of collected results: in a wheel beside this file, in a checkout at its root."""
    packed = Path(__file__).parent / "results"
    return packed if packed.is_dir() else Path(__file__).parents[2] / "results"
