"""The worker: its threads, its signals, its end."""

from __future__ import annotations

import contextlib
import logging
import os
import queue as std_queue
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from django_localqueue.backends.arguments import seconds, text, whole
from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import InvalidInput, LocalQueueError
from django_localqueue.worker.burst import Burst
from django_localqueue.worker.claimer import Claimer
from django_localqueue.worker.executor import (
    Executor,
    Handler,
    HandlerExecutor,
    closing_thread,
    execute,
)
from django_localqueue.worker.heartbeat import Heartbeat
from django_localqueue.worker.pruner import Pruner

logger = logging.getLogger("django_localqueue.worker")

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGQUIT") if hasattr(signal, name)
)
SECOND_SIGNAL_AFTER = 1.0  # seconds: a terminal and its shell may both send the first one
POLL = 0.05
#: Of two signals at once the second may reach another thread; CPython then leaves a main
#: thread that waits without a timeout asleep, with both unhandled.
IDLE_POLL = 0.5
LAST_WAIT = 1.0

Event = Literal["stop", "ended"] | int


@dataclass(frozen=True, slots=True)
class Summary:
    """What a worker did.

    ``done``, ``failed`` (became dead letters), ``retried`` (given back after an
    error), ``released`` (given back unfinished) and ``lost`` (their lease was lost,
    so the end did not count) are deliveries; ``seconds`` is how long it ran;
    ``forced`` says that it stopped without waiting for running jobs; ``error`` is
    what made it stop by itself.
    """

    done: int = 0
    failed: int = 0
    retried: int = 0
    released: int = 0
    lost: int = 0
    seconds: float = 0.0
    forced: bool = False
    error: LocalQueueError | None = None

    @property
    def exit_code(self) -> int:
        """0 after a clean end, 1 after a forced one, 3 where the store is unusable."""
        return 3 if self.error else int(self.forced)


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
    ) -> None:
        self.queues = (queue,) if isinstance(queue, BaseQueue) else tuple(queue)
        if not self.queues or not all(isinstance(queue, BaseQueue) for queue in self.queues):
            raise InvalidInput("The worker needs a queue, or several.")
        self._executor = handler if isinstance(handler, Executor) else HandlerExecutor(handler)
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
        self.name = text(_default_name() if name is None else name, "name")
        # Its put() is safe in a signal handler, unlike a lock or an Event.
        self._events: std_queue.SimpleQueue[Event] = std_queue.SimpleQueue()
        self._claimers: list[Claimer] = []
        self._stop_began: float | None = None
        self._forced = False

    def run(self) -> Summary:
        """Run jobs until stopped, in burst until there are none; return what was done.

        On the main thread SIGINT, SIGTERM and SIGQUIT stop it; the old handlers are
        put back at the end. The first INT or TERM lets running jobs finish; another
        one a second or more later, or a QUIT, gives them back to be run elsewhere.
        """
        began = time.monotonic()
        self._stop_began = None
        self._forced = False
        self._claimers = self._make_claimers()
        heartbeat = Heartbeat(self._claimers, self._shortest_interval() / 2)
        pruner = Pruner(self.queues)
        threads = [
            threading.Thread(
                target=self._work,
                args=(claimer, self._events),
                name=f"localqueue-executor-{number}",
                daemon=True,  # a job that never ends must not keep the process
            )
            for number, claimer in enumerate(self._claimers * self.threads, 1)
        ]
        with self._signals():
            names = ", ".join(queue.name for queue in self.queues)
            logger.info("The worker %s serves %s.", self.name, names)
            try:
                heartbeat.start()
                pruner.start()
                for thread in threads:
                    thread.start()
                self._supervise(len(threads))
            finally:
                for claimer in self._claimers:
                    claimer.stop()
                heartbeat.stop()
                pruner.stop()
                self._events = std_queue.SimpleQueue()  # another run starts without old events
        if not self._forced:
            for thread in threads:
                thread.join(LAST_WAIT)
            heartbeat.join(LAST_WAIT)
            pruner.join(LAST_WAIT)
        return self._summary(time.monotonic() - began)

    def stop(self) -> None:
        """Claim no more, finish what runs and end ``run``.

        May be called from any thread and from a signal handler; before ``run`` it
        makes that end at once.
        """
        self._events.put("stop")

    # ---- the executor threads

    def _work(self, claimer: Claimer, events: std_queue.SimpleQueue[Event]) -> None:
        try:
            with closing_thread(self._executor):
                while (running := claimer.next()) is not None:
                    settle = execute(self._executor, running)
                    took = time.monotonic() - running.started
                    claimer.finish(running, settle)
                    running.log(logging.INFO, "ended with %s after %.3f s.", settle.verb, took)
                    del running, settle
        except BaseException:
            logger.critical("An executor thread broke down; the worker stops.", exc_info=True)
            events.put("stop")
        finally:
            events.put("ended")

    # ---- the thread of run()

    def _supervise(self, alive: int) -> None:
        """Wait until every executor thread has ended, or is not to be waited for."""
        while alive and not self._forced:
            event = self._next_event()
            if event == "ended":
                alive -= 1
            elif event == "stop":
                self._begin_stop("asked to")
            elif event is not None:
                self._on_signal(event)
            if self._stop_began is None and any(claimer.error for claimer in self._claimers):
                self._begin_stop("a store can't be used")
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

    def _next_event(self) -> Event | None:
        with contextlib.suppress(std_queue.Empty):
            return self._events.get(timeout=IDLE_POLL if self._stop_began is None else POLL)
        return None

    def _on_signal(self, number: int) -> None:
        name = signal.Signals(number).name
        if self._stop_began is None:
            self._begin_stop(f"received {name}")
            self._forced = name == "SIGQUIT"
        elif name == "SIGQUIT" or time.monotonic() - self._stop_began >= SECOND_SIGNAL_AFTER:
            logger.warning("Received %s while stopping.", name)
            self._forced = True

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

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Take the signals that stop a process, if this is the thread that may."""
        old = {}
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                old[number] = signal.signal(number, lambda number, _: self._events.put(number))
        try:
            yield
        finally:
            for number, handler in old.items():
                if handler is not None:  # None: not set from Python, so not to be put back
                    signal.signal(number, handler)

    def _make_claimers(self) -> list[Claimer]:
        stores: dict[str, list[BaseQueue]] = {}
        for queue in self.queues:
            stores.setdefault(queue.store_key, []).append(queue)
        burst = Burst(len(stores)) if self.burst else None
        return [
            Claimer(
                queues,
                threads=self.threads,
                worker=self.name,
                heartbeat_interval=self.heartbeat_interval,
                lease_seconds=self.lease_seconds,
                round_robin=self.round_robin,
                burst=burst,
                on_burst_over=self._on_burst_over,
            )
            for queues in stores.values()
        ]

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

    def _summary(self, took: float) -> Summary:
        counts = [claimer.counts for claimer in self._claimers]
        errors = [claimer.error for claimer in self._claimers if claimer.error]
        return Summary(
            done=sum(count.done for count in counts),
            failed=sum(count.failed for count in counts),
            retried=sum(count.retried for count in counts),
            released=sum(count.released for count in counts),
            lost=sum(count.lost for count in counts),
            seconds=took,
            forced=self._forced,
            error=errors[0] if errors else None,
        )


def _default_name() -> str:
    return f"{socket.gethostname()[:200]}:{os.getpid()}:{secrets.token_hex(3)}"
