"""What operators and the console need of every queue: looking, repairing, pausing."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from django_localqueue.backends.arguments import Act, microseconds, seconds, text, whole
from django_localqueue.exceptions import InvalidInput
from django_localqueue.types import (
    MICROSECONDS,
    STATES,
    Action,
    Activity,
    Applied,
    FailureGroup,
    JobFilter,
    JobRecord,
    Page,
    State,
    Stats,
)

MAX_TIME = 2**62
MAX_STEPS = 5_000
#: The states of the jobs that each action takes.
SUITS: Mapping[str, tuple[State, ...]] = {
    "retry": ("failed",),
    "run_now": ("delayed",),
    "delay": ("ready", "delayed"),
    "move": ("ready", "delayed", "blocked", "failed"),
    "cancel": ("ready", "delayed", "blocked", "processing"),
    "discard": ("ready", "delayed", "blocked", "failed"),
    "purge": ("acked", "failed"),
}


class InspectableQueue(ABC):
    """The part of the contract that no worker needs; ``BaseQueue`` is the whole."""

    name: str
    retention_seconds: float | None

    # ---- looking

    @abstractmethod
    def stats(self) -> Stats:
        """Return the counts of this queue, one consistent snapshot across processes."""

    @abstractmethod
    def check(self) -> list[str]:
        """Look for damage in the whole store; return what is wrong, in words, or nothing.

        SQLite's own integrity check, and what must hold among the jobs. It reads everything, as of
        one moment, while others go on.
        """

    @abstractmethod
    def lookup(self, id: str) -> JobRecord | None:
        """Return the job with this public id, its history filled in, or None."""

    def list(
        self,
        filter: JobFilter | None = None,
        *,
        limit: int = 100,
        after: tuple[int, int] | None = None,
    ) -> Page:
        """Return jobs of one state, newest first (waiting and running ones: next first).

        Args:
            filter: which; default the dead letters.
            limit: records a page, 1 to 1,000.
            after: ``cursor`` of the record, or ``next`` of the page, to go on behind.
        """
        whole(limit, "limit", 1, 1_000)
        return self._list(self._filter(filter), limit, after)

    def count(self, filter: JobFilter | None = None, *, cap: int = 10_000) -> int:
        """Return how many jobs match, counting no further than ``cap``."""
        whole(cap, "cap", 1, 10_000_000)
        return self._count(self._filter(filter), cap)

    def failures(
        self, limit: int = 100, after: tuple[int, int] | None = None
    ) -> list_[FailureGroup]:
        """Return the dead letters grouped by what went wrong, the group seen last first.

        Cancelled and discarded jobs are in no group. Costs the same however many there are.

        Args:
            limit: groups, 1 to 1,000.
            after: ``cursor`` of the group to go on behind.
        """
        whole(limit, "limit", 1, 1_000)
        return self._failures(limit, after)

    def activity(self, since: int, until: int, step: int = 60) -> list_[Activity]:
        """Return how many jobs were done and how many failed, in steps of ``step`` seconds.

        Kept for five weeks. Jobs that were acked are counted up to the last closed minute by
        the first call after it, in short transactions; what was acked since is added.

        Args:
            since: microseconds since the epoch; the first step begins at the multiple of
                ``step`` before it.
            until: microseconds since the epoch; the last step ends at or after it.
            step: seconds, whole minutes.

        Raises ``InvalidInput`` for more than 5,000 steps.
        """
        whole(step, "step", 60, 35 * 86_400)
        if step % 60:
            raise InvalidInput(f"step must be whole minutes in seconds, and it is {step}.")
        micros = step * MICROSECONDS
        first = whole(since, "since", 0, MAX_TIME) // micros * micros
        end = -(-whole(until, "until", 0, MAX_TIME) // micros) * micros
        if (end - first) // micros > MAX_STEPS:
            raise InvalidInput(
                f"From since to until are {(end - first) // micros} steps, and at most"
                f" {MAX_STEPS} are counted; take a longer step."
            )
        return self._activity(first, end, micros)

    def list_failed(self, limit: int = 100, offset: int = 0) -> list_[JobRecord]:
        """Return dead letters, newest first.

        ``offset`` costs time in proportion; to read all of them page by key with ``list``.
        """
        whole(limit, "limit", 1, 100_000)
        whole(offset, "offset", 0, 100_000_000)
        return self._list_failed(limit, offset)

    # ---- repairing

    def retry_failed(self, message_id: str) -> bool:
        """Move a dead letter back to ready, its attempts at 0 and its history kept.

        Returns False where the job isn't failed (any more); then nothing changed.
        Raises ``JobNotFound`` where there is no such job.
        """
        return self._retry_failed(text(str(message_id), "message_id"))

    def apply(
        self,
        action: Action,
        filter: JobFilter,
        *,
        as_of: int | None = None,
        limit: int = 100_000,
        delay: float | None = None,
        target: str | None = None,
    ) -> Applied:
        """Do one thing to every job that matches.

        Args:
            action: ``"retry"`` (failed to ready, discarded ones too), ``"run_now"``
                (delayed to ready), ``"delay"`` (ready or delayed to delayed), ``"move"``
                (waiting or failed: to another queue of this store, in the state it has),
                ``"cancel"`` (waiting to failed, reason ``cancelled``; a running one is
                asked to stop), ``"discard"`` (waiting or failed to failed, reason
                ``discarded``, which ``prune`` removes after the retention) or
                ``"purge"`` (acked or failed: remove).
            filter: which jobs; its ``state`` must suit the action.
            as_of: microseconds since the epoch; jobs that came into their state
                later are left alone. Default: now.
            limit: how many jobs at most.
            delay: for ``"delay"``: seconds from now.
            target: for ``"move"``: the name of the other queue in the store. A job whose
                ``job_id`` that queue has stays, and so does one whose ``unique_key`` is held
                there; they are counted as changed.

        Runs in many short transactions, each complete in itself.
        """
        if action not in SUITS:
            raise InvalidInput(f"There is no action {action!r}; use one of {', '.join(SUITS)}.")
        checked = self._filter(filter)
        if checked.state not in SUITS[action]:
            raise InvalidInput(
                f"{action!r} takes jobs that are {' or '.join(SUITS[action])},"
                f" and the filter asks for {checked.state!r} ones."
            )
        whole(limit, "limit", 1, 100_000_000)
        act = Act(action, *self._act_arguments(action, delay, target))
        return self._apply(act, checked, self.now() if as_of is None else as_of, limit)

    def _act_arguments(
        self, action: Action, delay: float | None, target: str | None
    ) -> tuple[int, str]:
        for name, value, wanted in (("delay", delay, "delay"), ("target", target, "move")):
            if (value is None) == (action == wanted):
                needs = "needs" if value is None else "takes no"
                raise InvalidInput(f"The action {action!r} {needs} {name}.")
        if target is not None and text(target, "target") == self.name:
            raise InvalidInput(f"target is {target!r}, where the jobs are; name another queue.")
        micros = 0 if delay is None else microseconds(delay, "delay", positive=True)
        return micros, target or ""

    def cancel(self, id: str) -> bool:
        """Make a waiting job a dead letter (``cancelled``), or ask a running one to stop.

        Returns True where the job was or will be cancelled, False where it had
        already finished. A running job hears of it when its lease is next extended.
        Raises ``JobNotFound``.
        """
        return self._cancel(text(str(id), "id"))

    def edit(self, id: str, data: Any) -> bool:
        """Give a job that waits or failed another payload; its first one is kept beside it.

        Returns:
            False where the job is running or acked: nothing was changed.

        Raises:
            JobNotFound: there is no such job.
            InvalidInput: the payload was refused.
        """
        return self._edit(text(str(id), "id"), self._payload(data))

    def purge(self, older_than: float, include_failed: bool = False) -> int:
        """Remove jobs that finished more than ``older_than`` seconds ago; return how many.

        Acked jobs, and failed ones only if asked; nothing that is waiting or running.
        """
        seconds(older_than, "older_than")
        return self._purge(older_than, include_failed)

    def prune(self, limit: int = 1_000) -> int:
        """Remove up to ``limit`` acked or discarded jobs past their retention; return how many.

        An acked job's own retention goes before the queue's, be it shorter or longer.
        """
        whole(limit, "limit", 1, 1_000_000)
        return self._prune(limit)

    def has_leftovers(self) -> bool:
        """Tell whether ``prune`` or ``reclaim_expired_leases`` may find a job; writes nothing."""
        return True

    @abstractmethod
    def reclaim_expired_leases(self) -> int:
        """Give back every job whose lease has run out; return how many.

        Claims do this by themselves, some at a time.
        """

    @abstractmethod
    def pause(self) -> None:
        """Deliver nothing until ``resume``, in every process; ``put`` goes on."""

    @abstractmethod
    def resume(self) -> None:
        """Deliver again."""

    @abstractmethod
    def vacuum(self) -> None:
        """Give unused space back to the disk. Locks the whole store while it runs."""

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the whole store, every queue in it, to the new file ``path``.

        The copy is of one moment and made while others go on; it is on the disk when this
        returns. Raises ``InvalidInput`` where something is at ``path``, ``StoreFull`` or
        ``StoreUnavailable`` where it can't be written; then nothing is left there.
        """
        target = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
        if not isinstance(target, str) or not target or "\x00" in target:
            raise InvalidInput(
                "path must be the path of a new file, as text or a pathlib.Path, and it is"
                f" {path!r}."
            )
        target = os.path.abspath(target)
        if os.path.lexists(target):
            raise InvalidInput(
                f"{target} is there already, and a backup overwrites nothing; choose another name"
                " or remove it."
            )
        self._backup(target)

    def now(self) -> int:
        """The store's wall time, microseconds since the epoch."""
        return time.time_ns() // 1_000

    # ---- what a backend does

    @abstractmethod
    def _backup(self, target: str) -> None: ...

    @abstractmethod
    def _list(self, filter: JobFilter, limit: int, after: tuple[int, int] | None) -> Page: ...

    @abstractmethod
    def _count(self, filter: JobFilter, cap: int) -> int: ...

    @abstractmethod
    def _failures(self, limit: int, after: tuple[int, int] | None) -> list_[FailureGroup]: ...

    @abstractmethod
    def _activity(self, since: int, until: int, step: int) -> list_[Activity]: ...

    @abstractmethod
    def _list_failed(self, limit: int, offset: int) -> list_[JobRecord]: ...

    @abstractmethod
    def _retry_failed(self, id: str) -> bool: ...

    @abstractmethod
    def _apply(self, act: Act, filter: JobFilter, as_of: int, limit: int) -> Applied: ...

    @abstractmethod
    def _cancel(self, id: str) -> bool: ...

    @abstractmethod
    def _edit(self, id: str, payload: bytes) -> bool: ...

    @abstractmethod
    def _payload(self, data: Any) -> bytes: ...

    @abstractmethod
    def _purge(self, older_than: float, include_failed: bool) -> int: ...

    @abstractmethod
    def _prune(self, limit: int) -> int: ...

    def _filter(self, filter: JobFilter | None) -> JobFilter:
        filter = JobFilter() if filter is None else filter
        if filter.state not in STATES:
            raise InvalidInput(
                f"There is no state {filter.state!r}; use one of {', '.join(STATES)}."
            )
        if filter.min_attempts is not None:
            whole(filter.min_attempts, "min_attempts", 0, 1_000_000_000)
        return filter


list_ = list  # the method named list hides the type below it in the class body
