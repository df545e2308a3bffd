"""What operators and the console need of every queue: looking, repairing, pausing."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

from django_localqueue.backends.arguments import seconds, text, whole
from django_localqueue.exceptions import InvalidInput
from django_localqueue.types import STATES, Action, Applied, JobFilter, JobRecord, Page, Stats


class InspectableQueue(ABC):
    """The part of the contract that no worker needs; ``BaseQueue`` is the whole."""

    name: str
    retention_seconds: float | None

    # ---- looking

    @abstractmethod
    def stats(self) -> Stats:
        """Return the counts of this queue, one consistent snapshot across processes."""

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
    ) -> Applied:
        """Do one thing to every job that matches.

        Args:
            action: ``"retry"`` (failed to ready), ``"discard"`` (waiting to failed,
                reason ``discarded``) or ``"purge"`` (acked or failed: remove).
            filter: which jobs; its ``state`` must suit the action.
            as_of: microseconds since the epoch; jobs that came into their state
                later are left alone. Default: now.
            limit: how many jobs at most.

        Runs in many short transactions, each complete in itself.
        """
        suits = {
            "retry": ("failed",),
            "purge": ("acked", "failed"),
            "discard": ("ready", "delayed", "blocked"),
        }
        if action not in suits:
            raise InvalidInput(f"There is no action {action!r}; use one of {', '.join(suits)}.")
        checked = self._filter(filter)
        if checked.state not in suits[action]:
            raise InvalidInput(
                f"{action!r} takes jobs that are {' or '.join(suits[action])},"
                f" and the filter asks for {checked.state!r} ones."
            )
        whole(limit, "limit", 1, 100_000_000)
        return self._apply(action, checked, self.now() if as_of is None else as_of, limit)

    def cancel(self, id: str) -> bool:
        """Make a waiting job a dead letter (``cancelled``), or ask a running one to stop.

        Returns True where the job was or will be cancelled, False where it had
        already finished. A running job hears of it when its lease is next extended.
        Raises ``JobNotFound``.
        """
        return self._cancel(text(str(id), "id"))

    def purge(self, older_than: float, include_failed: bool = False) -> int:
        """Remove jobs that finished more than ``older_than`` seconds ago; return how many.

        Acked jobs, and failed ones only if asked; nothing that is waiting or running.
        """
        seconds(older_than, "older_than")
        return self._purge(older_than, include_failed)

    def prune(self, limit: int = 1_000) -> int:
        """Remove up to ``limit`` acked jobs past the queue's retention; return how many."""
        whole(limit, "limit", 1, 1_000_000)
        return 0 if self.retention_seconds is None else self._prune(limit)

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

    def now(self) -> int:
        """The store's wall time, microseconds since the epoch."""
        return time.time_ns() // 1_000

    # ---- what a backend does

    @abstractmethod
    def _list(self, filter: JobFilter, limit: int, after: tuple[int, int] | None) -> Page: ...

    @abstractmethod
    def _count(self, filter: JobFilter, cap: int) -> int: ...

    @abstractmethod
    def _list_failed(self, limit: int, offset: int) -> list_[JobRecord]: ...

    @abstractmethod
    def _retry_failed(self, id: str) -> bool: ...

    @abstractmethod
    def _apply(self, action: Action, filter: JobFilter, as_of: int, limit: int) -> Applied: ...

    @abstractmethod
    def _cancel(self, id: str) -> bool: ...

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
        return filter


list_ = list  # the method named list hides the type below it in the class body
