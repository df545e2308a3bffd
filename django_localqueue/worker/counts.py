"""How many deliveries of a worker ended how."""

from __future__ import annotations

from dataclasses import dataclass

from django_localqueue.exceptions import LocalQueueError
from django_localqueue.types import Job, Settle
from django_localqueue.worker.executor import Running


@dataclass(slots=True)
class Counts:
    """``failed`` became dead letters, ``retried`` were given back after an error, ``released``
    unfinished, and ``lost`` had lost their lease, so that how they ended did not count."""

    done: int = 0
    failed: int = 0
    retried: int = 0
    released: int = 0
    lost: int = 0

    def add(self, running: Running, settle: Settle, lost: LocalQueueError | None) -> None:
        """Count a delivery that ended."""
        if lost is not None:
            self.lost += 1
        elif settle.verb == "ack":
            self.done += 1
        elif settle.verb == "release":
            self.released += 1
        elif settle.verb == "fail" or running.cancel_requested or is_last_delivery(running.job):
            self.failed += 1
        else:
            self.retried += 1

    def include(self, other: Counts) -> None:
        """Count what another counted too."""
        self.done += other.done
        self.failed += other.failed
        self.retried += other.retried
        self.released += other.released
        self.lost += other.lost


def is_last_delivery(job: Job) -> bool:
    """Whether the queue makes a job a dead letter if it is given back after an error."""
    most = job.queue.max_retries if job.max_retries is None else job.max_retries
    return job.attempts > most
