"""What a run leaves behind, to be compared byte for byte."""

from __future__ import annotations

from pathlib import Path


def kept(folder: Path) -> dict[str, bytes]:
    """What must come out the same: the journal, and the newest checkpoint with every number a learner has."""
    newest = sorted(folder.glob("checkpoint-*.safetensors"))[-1]
    return {"journal": (folder / "journal.jsonl").read_bytes(), "checkpoint": newest.read_bytes()}
