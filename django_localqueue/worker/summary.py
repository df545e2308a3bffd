"""What a worker did."""

from __future__ import annotations

from dataclasses import dataclass

from django_localqueue.exceptions import LocalQueueError


@dataclass(frozen=True, slots=True)
class Summary:
    """What a worker did.

    ``done``, ``failed`` (became dead letters), ``retried`` (given back after an
    error), ``released`` (given back unfinished) and ``lost`` (their lease was lost,
    so the end did not count) are deliveries; ``seconds`` is how long it ran;
    ``forced`` says that it stopped without waiting for running jobs; ``error`` is
    what made it stop by itself; ``limit`` is the limit that it reached.
    """

    done: int = 0
    failed: int = 0
    retried: int = 0
    released: int = 0
    lost: int = 0
    seconds: float = 0.0
    forced: bool = False
    error: LocalQueueError | None = None
    limit: str | None = None

    @property
    def exit_code(self) -> int:
        """0 after a clean end, 1 after a forced one, 3 where the store is unusable."""
        return 3 if self.error else int(self.forced)
