"""The claimer of one store: settles what is done and claims what comes next.

The executor threads take turns at it. A thread that is free either finds a job that
another has claimed for it, or claims itself, for all threads that are free. So at
any time at most one thread is in ``exchange``, one transaction settles and claims
for several jobs, and a job goes from the store to its thread without a hand-over
where threads are busy. Where jobs are short it claims more than there are threads.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import (
    ForeignDatabase,
    InvalidInput,
    LeaseExpired,
    LocalQueueError,
    NewerSchema,
    QueueClosed,
    StoreCorrupt,
)
from django_localqueue.types import ErrorRecord, Exchange, Job, Settle
from django_localqueue.worker.burst import Burst
from django_localqueue.worker.counts import Counts
from django_localqueue.worker.executor import Running
from django_localqueue.worker.limits import Budget
from django_localqueue.worker.prefetch import Prefetch
from django_localqueue.worker.throttle import Throttle

logger = logging.getLogger("django_localqueue.worker")

#: Errors that time doesn't mend: the worker stops.
FATAL = (StoreCorrupt, ForeignDatabase, NewerSchema, QueueClosed)

IDLE_WAIT = 30.0  # seconds in one exchange without work; an interrupt ends it
BURST_WAIT = 0.1
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 5.0
#: Seconds after which a claimed job that no thread has begun goes back.
STUCK = 0.1
QUIET_POLL = 0.2


class Claimer:
    """Claims jobs of one store for a number of executor threads.

    Args:
        queues: of one store; an earlier one is emptied before a later one.
        threads: how many executors there are, so how many jobs to hold at most.
        worker: the worker's name.
        heartbeat_interval: seconds; a lease is renewed so often, or three times in
            its length where that is more often.
        lease_seconds: for every claim; None: each queue's own.
        round_robin: take turns between the queues.
        budget: how many jobs the worker may still claim.
        burst: what the claimers of a worker that ends when no job is left share.
        on_burst_over: called when no store has work any more.
        on_used_up: called when the budget is used up.
    """

    def __init__(
        self,
        queues: Sequence[BaseQueue],
        *,
        threads: int,
        worker: str,
        heartbeat_interval: float,
        lease_seconds: float | None = None,
        round_robin: bool = False,
        budget: Budget | None = None,
        burst: Burst | None = None,
        on_burst_over: Callable[[], None],
        on_used_up: Callable[[], None],
    ) -> None:
        self.queues = tuple(queues)
        self.store = self.queues[0]
        self.counts = Counts()
        self.stopping = threading.Event()
        #: Nothing is claimed while it is set.
        self.quiet = threading.Event()
        self.abandoned = False
        #: Since when no job has been claimed or has run, monotonic; None: one does.
        self.idle_since: float | None = time.monotonic()
        self.error: LocalQueueError | None = None
        #: Every job claimed and not settled, by receipt.
        self.live: dict[str, Running] = {}
        self._threads = threads
        self._worker = worker
        self._heartbeat_interval = heartbeat_interval
        self._lease_seconds = lease_seconds
        self._round_robin = round_robin
        self._budget = budget or Budget(None)
        self._prefetch = Prefetch()
        self._begun_at = 0.0
        self._nudge = threading.Event()
        self._burst = burst
        self._on_burst_over = on_burst_over
        self._on_used_up = on_used_up
        self._turn = threading.Lock()
        self._waiting = False
        self._idle = False
        self._empty_look: int | None = None
        self._unfinished: set[str] = set()
        self._ready: collections.deque[Running] = collections.deque()
        self._finished: collections.deque[tuple[Running, Settle]] = collections.deque()
        self._pause = FIRST_PAUSE
        self._trouble = Throttle()

    # ---- for the executor threads

    def next(self) -> Running | None:
        """Return a job for the calling thread; None: the thread shall end."""
        running = self._next()
        if running is not None:
            running.begin()
            self._begun_at = running.started
        return running

    def _next(self) -> Running | None:
        if self.abandoned:
            return None
        running = self._pop()
        if running is not None:
            self._claim_ahead()
            return running
        self._take_turn()
        try:
            while not self.abandoned:
                running = self._pop()  # claimed by another thread meanwhile
                if running is not None or not self._claim():
                    return running
            return None
        finally:
            self._turn.release()

    def _pop(self) -> Running | None:
        try:
            return self._ready.popleft()
        except IndexError:
            return None

    def finish(self, running: Running, settle: Settle) -> None:
        """Take note of how a job ended; it is settled with the next claim."""
        running.settle = settle
        self._prefetch.ended(time.monotonic() - running.started)
        self._unfinished.discard(running.job.receipt)
        self._finished.append((running, settle))
        self._nudge.set()
        if not self._unfinished:
            self.idle_since = time.monotonic()
        if self._burst is not None:
            self._burst.finished()

    def _take_turn(self) -> None:
        # The thread that waits for work in the store must come back to settle what
        # this one has finished. An interrupt that arrives before it waits is lost,
        # so it is repeated until somebody has taken the settle.
        while self._waiting and self._finished:
            self.store.interrupt()
            if self._turn.acquire(timeout=0.01):
                return
        self._turn.acquire()

    # ---- for the supervising thread

    def running(self) -> int:
        """Return how many claimed jobs have not ended."""
        return len(self._unfinished)

    def stop(self) -> None:
        """Claim no more; to be repeated until the threads have ended."""
        self.stopping.set()
        self._nudge.set()
        if self._waiting:
            self.store.interrupt()

    def be_quiet(self, quiet: bool) -> None:
        """Claim no more for now, or go on."""
        if quiet:
            self.quiet.set()
        else:
            self.quiet.clear()
        self._nudge.set()
        if self._waiting:
            self.store.interrupt()

    def give_back_stuck(self) -> None:
        """Give back what was claimed beyond the threads, if none of them gets to it."""
        if not self._ready or time.monotonic() - self._begun_at < STUCK:
            return
        self._prefetch.got_stuck()
        stuck = []
        with contextlib.suppress(IndexError):
            while True:
                stuck.append(self._ready.pop())
        if not stuck:
            return
        settles = [Settle(running.job, "release") for running in stuck]
        try:
            results = self.store.exchange(settles, 0).results
        except LocalQueueError:
            self._ready.extend(reversed(stuck))  # their lease is renewed, so nothing is lost
            return
        self._budget.give_back(len(stuck))
        for running, lost in zip(stuck, results, strict=True):
            self._unfinished.discard(running.job.receipt)
            if self.live.pop(running.job.receipt, None) is not None and lost is None:
                running.log(logging.DEBUG, "goes back: every thread is busy.")
            if self._burst is not None:
                self._burst.finished()

    def abandon(self) -> int:
        """Settle what is finished and give back what still runs; return how many that were.

        The threads go on with their jobs, and what comes of them is ignored.
        """
        self.abandoned = True
        self.stop()
        left = list(self.live.values())
        settles = [running.settle or Settle(running.job, "release") for running in left]
        try:
            results = self.store.exchange(settles, 0).results if settles else []
        except LocalQueueError as error:
            for running in left:
                running.log(logging.ERROR, "runs again when its lease ends: %s", error)
            return len(left)
        for running, settle, lost in zip(left, settles, results, strict=True):
            if settle.verb == "release" and lost is None:
                running.log(logging.WARNING, "was given back: the worker stops before it is done.")
            self._settled(running, settle, lost)
        return sum(settle.verb == "release" for settle in settles)

    # ---- in turn

    def _claim_ahead(self) -> None:
        """Claim before the last job that was claimed is taken, so that no thread waits."""
        if len(self._ready) > self._prefetch.jobs() // 2 or self.stopping.is_set():
            return
        if not self._turn.acquire(blocking=False):
            return
        try:
            if self._ready and not self.abandoned and not self.quiet.is_set():
                self._claim()
        finally:
            self._turn.release()

    def _claim(self) -> bool:
        """Settle and claim; return whether the thread shall look again."""
        if not self._finished:
            if self.stopping.is_set():
                return False
            if self._budget.is_used_up:
                self._on_used_up()
                return False
            if self.quiet.is_set():
                self._nudge.wait(QUIET_POLL)
                self._nudge.clear()
                return True
        jobs = self._exchange()
        self._prefetch.claimed(jobs)
        self._ready.extend([self._take(job) for job in jobs])
        return True

    def _exchange(self) -> list[Job]:
        """Settle and claim once. Where the last claim found nothing, wait for work."""
        look = None if self._burst is None else self._burst.look()
        seen = look is None or look == self._empty_look
        calm = not (self.stopping.is_set() or self.quiet.is_set())
        block = self._idle and (self._burst is None or seen) and calm and not self._ready
        self._waiting = block  # before the drain: see _take_turn
        done = self._drain()
        want = self._budget.take(self._wanted()) if calm else 0
        jobs: list[Job] = []
        try:
            exchange = self._call([settle for _, settle in done], want, block and want > 0)
            jobs = exchange.jobs
        except InvalidInput as error:
            self._settle_one_by_one(done, error)
            return []
        except Exception as error:
            # A settle may be sent twice; so also where it was stored and not synced.
            self._finished.extendleft(reversed(done))
            self._wait_out(error)
            return []
        finally:
            self._waiting = False
            self._budget.claimed(len(jobs), want)
        if self._pause > FIRST_PAUSE:
            self._recovered()
        for (running, settle), lost in zip(done, exchange.results, strict=True):
            self._settled(running, settle, lost)
        self._idle = not exchange.jobs
        if self._burst is not None:
            if exchange.jobs:
                self._burst.claimed(len(exchange.jobs))
            else:
                self._empty_look = look
                if self._burst.found_empty(id(self), look):
                    self._on_burst_over()
        return exchange.jobs

    def _wanted(self) -> int:
        return max(0, self._threads + self._prefetch.jobs() - len(self._unfinished))

    def _call(self, settles: list[Settle], want: int, block: bool) -> Exchange:
        return self.store.exchange(
            settles,
            want,
            sources=self.queues,
            round_robin=self._round_robin,
            block=block,
            timeout=IDLE_WAIT if self._burst is None else BURST_WAIT,
            lease_seconds=self._lease_seconds,
            worker=self._worker,
        )

    def _drain(self) -> list[tuple[Running, Settle]]:
        done = []
        while self._finished:
            done.append(self._finished.popleft())
        return done

    def _take(self, job: Job) -> Running:
        lease = job.queue.lease_seconds if self._lease_seconds is None else self._lease_seconds
        running = Running(job, self._worker, lease, min(self._heartbeat_interval, lease / 3))
        self.idle_since = None
        self._unfinished.add(job.receipt)
        self.live[job.receipt] = running
        return running

    def _settled(self, running: Running, settle: Settle, lost: LocalQueueError | None) -> None:
        if self.live.pop(running.job.receipt, None) is None:
            return  # abandoning settled it at the same time
        self.counts.add(running, settle, lost)
        if lost is not None:
            running.log(
                logging.WARNING,
                "ended with %s, which did not count, for its lease was lost (%s): %s",
                settle.verb,
                lost.reason if isinstance(lost, LeaseExpired) else "refused",
                lost,
            )

    # ---- trouble

    def _settle_one_by_one(self, done: list[tuple[Running, Settle]], error: InvalidInput) -> None:
        """Find the settle that the queue refuses, and fail its job instead."""
        if not done:
            self._wait_out(error)
        for running, settle in done:
            try:
                lost = self.store.exchange((settle,), 0).results[0]
            except InvalidInput as refused:
                running.log(logging.ERROR, "fails: how it ended can't be stored: %s", refused)
                settle = Settle(running.job, "fail", error=ErrorRecord.of(refused))
                running.settle = settle
                self._finished.append((running, settle))
            except Exception as failure:
                self._finished.append((running, settle))
                self._wait_out(failure)
            else:
                self._settled(running, settle, lost)

    def _wait_out(self, error: Exception) -> None:
        """Wait before the next try, longer each time; an error that stays ends the worker."""
        if isinstance(error, FATAL):
            if self.error is None:
                logger.critical("The worker stops: %s", error)
            self.error = error
            self.stopping.set()
            self._give_up(self._drain())
            return
        if self._trouble():
            known = isinstance(error, LocalQueueError)
            logger.error(
                "The store %s can't be used; trying again until it can (%d results kept): %s",
                self.store.store_key,
                len(self._finished),
                error,
                exc_info=None if known else error,
            )
        if self.stopping.is_set():
            now = self.store.now()
            kept = self._drain()
            self._give_up([item for item in kept if item[0].job.lease_expires_at <= now])
            self._finished.extend(item for item in kept if item[0].job.lease_expires_at > now)
            time.sleep(FIRST_PAUSE)
        else:
            self.stopping.wait(self._pause * random.uniform(0.5, 1))
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def _give_up(self, kept: list[tuple[Running, Settle]]) -> None:
        for running, settle in kept:
            self.live.pop(running.job.receipt, None)
            self.counts.lost += 1
            running.log(
                logging.ERROR, "ended with %s, which can't be stored: it runs again.", settle.verb
            )

    def _recovered(self) -> None:
        self._pause = FIRST_PAUSE
        logger.info(
            "The store %s can be used again (%d more errors since the last one told).",
            self.store.store_key,
            self._trouble.held_back(),
        )
