"""What worker processes show their supervisor: a page of memory that they share.

A process that hangs can tell nothing; what it wrote before can be read.
"""

from __future__ import annotations

import mmap
import struct
import time
from dataclasses import dataclass
from typing import Literal, get_args

from django_localqueue.worker.counts import Counts
from django_localqueue.worker.executor import Running

_HEAD = struct.Struct("=dd5qi")  # alive at, store answered at, counts, why it ended
_SLOT = struct.Struct("=ddqqHHH")  # deadline, began, key, attempts, queue, length of receipt, of id
_ROOM = 512  # bytes for the receipt and the id
SLOT = _SLOT.size + _ROOM
_FOREVER = float("inf")

#: How a process ended, for its supervisor.
End = Literal["unknown", "ended", "recycled"]
_ENDS: tuple[End, ...] = get_args(End)


@dataclass(frozen=True, slots=True)
class Shown:
    """A job that a process runs; times are monotonic."""

    queue: int
    key: int
    id: str
    receipt: str
    attempts: int
    began: float
    deadline: float


class Board:
    """The part of one process.

    Args:
        slots: how many jobs it runs at a time.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._memory = mmap.mmap(-1, _HEAD.size + slots * SLOT)
        self.clear()

    def clear(self) -> None:
        """Forget what the process before showed."""
        self._memory[:] = bytes(len(self._memory))
        now = time.monotonic()
        _HEAD.pack_into(self._memory, 0, now, now, 0, 0, 0, 0, 0, 0)

    # ---- for the process

    def pulse(
        self, alive_at: float, answered_at: float, counts: Counts, end: End = "unknown"
    ) -> None:
        """Show that it lives, that its stores answered, what it has done, and how it ended."""
        _HEAD.pack_into(
            self._memory,
            0,
            alive_at,
            answered_at,
            counts.done,
            counts.failed,
            counts.retried,
            counts.released,
            counts.lost,
            _ENDS.index(end),
        )

    def begin(self, slot: int, running: Running, queue: int, timeout: float | None) -> None:
        """A thread begins a job of the worker's queue with this index."""
        job = running.job
        receipt, id = job.receipt.encode(), job.id.encode()
        if len(receipt) + len(id) > _ROOM:
            id = b""
        start = _HEAD.size + slot * SLOT
        text = start + _SLOT.size
        self._memory[text : text + len(receipt) + len(id)] = receipt + id
        deadline = _FOREVER if timeout is None else running.started + timeout
        _SLOT.pack_into(
            self._memory,
            start,
            deadline,
            running.started,
            job.key,
            job.attempts,
            queue,
            len(receipt),
            len(id),
        )

    def end(self, slot: int) -> None:
        """The thread's job has ended."""
        _SLOT.pack_into(self._memory, _HEAD.size + slot * SLOT, 0.0, 0.0, 0, 0, 0, 0, 0)

    # ---- for the supervisor

    def alive_at(self) -> float:
        """Return when the process last showed that it lives."""
        return float(_HEAD.unpack_from(self._memory)[0])

    def answered_at(self) -> float:
        """Return when its stores last answered it."""
        return float(_HEAD.unpack_from(self._memory)[1])

    def counts(self) -> Counts:
        """Return what it has done."""
        return Counts(*_HEAD.unpack_from(self._memory)[2:7])

    def ended(self) -> End:
        """Return how it ended, as it said."""
        return _ENDS[int(_HEAD.unpack_from(self._memory)[7])]

    def running(self) -> list[Shown]:
        """Return the jobs that it runs."""
        shown = []
        for slot in range(self._slots):
            start = _HEAD.size + slot * SLOT
            deadline, began, key, attempts, queue, receipt, id = _SLOT.unpack_from(
                self._memory, start
            )
            if not began:
                continue
            text = start + _SLOT.size
            words = bytes(self._memory[text : text + receipt + id])
            shown.append(
                Shown(
                    queue,
                    key,
                    words[receipt:].decode(errors="replace"),
                    words[:receipt].decode(errors="replace"),
                    attempts,
                    began,
                    deadline,
                )
            )
        return shown
