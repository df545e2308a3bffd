"""OpenTelemetry spans of enqueuing and running; the trace goes with the job in its headers.

Asked for by ``TASKS[alias]["OPTIONS"]["tracing"]``. Only the API of OpenTelemetry is used: where
the project sets up no SDK, nothing is recorded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from opentelemetry import propagate, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from django_localqueue.tasks.calls import Prepared
from django_localqueue.tasks.results import LocalTaskResult
from django_localqueue.types import ErrorRecord, Job, Settle

#: The header of a job that carries its trace.
HEADER = "trace"

_tracer = trace.get_tracer("django_localqueue")


def inject(prepared: Prepared) -> None:
    """Make a span of an enqueue, and give its context to the job."""
    job = prepared.pending.job
    attributes = _attributes(prepared.alias, prepared.result.id, job["task"])
    name = f"enqueue {job['task']}"
    with _tracer.start_as_current_span(name, kind=SpanKind.PRODUCER, attributes=attributes):
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
    if carrier:
        job["headers"][HEADER] = carrier


@contextlib.contextmanager
def running(job: Job, result: LocalTaskResult) -> Iterator[Span]:
    """Make a span of an attempt, as a part of the trace that its enqueue was of."""
    carrier = job.headers.get(HEADER)
    context = propagate.extract(carrier) if isinstance(carrier, dict) else None
    attributes = _attributes(result.task.queue_name, job.id, job.task or "")
    with _tracer.start_as_current_span(
        f"run {job.task}",
        context=context,
        kind=SpanKind.CONSUMER,
        attributes={**attributes, "localqueue.attempt": job.attempts},
    ) as span:
        yield span


def ended(span: Span, settle: Settle) -> None:
    """Note in the span of an attempt how it ended: ack, nack (it runs again) or fail."""
    span.set_attribute("localqueue.outcome", settle.verb)
    error = settle.error
    if isinstance(error, ErrorRecord):
        span.set_status(Status(StatusCode.ERROR, error.message))
        span.add_event(
            "exception",
            {
                "exception.type": error.error_class,
                "exception.message": error.message,
                "exception.stacktrace": error.traceback,
            },
        )


def _attributes(queue: str, id: str, task: str) -> dict[str, str]:
    return {
        "messaging.system": "localqueue",
        "messaging.destination.name": queue,
        "messaging.message.id": id,
        "localqueue.task": task,
    }
