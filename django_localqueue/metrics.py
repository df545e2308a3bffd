"""Metrics for Prometheus, through its own client library.

Nothing is measured unless a project asks for it, for instance in ``AppConfig.ready``:

    from django_localqueue import metrics

    metrics.install()

What is in the queues is read when Prometheus asks; any process may tell it. What tasks do is
counted in the process that runs them, so each worker must be asked.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from django_localqueue.exceptions import LocalQueueError
from django_localqueue.queues import queues
from django_localqueue.tasks.compat import TaskResultStatus, task_finished, task_started
from django_localqueue.tasks.signals import job_retried
from django_localqueue.types import MICROSECONDS

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImproperlyConfigured(
        "Metrics need prometheus-client: pip install 'django-localqueue[prometheus]'."
    ) from error

BUCKETS = (0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1_800, 3_600)
_UID = "django_localqueue.metrics"


def install(registry: CollectorRegistry = REGISTRY) -> Metrics:
    """Begin to measure; calling it twice in one registry is an error of the client library.

    Args:
        registry: default: the client library's own.
    """
    return Metrics(registry)


class QueueCollector(Collector):
    """Reads what is in each queue of LOCALQUEUE when it is asked."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        jobs = GaugeMetricFamily(
            "localqueue_jobs", "Jobs by state; ready can be claimed now.", labels=["queue", "state"]
        )
        oldest = GaugeMetricFamily(
            "localqueue_oldest_ready_seconds",
            "How long the job has waited that has waited longest and can be claimed.",
            labels=["queue"],
        )
        paused = GaugeMetricFamily(
            "localqueue_paused", "1 where nothing is delivered.", labels=["queue"]
        )
        up = GaugeMetricFamily("localqueue_up", "1 where the store answers.", labels=["queue"])
        for alias in queues:
            try:
                queue = queues[alias]
                stats = queue.stats()
                now = queue.now()
            except (LocalQueueError, ImproperlyConfigured):
                up.add_metric([alias], 0)
                continue
            up.add_metric([alias], 1)
            counts = {
                "ready": stats.ready - stats.delayed - stats.blocked,
                "delayed": stats.delayed,
                "blocked": stats.blocked,
                "processing": stats.processing,
                "acked": stats.acked,
                "failed": stats.failed,
            }
            for state, count in counts.items():
                jobs.add_metric([alias, state], count)
            since = stats.oldest_ready_at
            waited = 0.0 if since is None else max(0.0, (now - since) / MICROSECONDS)
            oldest.add_metric([alias], waited)
            paused.add_metric([alias], float(stats.paused))
        yield from (jobs, oldest, paused, up)


class Metrics:
    """What is measured in one registry, until ``close``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        labels = ["queue", "task"]
        self._attempts = Counter(
            "localqueue_attempts",
            "Attempts of tasks by how they ended: successful, failed, retried.",
            [*labels, "outcome"],
            registry=registry,
        )
        self._seconds = Histogram(
            "localqueue_run_seconds", "How long attempts of tasks took.", labels,
            buckets=BUCKETS, registry=registry,
        )  # fmt: skip
        self._waits = Histogram(
            "localqueue_wait_seconds", "From the enqueue, or its run_after, to the first attempt.",
            labels, buckets=BUCKETS, registry=registry,
        )  # fmt: skip
        self._collector = QueueCollector()
        registry.register(self._collector)
        for signal, receiver in (
            (task_started, self._on_started),
            (task_finished, self._on_finished),
            (job_retried, self._on_retried),
        ):
            # Not weakly: who installs it in ready() keeps no reference to it.
            signal.connect(receiver, weak=False, dispatch_uid=(_UID, id(self)))

    def close(self) -> None:
        """Measure no more."""
        for signal in (task_started, task_finished, job_retried):
            signal.disconnect(dispatch_uid=(_UID, id(self)))
        for collector in (self._collector, self._attempts, self._seconds, self._waits):
            with contextlib.suppress(KeyError):
                self._registry.unregister(collector)

    def _on_started(self, task_result: Any, **kwargs: Any) -> None:
        if task_result.attempts == 1:
            due = task_result.task.run_after or task_result.enqueued_at
            self._waits.labels(*_labels(task_result)).observe(
                _between(max(due, task_result.enqueued_at), task_result.started_at)
            )

    def _on_finished(self, task_result: Any, **kwargs: Any) -> None:
        successful = task_result.status == TaskResultStatus.SUCCESSFUL
        self._note(task_result, "successful" if successful else "failed", task_result.finished_at)

    def _on_retried(self, task_result: Any, **kwargs: Any) -> None:
        began = task_result.last_attempted_at
        now = timezone.now() if timezone.is_aware(began) else datetime.datetime.now()
        self._note(task_result, "retried", now)

    def _note(self, task_result: Any, outcome: str, ended: datetime.datetime) -> None:
        labels = _labels(task_result)
        self._attempts.labels(*labels, outcome).inc()
        self._seconds.labels(*labels).observe(_between(task_result.last_attempted_at, ended))


def _labels(task_result: Any) -> tuple[str, str]:
    return task_result.task.queue_name, task_result.task.module_path


def _between(start: datetime.datetime, end: datetime.datetime) -> float:
    return max(0.0, (end - start).total_seconds())
