"""The service's numbers for Prometheus: each scrape reads /v1/status and /v1/classes; requests are counted here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds
FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
INFO = ("iblurry", "method", "network", "device")  # keys of /v1/status
STATUS = [  # name, type, key of /v1/status, help
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


class MetricsSource(Protocol):
    """The numbers of a service."""

    def status(self) -> Mapping[str, Any]: ...

    def classes(self) -> Sequence[Mapping[str, Any]]: ...


class ServiceMetrics:
    """One service's metrics, in a registry of their own.

    Parameters
    ----------
    service : MetricsSource
        Read at every scrape.
    endpoints : collection of str
        Paths that requests are counted by; all others are counted as "other", so that clients cannot add series.
    count_listeners : callable
        Returns the number of clients of /v1/events.
    """

    def __init__(self, service: MetricsSource, endpoints: Collection[str], count_listeners: Callable[[], int]) -> None:
        self.service, self.endpoints, self._count_listeners = service, frozenset(endpoints), count_listeners
        self._requests = Histogram(
            "iblurry_request_seconds",
            "Time until an answer began.",
            ("endpoint", "status"),
            buckets=BUCKETS,
            registry=None,
        )
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def record_request(self, path: str, status: int, seconds: float) -> None:
        """A request whose answer began after so many seconds."""
        endpoint = path if path in self.endpoints else "other"
        self._requests.labels(endpoint, str(status)).observe(seconds)

    def to_text(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """All metrics, as the registry asks for them; values that are not known yet are left out."""
        status, classes = self.service.status(), self.service.classes()
        info = GaugeMetricFamily("iblurry_info", "What is running.", labels=INFO)
        info.add_metric([str(status[key]) for key in INFO], 1)
        yield info
        for name, kind, key, text in STATUS:
            if status.get(key) is not None:
                yield FAMILIES[kind](f"iblurry_{name}", text, value=status[key])
        for name, kind, key, text in CLASS:
            family = FAMILIES[kind](f"iblurry_{name}", text, labels=["label"])
            for row in classes:
                if row.get(key) is not None:
                    family.add_metric([row["label"]], row[key])
            if family.samples:
                yield family
        yield GaugeMetricFamily("iblurry_listeners", "Listeners to events.", value=self._count_listeners())
        for metric in self._requests.collect():  # without the creation times that the client library adds
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
