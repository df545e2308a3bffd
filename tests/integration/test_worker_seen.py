"""What is seen of a worker process from outside: metrics, log records, error reports, traces."""

from __future__ import annotations

import json
import signal
import urllib.request
from typing import Any

import pytest

from tests.fakes.server import free_port
from tests.integration.worker_site import Site

METRICS = """
from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "shop"

    def ready(self):
        import prometheus_client

        from django_localqueue import metrics

        metrics.install()
        {more}
"""
#: As an error reporter hooks into logging: it is given records of ERROR, whatever the logger.
REPORTER = """
import json
import logging

from shop.ledger import BASE_DIR


class Reporter(logging.Handler):
    def emit(self, record):
        said = {
            "logger": record.name,
            "message": record.getMessage(),
            "error": record.exc_info[0].__name__ if record.exc_info else None,
            "fields": {
                name: getattr(record, name)
                for name in ("job_id", "queue", "task", "attempt", "worker", "outcome")
                if hasattr(record, name)
            },
        }
        with open(BASE_DIR / f"{self.name}.jsonl", "a") as file:
            file.write(json.dumps(said) + chr(10))
"""
LOGGING = """
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {
        "errors": {"class": "shop.reporter.Reporter", "level": "ERROR"},
        "ours": {"class": "shop.reporter.Reporter"},
    },
    "root": {"handlers": ["errors"], "level": "INFO"},
    "loggers": {"django_localqueue": {"handlers": ["ours"], "level": "INFO"}},
}
"""
TRACES = """
TASKS["default"]["OPTIONS"] = {"tracing": True}

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

provider = TracerProvider()
exporter = ConsoleSpanExporter(out=open(BASE_DIR / "spans", "a", buffering=1))
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
"""


HELD = """
from django.dispatch import receiver
from django_localqueue.worker import worker_started, worker_stopped


@receiver(worker_started)
def begin(worker, **kwargs):
    ledger.write("started", worker.name)
    raise RuntimeError("a receiver that breaks")


@receiver(worker_stopped)
def end(worker, summary, **kwargs):
    ledger.write("stopped", worker.name, summary.done, summary.forced)
"""


def noted(site: Site, handler: str) -> list[dict[str, Any]]:
    path = site.folder / f"{handler}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def with_metrics(site: Site, more: str = "pass") -> None:
    (site.folder / "shop" / "apps.py").write_text(METRICS.format(more=more))


def test_a_worker_serves_what_its_tasks_did_and_what_waits(site: Site) -> None:
    pytest.importorskip("prometheus_client")
    port = free_port()
    with_metrics(site, f'prometheus_client.start_http_server({port}, "127.0.0.1")')
    site.put("work", 1)
    site.put("fail")
    site.queue.put({"n": 1}, delay=3_600)
    site.start()
    site.wait_until(lambda: site.queue.stats().acked + site.queue.stats().failed == 2, "the jobs")

    def page() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            return str(answer.read().decode())

    labels = 'queue="default",task="shop.tasks.fail"'
    attempts = f'localqueue_attempts_total{{outcome="failed",{labels}}} 1.0'
    site.wait_until(lambda: attempts in page(), "the failure in the metrics")
    said = page()
    for line in (
        'localqueue_jobs{queue="default",state="failed"} 1.0',
        'localqueue_jobs{queue="default",state="delayed"} 1.0',
        'localqueue_oldest_ready_seconds{queue="default"} 0.0',
        'localqueue_up{queue="emails"} 1.0',
        'localqueue_run_seconds_count{queue="default",task="shop.tasks.work"} 1.0',
    ):
        assert line in said


