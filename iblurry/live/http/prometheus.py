"""The service's numbers in Prometheus' text format.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

KIND = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds
Labels = Mapping[str, str]
STATUS = [  # name, kind, key of /v1/status, help
    ("samples_accepted_total", "counter", "accepted", "Samples that are on the disk."),
    ("samples_learnt_total", "counter", "learnt", "Samples that were learnt."),
    ("samples_tested_total", "counter", "tested", "Samples that were tested before they were learnt."),
    ("updates_total", "counter", "updates", "Updates of the model."),
    ("learner_restarts_total", "counter", "restarts", "Restarts of the process that learns."),
    ("queue_samples", "gauge", "queue", "Samples accepted and not learnt yet."),
    ("queue_limit_samples", "gauge", "queue_limit", "Samples the queue may hold."),
    ("memory_samples", "gauge", "held", "Samples in the memory."),
    ("memory_capacity_samples", "gauge", "capacity", "Samples the memory can hold."),
    ("classes", "gauge", "classes", "Classes met so far."),
    ("classes_limit", "gauge", "max_classes", "Classes the head has room for."),
    ("accuracy_ratio", "gauge", "accuracy", "Test-then-train accuracy over all samples tested."),
    ("recent_accuracy_ratio", "gauge", "recent_accuracy", "Test-then-train accuracy within the window."),
    ("window_samples", "gauge", "window", "Length of the window."),
    ("drift_ratio", "gauge", "drift", "Total variation between the class mixes of the last two windows."),
    ("learning_rate", "gauge", "learning_rate", "The learning rate."),
    ("loss", "gauge", "loss", "The loss of the last update."),
    ("learning_samples_per_second", "gauge", "samples_per_second", "Speed of learning."),
    ("model_samples", "gauge", "model", "Samples learnt by the state that answers."),
    ("model_age_seconds", "gauge", "model_age_seconds", "Age of the state that answers."),
    ("checkpoint_samples", "gauge", "checkpoint", "Samples learnt by the last state that was saved."),
    ("checkpoint_age_seconds", "gauge", "checkpoint_age_seconds", "Age of the last state that was saved."),
    ("disk_bytes", "gauge", "disk_bytes", "What the service uses of the disk."),
    ("disk_most_bytes", "gauge", "disk_most", "What it may come to use of it."),
    ("uptime_seconds", "gauge", "uptime_seconds", "Since the service was started."),
]
CLASS = [  # the same, of /v1/classes
    ("class_samples_total", "counter", "seen", "Samples of a class."),
    ("class_tested_total", "counter", "tested", "Samples of a class that were tested before they were learnt."),
    ("class_right_total", "counter", "right", "Those that were named rightly."),
    ("class_memory_samples", "gauge", "held", "Samples of a class in the memory."),
    ("class_accuracy_ratio", "gauge", "accuracy", "Test-then-train accuracy of a class."),
    ("class_recent_accuracy_ratio", "gauge", "recent_accuracy", "The same within the window."),
    ("class_recent_share_ratio", "gauge", "recent_share", "Share of a class in the window."),
]


class Requests:
    """Counts requests and how long they took, by endpoint and status; whatever is no endpoint is `other`."""

    def __init__(self, endpoints: Collection[str]) -> None:
        self.endpoints = frozenset(endpoints)
        self.seconds: dict[tuple[str, int], float] = defaultdict(float)
        self.counts: dict[tuple[str, int], Counter[int]] = defaultdict(Counter)  # by bucket

    def note(self, path: str, status: int, seconds: float) -> None:
        """A request whose answer began after so many seconds."""
        what = (path if path in self.endpoints else "other", status)
        self.seconds[what] += seconds
        self.counts[what][bisect_left(BUCKETS, seconds)] += 1

    def lines(self) -> Iterable[str]:
        name = "iblurry_request_seconds"
        yield from _head(name, "histogram", "Time until an answer began.")
        for (endpoint, status), counts in sorted(self.counts.items()):
            labels, total = {"endpoint": endpoint, "status": str(status)}, 0
            for place, bound in enumerate((*map(str, BUCKETS), "+Inf")):
                total += counts[place]
                yield _line(f"{name}_bucket", {**labels, "le": bound}, total)
            yield _line(f"{name}_sum", labels, self.seconds[endpoint, status])
            yield _line(f"{name}_count", labels, total)


def metrics(
    status: Mapping[str, Any], classes: Sequence[Mapping[str, Any]], requests: Requests, *, listeners: int
) -> str:
    """The whole text; what is not known yet is left out."""
    about = {key: str(status[key]) for key in ("iblurry", "method", "network", "device")}
    lines = [*_head("iblurry_info", "gauge", "What is running."), _line("iblurry_info", about, 1)]
    for name, kind, key, text in STATUS:
        if status.get(key) is not None:
            lines += [*_head(f"iblurry_{name}", kind, text), _line(f"iblurry_{name}", {}, status[key])]
    for name, kind, key, text in CLASS:
        values = [({"label": one["label"]}, one[key]) for one in classes if one.get(key) is not None]
        if values:
            lines += [*_head(f"iblurry_{name}", kind, text), *(_line(f"iblurry_{name}", *value) for value in values)]
    lines += [*_head("iblurry_listeners", "gauge", "Listeners to events."), _line("iblurry_listeners", {}, listeners)]
    return "\n".join([*lines, *requests.lines(), ""])


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _line(name: str, labels: Labels, value: float) -> str:
    """A sample of a metric.

    >>> _line("iblurry_x", {"label": 'a "b"'}, 0.5)
    'iblurry_x{label="a \\\\"b\\\\""} 0.5'
    """
    pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    number = str(value) if isinstance(value, int) else repr(float(value))
    return f"{name}{{{pairs}}} {number}" if pairs else f"{name} {number}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
