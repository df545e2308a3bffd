"""The worker: its threads, its signals, its end."""

from __future__ import annotations

import contextlib
import logging
import queue as std_queue
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

from django_localqueue.backends.arguments import seconds, text, whole
from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import InvalidInput
from django_localqueue.records import WorkerState
from django_localqueue.worker import signals
from django_localqueue.worker.burst import Burst
from django_localqueue.worker.chores import Chore, Prune, Reclaim, do_once, doing
from django_localqueue.worker.claimer import Claimer
from django_localqueue.worker.counts import Counts
from django_localqueue.worker.executor import (
    Executor,
    Handler,
    HandlerExecutor,
    closing_thread,
    execute,
)
from django_localqueue.worker.heartbeat import Heartbeat
from django_localqueue.worker.limits import Limits
from django_localqueue.worker.loop import coroutines
from django_localqueue.worker.names import default_name, package_version
from django_localqueue.worker.reporter import Reporter
from django_localqueue.worker.summary import Summary

if TYPE_CHECKING:
    from django_localqueue.worker.board import Board, End

logger = logging.getLogger("django_localqueue.worker")
#: A line for each job: a logger of its own, so that it can be left out where jobs are many.
ends = logging.getLogger("django_localqueue.jobs")

SECOND_SIGNAL_AFTER = 1.0  # seconds: a terminal and its shell may both send the first one
POLL = 0.05
#: Of two signals at once the second may reach another thread; CPython then leaves a main
#: thread that waits without a timeout asleep, with both unhandled.
IDLE_POLL = 0.5
LAST_WAIT = 1.0

Event = Literal["stop", "ended", "used up", "quiet", "resume"] | int
#: Ends of a worker that a supervisor answers with a new one.
RECYCLING = ("max-jobs", "max-memory", "max-lifetime")


