"""What Prometheus reads: requests by endpoint and status, their duration, rows, the model's generation, reloads.

With several worker processes their counts are added up in files of a common folder, which prometheus_client finds by an
environment variable that the parent process sets.
"""

from __future__ import annotations

import os
from typing import Any

BUCKETS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
FOLDER = "PROMETHEUS_MULTIPROC_DIR"


class Metrics:
    """The counters of one process."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

        disable_created_metrics()  # a second series for every counter, which nobody asks for
        self._registry = registry = CollectorRegistry()
        self._requests = Counter("lessram_requests", "Requests answered.", ["endpoint", "status"], registry=registry)
        self._seconds = Histogram(
            "lessram_request_seconds",
            "From the first byte to the answer.",
            ["endpoint"],
            buckets=BUCKETS,
            registry=registry,
        )
        self._rows = Counter("lessram_rows", "Rows predicted.", registry=registry)
        self._reloads = Counter(
            "lessram_reloads",
            "Model files: the one started with, those taken in its place, those refused.",
            ["result"],
            registry=registry,
        )
        self._generation = Gauge(
            "lessram_model_generation",
            "1 for the model that the server started with, one more for each that took its place.",
            registry=registry,
            multiprocess_mode="liveall",
        )
        self._children: dict[Any, Any] = {}  # finding one by its labels takes longer than counting

    def request(self, endpoint: str, status: int, seconds: float, rows: int) -> None:
        counter = self._children.get((endpoint, status))
        if counter is None:
            counter = self._children[endpoint, status] = self._requests.labels(endpoint, str(status))
        timer = self._children.get(endpoint)
        if timer is None:
            timer = self._children[endpoint] = self._seconds.labels(endpoint)
        counter.inc()
        timer.observe(seconds)
        if rows:
            self._rows.inc(rows)

    def reload(self, result: str, generation: int) -> None:
        """A new file was `started` with, `taken` or `refused`; since then this generation answers."""
        self._reloads.labels(result).inc()
        self._generation.set(generation)

    def page(self) -> tuple[bytes, str]:
        """The text that Prometheus reads, and its type."""
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector

        registry = self._registry
        if os.environ.get(FOLDER):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
        return generate_latest(registry), CONTENT_TYPE_LATEST


def forget_worker(process: int) -> None:
    """A worker has ended: what it counted stays counted, what it was does not."""
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(process)
