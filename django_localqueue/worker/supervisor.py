"""Worker processes, and the one that starts them, ends them and takes their place by new ones."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import JobTimeout, LocalQueueError
from django_localqueue.types import Job, Settle
from django_localqueue.worker import signals
from django_localqueue.worker.board import Board, Shown
from django_localqueue.worker.counts import Counts
from django_localqueue.worker.executor import Executor
from django_localqueue.worker.health import HealthServer
from django_localqueue.worker.summary import Summary
from django_localqueue.worker.worker import SECOND_SIGNAL_AFTER, Worker

logger = logging.getLogger("django_localqueue.worker")

TICK = 0.5
FIRST_BACKOFF, LONGEST_BACKOFF = 0.5, 30.0
#: Seconds after which a process that crashes counts as one that had begun well.
STEADY = 60.0
#: Seconds after a forced stop in which processes give their jobs back, before they are killed.
LAST_WAIT = 5.0
#: Seconds between the processes that show their stacks: they write in pieces to one stderr.
STACKS_APART = 0.1
STORE_UNUSABLE = 3


@dataclass
class Child:
    """A worker process and its successors."""

    number: int
    board: Board
    pid: int | None = None
    started: float = 0.0
    start_at: float | None = 0.0
    backoff: float = FIRST_BACKOFF
    ended_well: bool = False
    timed_out: list[Shown] = field(default_factory=list)


class Supervisor:
    """Runs workers in processes of their own.

    Args:
        make_worker: called in each new process with the worker's name and its board.
        processes: how many.
        name: of the supervisor; the processes are it with ``/1``, ``/2`` and so on.
        queues: those that are served, in the order of the workers.
        executor: says what becomes of a job whose process was ended for it.
        slots: how many jobs one process runs at a time.
        shutdown_timeout: what the workers were given; None: for ever.
        before_fork: called in this process before each fork.
        health: answered by this process.
        on_tick: called about twice a second.
    """

    def __init__(
        self,
        make_worker: Callable[[str, Board], Worker],
        *,
        processes: int,
        name: str,
        queues: Sequence[BaseQueue],
        executor: Executor,
        slots: int,
        shutdown_timeout: float | None,
        before_fork: Callable[[], None] = lambda: None,
        health: HealthServer | None = None,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._make_worker = make_worker
        self._name = name
        self._queues = tuple(queues)
        self._executor = executor
        self._shutdown_timeout = shutdown_timeout
        self._before_fork = before_fork
        self._health = health
        self._on_tick = on_tick
        self._children = [Child(number, Board(slots)) for number in range(1, processes + 1)]
        self._signals: deque[int] = deque()
        self._past = Counts()
        self._stop_began: float | None = None
        self._told_at: float | None = None
        self._stop = threading.Event()
        self._forced = False
        self._killed_at: float | None = None
        self._exit_codes: set[int] = set()

    # ---- what others look at

    def alive_at(self) -> float:
        """Return when the process that was silent longest was last seen to live, monotonic."""
        return min((child.board.alive_at() for child in self._live()), default=time.monotonic())

    def answered_at(self) -> float:
        """Return when the stores last answered each process."""
        return min((child.board.answered_at() for child in self._live()), default=time.monotonic())

    @property
    def stopping(self) -> bool:
        """Whether it stops."""
        return self._stop_began is not None

    @property
    def was_told(self) -> bool:
        """Whether a signal asked it to stop."""
        return self._told_at is not None

    def pids(self) -> list[int]:
        """Return the ids of the processes that run."""
        return [child.pid for child in self._live() if child.pid is not None]

    def stop(self) -> None:
        """End as at a TERM. May be called from any thread."""
        self._stop.set()

    # ---- running

    def run(self) -> Summary:
        """Run until stopped, or until every process has ended well; return what was done."""
        began = time.monotonic()
        read, write = os.pipe()  # its end tells the processes that this one is gone
        with self._waking() as wake, signals.taken(self._signals.append, also_stacks=True):
            try:
                while self._is_needed():
                    for child in self._children:
                        if child.pid is None and child.start_at is not None:
                            self._start_if_due(child, read, write)
                    self._wait(wake)
                    while self._signals:
                        self._on_signal(self._signals.popleft())
                    if self._stop.is_set():
                        self._begin_stop("asked to", signal.SIGTERM)
                    self._end_overdue()
                    self._reap()
                    self._press()
                    self._on_tick()
            finally:
                for pid in self.pids():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                self._reap(block=True)
                os.close(read)
                os.close(write)
        return self._summary(time.monotonic() - began)

    def _is_needed(self) -> bool:
        if self._live():
            return True
        return self._stop_began is None and any(
            child.start_at is not None for child in self._children
        )

    def _live(self) -> list[Child]:
        return [child for child in self._children if child.pid is not None]

    @contextlib.contextmanager
    def _waking(self) -> Iterator[socket.socket]:
        """A socket that becomes readable with a signal."""
        wake, waker = socket.socketpair()
        with wake, waker:
            wake.setblocking(False)
            waker.setblocking(False)
            if threading.current_thread() is not threading.main_thread():
                yield wake
                return
            before = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
            child = signal.signal(signal.SIGCHLD, lambda *_: None)
            try:
                yield wake
            finally:
                signal.signal(signal.SIGCHLD, child)
                signal.set_wakeup_fd(before)

    def _wait(self, wake: socket.socket) -> None:
        now = time.monotonic()
        until = [now + TICK]
        until += [c.start_at for c in self._children if c.pid is None and c.start_at is not None]
        until += [s.deadline for c in self._live() for s in c.board.running()]
        watched: list[socket.socket | HealthServer] = [wake]
        if self._health is not None:
            watched.append(self._health)
        ready, _, _ = select.select(watched, [], [], max(0.0, min(until) - now))
        for one in ready:
            if isinstance(one, HealthServer):
                one.answer()
            else:
                with contextlib.suppress(BlockingIOError):
                    while one.recv(4_096):
                        pass

    # ---- processes

    def _start_if_due(self, child: Child, read: int, write: int) -> None:
        if self._stop_began is not None:
            child.start_at = None
            return
        if child.start_at is None or time.monotonic() < child.start_at:
            return
        child.board.clear()
        child.timed_out = []
        self._before_fork()
        with signals.held():
            pid = os.fork()
            if pid == 0:
                os.close(write)
                self._be_child(child, read)
        child.pid, child.started, child.start_at = pid, time.monotonic(), None
        logger.info("Worker process %d is %d.", child.number, pid)

    def _be_child(self, child: Child, parent_lives: int) -> None:
        """Be the worker; never returns."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if self._health is not None:
                self._health.close()
            worker = self._make_worker(self._worker_name(child), child.board)
            threading.Thread(
                target=_stop_with_parent,
                args=(parent_lives, worker),
                name="localqueue-parent",
                daemon=True,
            ).start()
            code = worker.run().exit_code
        except BaseException:
            logger.critical("Worker process %d broke down.", child.number, exc_info=True)
        finally:
            logging.shutdown()
            os._exit(code)

    def _worker_name(self, child: Child) -> str:
        return f"{self._name[:240]}/{child.number}"

    def _reap(self, block: bool = False) -> None:
        for child in self._live():
            assert child.pid is not None
            pid, status = os.waitpid(child.pid, 0 if block else os.WNOHANG)
            if pid:
                self._ended(child, os.waitstatus_to_exitcode(status))

    def _ended(self, child: Child, code: int) -> None:
        pid, child.pid = child.pid, None
        left = child.board.running()
        self._past.include(child.board.counts())
        if code < 0 or code not in (0, 1, STORE_UNUSABLE):
            self._after_crash(child, left)
        if self._stop_began is not None:
            self._exit_codes.add(code)
        elif code == 0 and child.board.ended() != "recycled":
            logger.info("Worker process %d (%s) has ended.", child.number, pid)
        elif code == STORE_UNUSABLE:
            self._exit_codes.add(code)
            self._begin_stop("a store can't be used", signal.SIGTERM)
        elif code == 0 or child.timed_out:
            child.start_at = time.monotonic()
            child.backoff = FIRST_BACKOFF
        else:
            if time.monotonic() - child.started > STEADY:
                child.backoff = FIRST_BACKOFF
            logger.error(
                "Worker process %d (%s) ended with %s; the next one starts in %.1f s.",
                *(child.number, pid, _named(code), child.backoff),
            )
            child.start_at = time.monotonic() + child.backoff
            child.backoff = min(LONGEST_BACKOFF, 2 * child.backoff)
        child.timed_out = []

    def _after_crash(self, child: Child, left: Sequence[Shown]) -> None:
        """Settle what is known of the jobs of a process that can't do it any more."""
        guilty = {shown.receipt for shown in child.timed_out}
        name = self._worker_name(child)
        try:
            for shown in left:
                if shown.receipt in guilty:
                    self._settle_overdue(shown)
                elif guilty:
                    # Its process was ended for another's sake.
                    self._release(self._queues[shown.queue], shown)
            for queue in self._queues:
                queue.take_back(name)
            for queue in {queue.store_key: queue for queue in self._queues}.values():
                queue.forget_worker(name)
        except LocalQueueError as error:
            logger.error("Jobs of %s run again when their leases end: %s", name, error)

    def _settle_overdue(self, shown: Shown) -> None:
        queue = self._queues[shown.queue]
        record = queue.lookup(shown.id)
        if record is None:
            return
        ran = shown.deadline - shown.began
        error = JobTimeout(
            f"The job ran longer than its timeout of {ran:g} seconds, so its process was ended."
        )
        job = _job(queue, shown)
        job.task, job.headers, job.max_retries = record.task, record.headers, record.max_retries
        settle = self._executor.timed_out(job, error)
        lost = queue.exchange((settle,), 0).results[0]
        if lost is None:
            self._past.failed += settle.verb == "fail"
            self._past.retried += settle.verb != "fail"
            logger.error("Job %s of %s: %s", shown.id, queue.name, error)

    def _release(self, queue: BaseQueue, shown: Shown) -> None:
        settle = Settle(_job(queue, shown), "release")
        if queue.exchange((settle,), 0).results[0] is None:
            self._past.released += 1
            logger.warning(
                "Job %s of %s goes back: its process was ended for another job.",
                *(shown.id, queue.name),
            )

    # ---- ending

    def _end_overdue(self) -> None:
        now = time.monotonic()
        for child in self._live():
            overdue = [shown for shown in child.board.running() if shown.deadline < now]
            if not overdue or child.timed_out or child.pid is None:
                continue
            # What is written while it is read may look like anything: so look again.
            child.timed_out = [shown for shown in child.board.running() if shown in overdue]
            if child.timed_out:
                os.kill(child.pid, signal.SIGKILL)

    def _on_signal(self, number: int) -> None:
        name = signal.Signals(number).name
        if number in signals.IGNORED:
            logger.warning("Received %s, which is ignored; restart the worker to reload it.", name)
        elif number in signals.STOP | signals.STOP_NOW:
            now = time.monotonic()
            if self._told_at is None:  # it may be stopping for another reason already
                self._told_at = now
                if self._stop_began is not None:
                    logger.info("Received %s while stopping already.", name)
                self._begin_stop(f"received {name}", number)
            elif now - self._told_at >= SECOND_SIGNAL_AFTER:
                self._force(name)
            if number in signals.STOP_NOW:
                self._force(name)
        else:
            self._send(number, apart=STACKS_APART if number in signals.STACKS else 0)

    def _begin_stop(self, why: str, number: int) -> None:
        if self._stop_began is None:
            self._stop_began = time.monotonic()
            logger.info("The worker stops (%s): %d processes end.", why, len(self._live()))
            self._send(number)

    def _force(self, why: str) -> None:
        if not self._forced:
            logger.warning("Received %s: running jobs are given back.", why)
            self._forced = True
            self._killed_at = time.monotonic() + LAST_WAIT
            self._send(signal.SIGQUIT)

    def _press(self) -> None:
        """Kill what doesn't end though it was told to."""
        if self._stop_began is None:
            return
        kill_at = self._killed_at
        if kill_at is None and self._shutdown_timeout is not None:
            kill_at = self._stop_began + self._shutdown_timeout + LAST_WAIT
        if kill_at is not None and time.monotonic() > kill_at and self._live():
            logger.error("%d worker processes hang and are killed.", len(self._live()))
            self._forced = True
            self._send(signal.SIGKILL)

    def _send(self, number: int, apart: float = 0) -> None:
        for pid in self.pids():
            time.sleep(apart)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _summary(self, took: float) -> Summary:
        error = (
            LocalQueueError("A store can't be used.")
            if STORE_UNUSABLE in self._exit_codes
            else None
        )
        forced = self._forced or bool(self._exit_codes - {0, STORE_UNUSABLE})
        return Summary(**asdict(self._past), seconds=took, forced=forced, error=error)


def _stop_with_parent(lives: int, worker: Worker) -> None:
    os.read(lives, 1)  # returns when nobody is left who could write
    logger.warning("The supervisor is gone; the worker stops.")
    worker.stop()


def _job(queue: BaseQueue, shown: Shown) -> Job:
    return Job(
        queue,
        id=shown.id,
        key=shown.key,
        data=None,
        attempts=shown.attempts,
        receipt=shown.receipt,
        lease_expires_at=0,
        created_at=0,
    )


def _named(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