class Worker:
    """Gets jobs and runs them until it is stopped.

    The handler runs in threads of the worker's, not in the one that calls ``run``.
    Where it returns, the job is acked, with the returned value as its result if the
    queue can carry it; where it raises, the job is nacked with the exception. Leases
    of running jobs are renewed.

    Args:
        queue: the queue to serve, or several. Of several in one store an earlier one
            is emptied before a later one is looked at; queues of different stores
            don't wait for each other.
        handler: a function (or coroutine function) that takes the ``Job``, or an
            ``Executor``.
        heartbeat_interval: seconds between two renewals of a lease; a short lease
            is renewed three times in its length.
        threads: how many jobs of one store run at a time.
        burst: end when no job is ready or running.
        round_robin: take turns between the queues of a store instead.
        lease_seconds: for every job; None: each queue's own.
        shutdown_timeout: seconds that ``stop`` gives running jobs before they are
            given back; None: for ever.
        name: recorded with each attempt; default host, process id and something random.
        limits: what ends it by itself.
        job_timeout: seconds after which a job is overdue, which is logged and shown: a
            thread can't be ended. Worker processes under a supervisor can.
        chores: what it does beside those that every worker does.
        on_pulse: called twice a second with the time, monotonic, when it was last seen to
            be alive.
        board: what its supervisor sees of it.

    Raises:
        InvalidInput: an argument is of the wrong type or out of range.
    """

    def __init__(
        self,
        queue: BaseQueue | Iterable[BaseQueue],
        handler: Handler | Executor,
        heartbeat_interval: float = 10,
        *,
        threads: int = 1,
        burst: bool = False,
        round_robin: bool = False,
        lease_seconds: float | None = None,
        shutdown_timeout: float | None = None,
        name: str | None = None,
        limits: Limits | None = None,
        job_timeout: float | None = None,
        chores: Sequence[Chore] = (),
        on_pulse: Callable[[Worker], None] | None = None,
        board: Board | None = None,
    ) -> None:
        self.queues = (queue,) if isinstance(queue, BaseQueue) else tuple(queue)
        if not self.queues or not all(isinstance(queue, BaseQueue) for queue in self.queues):
            raise InvalidInput("The worker needs a queue, or several.")
        self.executor = handler if isinstance(handler, Executor) else HandlerExecutor(handler)
        self.heartbeat_interval = seconds(heartbeat_interval, "heartbeat_interval", positive=True)
        self.threads = whole(threads, "threads", 1, 1_000)
        self.burst = burst
        self.round_robin = round_robin
        if lease_seconds is not None:
            seconds(lease_seconds, "lease_seconds", positive=True)
        self.lease_seconds = lease_seconds
        if shutdown_timeout is not None:
            seconds(shutdown_timeout, "shutdown_timeout")
        self.shutdown_timeout = shutdown_timeout
        self.name = text(default_name() if name is None else name, "name")
        self.limits = Limits() if limits is None else limits
        if job_timeout is not None:
            seconds(job_timeout, "job_timeout", positive=True)
        self.job_timeout = job_timeout
        self.chores = tuple(chores)
        self._on_pulse = on_pulse
        self._board = board
        # Its put() is safe in a signal handler, unlike a lock or an Event.
        self._events: std_queue.SimpleQueue[Event] = std_queue.SimpleQueue()
        self._claimers: list[Claimer] = []
        self._heartbeat: Heartbeat | None = None
        self._reporter: Reporter | None = None
        self._stop_began: float | None = None
        self._told_at: float | None = None
        self._forced = False
        self._quiet = False
        self._limit: str | None = None

    @property
    def state(self) -> WorkerState:
        """What it does now."""
        if self._stop_began is not None:
            return "stopping"
        return "quiet" if self._quiet else "running"

    @property
    def was_told(self) -> bool:
        """Whether a signal asked it to stop."""
        return self._told_at is not None

    def alive_at(self) -> float:
        """Return when it was last seen to renew leases, monotonic; 0 before it runs."""
        return self._heartbeat.beat_at if self._heartbeat else 0.0

    def answered_at(self) -> float:
        """Return when its stores last answered, monotonic; 0 before it runs."""
        return self._reporter.answered_at if self._reporter else 0.0

    def run(self) -> Summary:
        """Run jobs until stopped, in burst until there are none; return what was done.

        On the main thread signals are taken; the old handlers are put back at the end. The
        first INT or TERM lets running jobs finish; another one a second or more later, or a
        QUIT, gives them back to be run elsewhere. TSTP and USR2 make it quiet, CONT lets it
        go on, USR1 shows all stacks, HUP is ignored.
        """
        began = time.monotonic()
        self._stop_began = self._told_at = self._limit = None
        self._forced = self._quiet = False
        self._claimers = self._make_claimers()
        heartbeat = self._heartbeat = Heartbeat(
            self._claimers,
            self._shortest_interval() / 2,
            self.job_timeout,
            supervised=self._board is not None,
        )
        reporter = self._reporter = self._make_reporter()
        threads = [
            threading.Thread(
                target=self._work,
                args=(claimer, self._events, number),
                name=f"localqueue-executor-{number + 1}",
                daemon=True,  # a job that never ends must not keep the process
            )
            for number, claimer in enumerate(self._claimers * self.threads)
        ]
        chores = [Reclaim(self.queues), Prune(self.queues), *self.chores]
        events = self._events
        with signals.taken(events.put), coroutines, contextlib.ExitStack() as stack:
            names = ", ".join(queue.name for queue in self.queues)
            logger.info("The worker %s serves %s.", self.name, names)
            try:
                heartbeat.start()
                reporter.start()
                if self.burst:
                    # What waits in an outbox or is due by a schedule belongs to the burst.
                    do_once(self.chores, self.name)
                stack.enter_context(doing(chores, self.name))
                for thread in threads:
                    thread.start()
                self._supervise(len(threads), began)
            finally:
                for claimer in self._claimers:
                    claimer.stop()
                heartbeat.stop()
                self._events = std_queue.SimpleQueue()  # another run starts without old events
            if not self._forced:
                for thread in threads:
                    thread.join(LAST_WAIT)
                heartbeat.join(LAST_WAIT)
            reporter.stop()
            self._pulse("recycled" if self._limit in RECYCLING else "ended")
        return self._summary(time.monotonic() - began)

    def stop(self) -> None:
        """Claim no more, finish what runs and end ``run``.

        May be called from any thread and from a signal handler; before ``run`` it
        makes that end at once.
        """
        self._events.put("stop")

    # ---- the executor threads

    def _work(self, claimer: Claimer, events: std_queue.SimpleQueue[Event], number: int) -> None:
        board = self._board
        indexes = {queue.name: self.queues.index(queue) for queue in claimer.queues}
        try:
            with closing_thread(self.executor):
                while (running := claimer.next()) is not None:
                    if board is not None:
                        index = indexes[running.job.queue.name]
                        board.begin(number, running, index, running.timeout(self.job_timeout))
                    settle = execute(self.executor, running)
                    took = time.monotonic() - running.started
                    if board is not None:
                        board.end(number)
                    claimer.finish(running, settle)
                    if ends.isEnabledFor(logging.INFO):
                        running.log(
                            logging.INFO,
                            "ended with %s after %.3f s.",
                            *(settle.verb, took),
                            fields={"outcome": settle.verb, "seconds": round(took, 6)},
                            to=ends,
                        )
                    del running, settle
        except BaseException:
            logger.critical("An executor thread broke down; the worker stops.", exc_info=True)
            events.put("stop")
        finally:
            events.put("ended")

    # ---- the thread of run()

    def _supervise(self, alive: int, began: float) -> None:
        """Wait until every executor thread has ended, or is not to be waited for."""
        while alive and not self._forced:
            event = self._next_event()
            if event == "ended":
                alive -= 1
            elif event == "stop":
                self._begin_stop("asked to")
            elif event == "used up":
                self._end_by("max-jobs")
            elif event in ("quiet", "resume"):
                self._be_quiet(event == "quiet", "asked to")
            elif isinstance(event, int):
                self._on_signal(event)
            self._pulse()
            for claimer in self._claimers:
                claimer.give_back_stuck()
            if self._stop_began is None:
                self._look_for_an_end(began)
            if self._stop_began is None:
                continue
            for claimer in self._claimers:
                claimer.stop()
            timeout = self.shutdown_timeout
            if timeout is not None and time.monotonic() - self._stop_began >= timeout and alive:
                logger.warning("The shutdown timeout of %s seconds has passed.", timeout)
                self._forced = True
        if self._forced:
            self._abandon(alive)

    def _look_for_an_end(self, began: float) -> None:
        if any(claimer.error for claimer in self._claimers):
            self._begin_stop("a store can't be used")
            return
        idle = [claimer.idle_since for claimer in self._claimers]
        last = None if None in idle else max(since for since in idle if since is not None)
        reached = self.limits.reached(began, last)
        if reached is not None:
            self._end_by(reached)

    def _end_by(self, limit: str) -> None:
        if self._limit is None and self._stop_began is None:
            self._limit = limit
            self._begin_stop(f"{limit} is reached")

    def _next_event(self) -> Event | None:
        with contextlib.suppress(std_queue.Empty):
            return self._events.get(timeout=IDLE_POLL if self._stop_began is None else POLL)
        return None

    def _pulse(self, end: End = "unknown") -> None:
        if self._board is not None:
            self._board.pulse(self.alive_at(), self.answered_at(), self._counts(), end)
        if self._on_pulse is not None:
            self._on_pulse(self)

    def _on_signal(self, number: int) -> None:
        name = signal.Signals(number).name
        if number in signals.QUIET or number in signals.RESUME:
            self._be_quiet(number in signals.QUIET, f"received {name}")
        elif number in signals.IGNORED:
            logger.warning("Received %s, which is ignored; restart the worker to reload it.", name)
        elif self._told_at is None:  # it may be stopping for another reason already
            self._told_at = time.monotonic()
            if self._stop_began is not None:
                logger.info("Received %s while stopping already.", name)
            self._begin_stop(f"received {name}")
            self._forced = number in signals.STOP_NOW
        elif number in signals.STOP_NOW or time.monotonic() - self._told_at >= SECOND_SIGNAL_AFTER:
            logger.warning("Received %s while stopping.", name)
            self._forced = True

    def _be_quiet(self, quiet: bool, why: str) -> None:
        if quiet == self._quiet or self._stop_began is not None:
            return
        self._quiet = quiet
        logger.info("The worker %s (%s).", "claims no more jobs" if quiet else "goes on", why)
        for claimer in self._claimers:
            claimer.be_quiet(quiet)

    def _begin_stop(self, why: str) -> None:
        if self._stop_began is None:
            self._stop_began = time.monotonic()
            running = sum(len(claimer.live) for claimer in self._claimers)
            logger.info("The worker stops (%s): no more claims, %d jobs to finish.", why, running)

    def _abandon(self, alive: int) -> None:
        for claimer in self._claimers:
            claimer.abandon()
        deadline = time.monotonic() + LAST_WAIT
        running = sum(claimer.running() for claimer in self._claimers)
        while alive > running and time.monotonic() < deadline:  # the idle ones end at once
            for claimer in self._claimers:
                claimer.stop()
            alive -= self._next_event() == "ended"

    # ---- its parts

    def _make_claimers(self) -> list[Claimer]:
        stores: dict[str, list[BaseQueue]] = {}
        for queue in self.queues:
            stores.setdefault(queue.store_key, []).append(queue)
        burst = Burst(len(stores)) if self.burst else None
        budget = self.limits.budget()
        events = self._events
        return [
            Claimer(
                queues,
                threads=self.threads,
                worker=self.name,
                heartbeat_interval=self.heartbeat_interval,
                lease_seconds=self.lease_seconds,
                round_robin=self.round_robin,
                budget=budget,
                burst=burst,
                on_burst_over=self._on_burst_over,
                on_used_up=lambda: events.put("used up"),
            )
            for queues in stores.values()
        ]

    def _make_reporter(self) -> Reporter:
        return Reporter(
            self._claimers,
            name=self.name,
            version=package_version(),
            concurrency=self.threads,
            state=lambda: self.state,
            on_command=self._events.put,
        )

    def _on_burst_over(self) -> None:
        for claimer in self._claimers:
            claimer.stop()

    def _shortest_interval(self) -> float:
        leases = (
            [queue.lease_seconds for queue in self.queues]
            if self.lease_seconds is None
            else [self.lease_seconds]
        )
        return min(self.heartbeat_interval, *(lease / 3 for lease in leases))

    def _counts(self) -> Counts:
        total = Counts()
        for claimer in self._claimers:
            total.include(claimer.counts)
        return total

    def _summary(self, took: float) -> Summary:
        errors = [claimer.error for claimer in self._claimers if claimer.error]
        return Summary(
            **asdict(self._counts()),
            seconds=took,
            forced=self._forced,
            error=errors[0] if errors else None,
            limit=self._limit,
        )
