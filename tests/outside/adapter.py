"""Our backend in the place of Django's own two, as their tests look at them."""

from __future__ import annotations

from typing import Any

from django_localqueue import JobFilter, queues
from django_localqueue.tasks import LocalQueueBackend, run_task
from django_localqueue.worker import Worker
from django_localqueue.worker.django import DjangoExecutor


def drain(name: str = "outside") -> None:
    """Run everything that waits in every queue, with a real worker."""
    Worker(queues.all(), DjangoExecutor(run_task, {}), burst=True, name=name).run()


class WaitingBackend(LocalQueueBackend):
    """For ``DummyBackend``, whose tests look at what was enqueued and never run it."""

    @property
    def results(self) -> list[Any]:
        """What waits in the queues, in put order."""
        waiting = JobFilter(state="ready")
        records = [record for queue in queues.all() for record in queue.list(waiting).records]
        return [self.get_result(record.id) for record in sorted(records, key=lambda r: r.cursor)]

    def clear(self) -> None:
        """Remove every job."""
        for queue in queues.all():
            for record in queue.list(JobFilter(state="ready")).records:
                queue.cancel(record.id)
            queue.purge(older_than=0, include_failed=True)


class DrainingBackend(LocalQueueBackend):
    """For ``ImmediateBackend``, whose tests expect that enqueue has run the task."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        drain()
        result.refresh()
        return result
