"""Metrics for Prometheus and spans of OpenTelemetry."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from django_localqueue import queues
from django_localqueue.tasks import tracing
from django_localqueue.tasks.compat import task_backends
from django_localqueue.testing import drain
from tests.unit import task_option_samples as samples
from tests.unit.task_samples import add, fail, send
from tests.unit.test_tasks_run import OURS

prometheus_client = pytest.importorskip("prometheus_client")
sdk = pytest.importorskip("opentelemetry.sdk.trace")

TRACED = {"default": {**OURS, "OPTIONS": {"tracing": True}}}


class TestPrometheus:
    @pytest.fixture
    def registry(self) -> Iterator[Any]:
        from django_localqueue import metrics

        registry = prometheus_client.CollectorRegistry()
        installed = metrics.install(registry)
        yield registry
        installed.close()

    @staticmethod
    def value(registry: Any, name: str, **labels: str) -> float | None:
        found = registry.get_sample_value(name, labels)
        return None if found is None else float(found)

    def test_jobs_are_counted_by_queue_and_state(self, registry: Any) -> None:
        add.enqueue(1)
        send.enqueue("ann")
        queues["emails"].pause()
        queues["default"].put(1, delay=60)
        fail.enqueue("x")
        queues["default"].get_many(1)

        def count(queue: str, state: str) -> float | None:
            return self.value(registry, "localqueue_jobs", queue=queue, state=state)

        assert [count("default", state) for state in ("ready", "delayed", "processing")] == [1] * 3
        assert count("emails", "ready") == 1
        assert self.value(registry, "localqueue_paused", queue="emails") == 1
        assert self.value(registry, "localqueue_up", queue="emails") == 1
        oldest = self.value(registry, "localqueue_oldest_ready_seconds", queue="default")
        assert oldest is not None
        assert oldest > 0

    def test_attempts_are_counted_and_timed_by_task(self, registry: Any) -> None:
        add.enqueue(1)
        fail.enqueue("x")
        samples.attempts.clear()
        samples.flaky.enqueue(1)
        drain()

        def count(task: str, outcome: str) -> float | None:
            labels = {"queue": "default", "task": task, "outcome": outcome}
            return self.value(registry, "localqueue_attempts_total", **labels)

        flaky = samples.flaky.module_path
        assert count(add.module_path, "successful") == 1
        assert count(fail.module_path, "failed") == 1
        assert (count(flaky, "retried"), count(flaky, "successful")) == (1, 1)
        for name, times in (("run", 2), ("wait", 1)):
            labels = {"queue": "default", "task": flaky}
            assert self.value(registry, f"localqueue_{name}_seconds_count", **labels) == times

    def test_it_goes_on_where_nobody_keeps_what_install_returned(self) -> None:
        from django_localqueue import metrics

        registry = prometheus_client.CollectorRegistry()
        number = id(metrics.install(registry))
        gc.collect()
        add.enqueue(1)
        drain()
        labels = {"queue": "default", "task": add.module_path, "outcome": "successful"}
        assert self.value(registry, "localqueue_attempts_total", **labels) == 1
        (installed,) = [one for one in gc.get_objects() if id(one) == number]
        installed.close()

    def test_a_store_that_cant_be_opened_is_down(self, registry: Any) -> None:
        wrong = {"default": {"LOCATION": "/dev/null/no/folder"}}
        with override_settings(LOCALQUEUE=wrong):
            assert self.value(registry, "localqueue_up", queue="default") == 0
            assert self.value(registry, "localqueue_jobs", queue="default", state="ready") is None


class TestTracing:
    @pytest.fixture
    def spans(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        exporter = InMemorySpanExporter()
        provider = sdk.TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("test"))
        with override_settings(TASKS=TRACED):
            yield exporter.get_finished_spans
        provider.shutdown()

    def test_a_run_is_of_the_trace_of_its_enqueue(self, spans: Any) -> None:
        result = add.enqueue(1)
        drain()
        enqueued, ran = spans()
        assert (enqueued.name, ran.name) == (
            f"enqueue {add.module_path}",
            f"run {add.module_path}",
        )
        assert ran.context.trace_id == enqueued.context.trace_id
        assert ran.parent.span_id == enqueued.context.span_id
        assert ran.attributes["messaging.message.id"] == result.id
        assert ran.attributes["localqueue.outcome"] == "ack"

    def test_an_attempt_that_raised_says_so(self, spans: Any) -> None:
        fail.enqueue("no such page")
        drain()
        ran = spans()[-1]
        assert not ran.status.is_ok
        assert ran.attributes["localqueue.outcome"] == "fail"
        (event,) = ran.events
        assert event.attributes["exception.message"] == "no such page"

    def test_a_retry_is_a_span_of_the_same_trace(self, spans: Any) -> None:
        samples.attempts.clear()
        samples.flaky.enqueue(1)
        drain()
        first, second = spans()[1:]
        assert first.context.trace_id == second.context.trace_id
        attempts = [one.attributes["localqueue.attempt"] for one in (first, second)]
        assert attempts == [1, 2]

    def test_it_is_off_unless_asked_for(self) -> None:
        found = queues["default"].lookup(add.enqueue(1).id)
        assert found is not None
        assert tracing.HEADER not in found.headers

    def test_that_the_api_is_missing_is_a_check(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("django_localqueue.tasks.settings.find_spec", lambda name: None)
        with override_settings(TASKS=TRACED):
            (message,) = task_backends["default"].check()
        assert message.hint is not None
        assert "opentelemetry" in message.hint
