"""What answers say: the likeliest classes, the memory by class, and what becomes of a corrected mistake."""

from __future__ import annotations

from heapq import nlargest
from typing import Any

import numpy as np

from iblurry.live.http.pictures import thumbnail
from iblurry.live.messages import MemorySample, Predictions
from iblurry.live.quota import Refusal


def format_predictions(predictions: Predictions, top: int) -> dict[str, Any]:
    """The `top` likeliest classes of each image; of equals, the one met first."""
    if not np.isfinite(predictions.probabilities).all():
        message = "The model returns NaN: it has diverged; see /v1/status, or start with another folder."
        raise Refusal(503, "not_finite", message)
    labels = predictions.labels
    known = [row for row, label in enumerate(labels) if label]  # others were deleted
    if not known:
        raise Refusal(409, "nothing_learnt", "All classes were deleted; send a sample first.")
    named = [
        [{"label": labels[row], "probability": shares[row]} for row in nlargest(top, known, key=shares.__getitem__)]
        for shares in predictions.probabilities.tolist()
    ]
    least = predictions.threshold
    answers = [
        {"id": one, **best[0], "unknown": least is not None and best[0]["probability"] < least, "top": best}
        for one, best in zip(predictions.ids, named, strict=True)
    ]
    return {"model": predictions.model, "threshold": least, "answers": answers}


def unlearning(idle_updates: int, *, trains: bool) -> str:
    """What becomes of what was learnt from a mistake, by a method that trains weights or one that does not."""
    if not trains:
        return "No weights are trained, so the correction is exact if the sample is in the memory."
    stays = "The weights keep what they learnt from the mistake until updates from the corrected memory overwrite it"
    if idle_updates:
        return f"{stays}: up to {idle_updates:,} are made while the service is idle."
    return f"{stays}: those of the next samples, because there are none while idle (--idle-updates 0)."


def format_memory(samples: list[MemorySample], each: int) -> list[dict[str, Any]]:
    """At most `each` samples of each class, the most important first and, where that is not known, the newest."""
    classes: dict[str, list[MemorySample]] = {}
    for sample in sorted(samples, key=lambda sample: (-(sample.importance or 0.0), -sample.since)):
        classes.setdefault(sample.label, []).append(sample)
    return [
        {
            "label": label,
            "count": len(members),
            "items": [
                {"row": row, "importance": importance, "since": since, "thumbnail": thumbnail(pixels)}
                for row, _, importance, since, pixels in members[:each]
            ],
        }
        for label, members in sorted(classes.items())
    ]
