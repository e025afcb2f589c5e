"""The service's numbers for Prometheus: each scrape reads /v1/status and /v1/classes; requests are counted here.

Which numbers, and under which names, is said once, in the schemas of those two endpoints (`answers.measured`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from pydantic import BaseModel

from iblurry.live.http.answers import METRIC, ClassStatus, StatusResponse

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from iblurry.live.service import Service

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds
INFO = ("iblurry", "method", "network", "device")  # keys of /v1/status


class ServiceMetrics:
    """One service's metrics, in a registry of their own.

    Requests are counted by the paths in `endpoints`; all others are "other", so that clients cannot add series.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self.endpoints: set[str] = set()
        labels = ("endpoint", "status")
        self._requests = Histogram(
            "iblurry_request_seconds", "Time until an answer began.", labels, buckets=BUCKETS, registry=None
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
        status, classes = self.service.status(), self.service.report.classes
        info = GaugeMetricFamily("iblurry_info", "What is running.", labels=INFO)
        info.add_metric([str(status[key]) for key in INFO], 1)
        yield info
        for key, family in _families(StatusResponse, labels=()):
            if status[key] is not None:
                family.add_metric([], status[key])
                yield family
        for key, family in _families(ClassStatus, labels=("label",)):
            for row in classes:
                if row[key] is not None:
                    family.add_metric([row["label"]], row[key])
            if family.samples:
                yield family
        yield GaugeMetricFamily("iblurry_listeners", "Listeners to events.", value=self.service.listeners)
        for metric in self._requests.collect():  # without the creation times that the client library adds
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


def _families(
    model: type[BaseModel], *, labels: tuple[str, ...]
) -> Iterator[tuple[str, CounterMetricFamily | GaugeMetricFamily]]:
    """The model's fields that are exported, each with an empty family of its metric."""
    for key, field in model.model_fields.items():
        if isinstance(field.json_schema_extra, dict):
            name = str(field.json_schema_extra[METRIC])
            family = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield key, family(name, field.description or "", labels=labels)
