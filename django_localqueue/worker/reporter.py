"""The thread that tells the stores of a worker, and hears what it is asked to do."""

from __future__ import annotations

import dataclasses
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence

from django_localqueue.exceptions import LocalQueueError
from django_localqueue.records import RunningJob, WorkerCommand, WorkerRecord, WorkerState
from django_localqueue.types import MICROSECONDS
from django_localqueue.worker.chores import take_back_from_dead
from django_localqueue.worker.claimer import Claimer
from django_localqueue.worker.limits import rss
from django_localqueue.worker.throttle import Throttle

logger = logging.getLogger("django_localqueue.worker")

LISTEN = 2.0  # seconds between two looks whether there is a command; they write nothing
BUSY, IDLE = 10.0, 30.0  # seconds between two reports, with and without running jobs


class Reporter:
    """Reports a worker to each of its stores.

    Args:
        claimers: of the worker, one a store.
        name: the worker's.
        version: of this package.
        concurrency: how many jobs of one store run at a time.
        state: returns what the worker does now.
        on_command: called with what it is asked to do.
    """

    def __init__(
        self,
        claimers: Sequence[Claimer],
        *,
        name: str,
        version: str,
        concurrency: int,
        state: Callable[[], WorkerState],
        on_command: Callable[[WorkerCommand], None],
    ) -> None:
        self._claimers = claimers
        self._record = WorkerRecord(
            name, socket.gethostname(), os.getpid(), version, concurrency=concurrency
        )
        self._state = state
        self._on_command = on_command
        self._ended = threading.Event()
        self._told: dict[int, tuple[float, WorkerState]] = {}
        self._trouble = Throttle()
        self._thread = threading.Thread(target=self._run, name="localqueue-reporter", daemon=True)
        #: When every store last answered, monotonic.
        self.answered_at = time.monotonic()

    def start(self) -> None:
        """Report for the first time, then go on in a thread."""
        self._look()
        self._thread.start()

    def stop(self) -> None:
        """Report no more, and be forgotten by the stores."""
        self._ended.set()
        self._thread.join(1)
        for claimer in self._claimers:
            try:
                claimer.store.forget_worker(self._record.name)
            except LocalQueueError as error:
                logger.debug("The store %s keeps the report: %s", claimer.store.store_key, error)

    def _run(self) -> None:
        while not self._ended.wait(LISTEN):
            self._look()

    def _look(self) -> None:
        answered = True
        for index, claimer in enumerate(self._claimers):
            try:
                self._look_at(index, claimer)
            except Exception as error:
                answered = False
                if self._trouble():
                    logger.warning("The worker can't be reported; trying again: %s", error)
        if answered:
            self.answered_at = time.monotonic()

    def _look_at(self, index: int, claimer: Claimer) -> None:
        state = self._state()
        at, told = self._told.get(index, (None, state))
        own = [worker for worker in claimer.store.workers() if worker.name == self._record.name]
        asked = not own or own[0].command is not None
        now = time.monotonic()
        every = BUSY if claimer.running() else IDLE
        if at is not None and now - at < every and told == state and not asked:
            return
        if at is None:
            # A dead predecessor of the same name looks alive from the first report on.
            take_back_from_dead(claimer.queues)
        command = claimer.store.report_worker(self._of(claimer, state, at is None))
        self._told[index] = now, state
        if command is not None:
            self._on_command(command)

    def _of(self, claimer: Claimer, state: WorkerState, first: bool) -> WorkerRecord:
        if first and not self._record.started_at:
            self._record = dataclasses.replace(self._record, started_at=claimer.store.now())
        wall, now = claimer.store.now(), time.monotonic()
        running = tuple(
            RunningJob(
                one.job.id,
                one.job.task,
                one.job.queue.name,
                wall - round((now - one.started) * MICROSECONDS),
                one.overdue,
            )
            for one in list(claimer.live.values())
            if one.begun and one.settle is None
        )
        return dataclasses.replace(
            self._record,
            queues=tuple(queue.name for queue in claimer.queues),
            running=running,
            counts=dataclasses.asdict(claimer.counts),
            rss=rss(),
            state=state,
        )
