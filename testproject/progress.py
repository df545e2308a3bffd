"""How far a run is: counts over several queues, and a bar on a terminal."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from django_localqueue import Stats

LINE_SECONDS = 2.0  # between lines where there is no terminal
BAR = 28


@dataclass(frozen=True, slots=True)
class Counts:
    """Jobs of several queues together; ``claimable`` could be taken by a worker now."""

    claimable: int = 0
    left: int = 0
    acked: int = 0
    failed: int = 0

    @classmethod
    def of(cls, stats: Iterable[Stats]) -> Counts:
        stats = list(stats)
        return cls(
            claimable=sum(s.ready - s.delayed - s.blocked + s.expired for s in stats),
            left=sum(s.ready + s.processing for s in stats),
            acked=sum(s.acked for s in stats),
            failed=sum(s.failed for s in stats),
        )

    @property
    def done(self) -> int:
        return self.acked + self.failed

    @property
    def total(self) -> int:
        return self.done + self.left


class Progress:
    """Writes a bar that redraws itself, or now and then a plain line where nobody watches.

    The total may grow while it runs: archives add jobs.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bar = stream.isatty()
        self._started = time.monotonic()
        self._next_line = self._started

    def show(self, counts: Counts) -> None:
        now = time.monotonic()
        if self._bar:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write("\r\x1b[K" + self._text(counts, now, bar=True)[:width])
        elif now >= self._next_line:
            self._next_line = now + LINE_SECONDS
            self._stream.write(self._text(counts, now, bar=False) + "\n")
        self._stream.flush()

    def end(self, counts: Counts) -> None:
        """Show the last state, whatever was shown a moment ago, and leave the line."""
        self._next_line = 0.0
        self.show(counts)
        if self._bar:
            self._stream.write("\n")
            self._stream.flush()

    def _text(self, counts: Counts, now: float, *, bar: bool) -> str:
        share = counts.done / counts.total if counts.total else 1.0
        rate = counts.done / max(now - self._started, 0.001)
        filled = int(share * BAR)
        drawn = f"[{'#' * filled}{'.' * (BAR - filled)}] " if bar else ""
        return (
            f"{drawn}{share:4.0%}  {counts.done:,} of {counts.total:,} jobs,"
            f" {rate:,.0f} a second, {counts.failed:,} failed"
        )
