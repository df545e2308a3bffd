"""The queues, as the suite looks at its table: what it counts, finds, and changes by hand."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from django_localqueue import Job, JobFilter, JobRecord, Settle, queues
from django_localqueue.tasks import results
from django_localqueue.tasks.compat import TaskResultStatus, task_backends
from django_localqueue.types import STATES, State

#: What was brought into the state "running" by hand.
claimed: list[Job] = []
WAITING: tuple[State, ...] = ("ready", "delayed", "blocked")


def get_date_max() -> None:
    """Named by a test case that is left out."""


class Row:
    """A job as the suite looks at a row."""

    def __init__(self, record: JobRecord) -> None:
        self.id = record.id
        self._record = record

    def refresh_from_db(self) -> None:
        (self._record,) = [record for _, record in records(STATES) if record.id == self.id]

    @property
    def status(self) -> TaskResultStatus:
        return results.STATUSES[self._record.state]

    @property
    def traceback(self) -> str:
        error = self._record.history[-1].error
        return error.traceback if error else ""

    @property
    def task(self) -> Any:
        """The task, or what finding it raises."""
        return self.task_result.task

    @property
    def task_result(self) -> Any:
        return task_backends["default"].get_result(self.id)

    @property
    def worker_ids(self) -> list[str]:
        return list(self.task_result.worker_ids)


class Rows:
    """The jobs in some states, of all queues or of some ids."""

    def __init__(self, states: Iterable[State] = STATES, ids: tuple[str, ...] = ()) -> None:
        self._states = tuple(states)
        self._ids = ids

    def all(self) -> Rows:
        return self

    def ready(self) -> Rows:
        return Rows(["ready"])

    def running(self) -> Rows:
        return Rows(["processing"])

    def successful(self) -> Rows:
        return Rows(["acked"])

    def failed(self) -> Rows:
        return Rows(["failed"])

    def finished(self) -> Rows:
        return Rows(["acked", "failed"])

    def filter(self, id: str) -> Rows:
        return Rows(self._states, (id,))

    def using(self, _database: str) -> Rows:
        return self

    def count(self) -> int:
        return len(list(self._records()))

    def get(self, id: str) -> Row:
        (found,) = [record for record in self._records() if record.id == id]
        return Row(found)

    def create(self, *, args_kwargs: Any, task_path: str, backend_name: str) -> Row:
        """Put a job as no task could: with any name."""
        queue = queues["default"]
        id = str(uuid.uuid4())
        queue.put(args_kwargs, id, task=task_path, headers={"backend": backend_name})
        record = queue.lookup(id)
        assert record is not None
        return Row(record)

    def update(self, **changes: Any) -> None:
        """Bring jobs into a state as workers do: by claiming and settling them."""
        if "run_after" in changes:
            for queue in queues.all():
                queue.apply("run_now", JobFilter(state="delayed", ids=self._ids))
            return
        worker = (changes.get("worker_ids") or ["by hand"])[0]
        for queue in queues.all():
            jobs = queue.get_many(1_000, worker=worker)
            if changes["status"] == TaskResultStatus.SUCCESSFUL:
                value = changes.get("return_value")
                queue.exchange([Settle(job, "ack", result=value) for job in jobs], 0)
            elif changes["status"] == TaskResultStatus.FAILED:
                queue.exchange([Settle(job, "fail") for job in jobs], 0)
            else:
                claimed.extend(jobs)

    async def aupdate(self, **changes: Any) -> None:
        self.update(**changes)

    def clear(self) -> None:
        """Remove every job but those that a worker of the suite still runs."""
        while claimed:
            job = claimed.pop()
            job.queue.fail(job, reason="cancelled")
        for queue in queues.all():
            for state in WAITING:
                queue.apply("cancel", JobFilter(state=state))
            queue.purge(older_than=0, include_failed=True)

    def _records(self) -> Iterator[JobRecord]:
        for _, record in records(self._states):
            if not self._ids or record.id in self._ids:
                yield record


def records(states: Iterable[State]) -> Iterator[tuple[str, JobRecord]]:
    """Yield the jobs in these states, with their queues' aliases."""
    for alias in queues:
        for state in states:
            for record in queues[alias].list(JobFilter(state=state), limit=1_000).records:
                full = queues[alias].lookup(record.id)
                if full is not None:
                    yield alias, full


class DBTaskResult:
    """Stands where the other package has its model."""

    objects = Rows()