def test_what_several_processes_did_is_put_together_by_the_client_library(site: Site) -> None:
    prometheus_client = pytest.importorskip("prometheus_client")
    from prometheus_client import multiprocess

    with_metrics(site)
    folder = site.folder / "metrics"
    folder.mkdir()
    for number in range(40):
        site.put("work", number, 0.02)
    worker = site.start(
        "--processes", "2", "--threads", "1", "--burst", PROMETHEUS_MULTIPROC_DIR=str(folder)
    )
    assert worker.wait() == 0
    assert len({job.worker for job in site.acked()}) == 2
    registry = prometheus_client.CollectorRegistry()
    multiprocess.MultiProcessCollector(registry, path=str(folder))
    labels = {"queue": "default", "task": "shop.tasks.work"}
    done = registry.get_sample_value(
        "localqueue_attempts_total", {**labels, "outcome": "successful"}
    )
    assert done == 40
    assert registry.get_sample_value("localqueue_run_seconds_count", labels) == 40


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_failed_task_reaches_an_error_reporter_once_with_its_name(
    site: Site, processes: str
) -> None:
    (site.folder / "shop" / "reporter.py").write_text(REPORTER)
    site.append("settings", LOGGING)
    good, bad = site.put("work", 1), site.put("fail")
    assert site.start("--burst", "--processes", processes).wait() == 0
    (error,) = noted(site, "errors")
    assert error["logger"] in ("django.tasks", "django_tasks")
    assert error["error"] == "ValueError"
    assert "shop.tasks.fail" in error["message"]
    ours = [record["fields"] for record in noted(site, "ours")]
    worker = site.queue.lookup(good).worker
    (ended,) = [fields for fields in ours if fields.get("outcome") == "ack"]
    assert ended == {
        **{"job_id": good, "queue": "default", "task": "shop.tasks.work"},
        **{"attempt": 1, "worker": worker, "outcome": "ack"},
    }
    assert [f["task"] for f in ours if f.get("outcome") == "fail"] == ["shop.tasks.fail"]
    assert {f["job_id"] for f in ours if "job_id" in f} == {good, bad}


def test_an_attempt_in_a_worker_is_of_the_trace_of_its_enqueue(site: Site) -> None:
    pytest.importorskip("opentelemetry.sdk.trace")
    site.append("settings", TRACES)
    site.append(
        "tasks",
        "@task\ndef enqueues():\n    work.enqueue('inner')\n",
    )
    site.put("enqueues")
    assert site.start("--burst", "--processes", "2").wait() == 0
    text = (site.folder / "spans").read_text()
    decoder, spans = json.JSONDecoder(), []
    while text.strip():
        span, end = decoder.raw_decode(text.lstrip())
        spans.append(span)
        text = text.lstrip()[end:]
    outer, put, inner = sorted(spans, key=lambda span: span["start_time"])
    assert [span["kind"] for span in (outer, put, inner)] == [
        *("SpanKind.CONSUMER", "SpanKind.PRODUCER", "SpanKind.CONSUMER")
    ]
    assert len({span["context"]["trace_id"] for span in spans}) == 1
    assert inner["parent_id"] == put["context"]["span_id"]
    assert put["parent_id"] == outer["context"]["span_id"]
    assert inner["attributes"]["localqueue.outcome"] == "ack"
    assert inner["attributes"]["localqueue.task"] == "shop.tasks.work"


@pytest.mark.parametrize("processes", ["1", "2"])
def test_each_process_tells_of_its_start_and_its_end(site: Site, processes: str) -> None:
    site.append("tasks", HELD)
    site.put("work", 1)
    arguments = ("--name", "w", "--processes", processes)
    assert site.start("--burst", *arguments).wait() == 0
    names = ["w"] if processes == "1" else ["w/1", "w/2"]
    assert sorted(site.ledger("started")) == names
    ends = [line.split() for line in sorted(site.ledger("stopped"))]
    assert [end[0] for end in ends] == names
    assert sum(int(end[1]) for end in ends) == 1


def test_a_worker_that_is_forced_to_end_tells_of_it(site: Site) -> None:
    site.append("tasks", HELD)
    site.put("wait_for_gate", "a")
    worker = site.start("--name", "w")
    site.wait_until(lambda: site.ledger("begun"), "the job")
    worker.send(signal.SIGQUIT)
    assert worker.wait() == 1
    assert site.ledger("stopped") == ["w 0 True"]
