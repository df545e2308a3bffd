"""What the worker command tells others of the worker's health: systemd, a file, two pages."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

from django_localqueue.management.notify import Notifier
from django_localqueue.worker.health import Health, HealthFile, HealthServer


class Vitals:
    """Tells whoever asked for it.

    Args:
        alive_at: returns when the worker was last seen to live, monotonic.
        answered_at: returns when its stores last answered.
        file: to be touched as long as it lives.
        port: of the loopback, for the pages.
        environ: where systemd says what it wants to be told.

    Raises ``OSError`` where the file or the port can't be had.
    """

    def __init__(
        self,
        alive_at: Callable[[], float],
        answered_at: Callable[[], float],
        *,
        file: str | None,
        port: int | None,
        environ: Mapping[str, str],
    ) -> None:
        self._health = health = Health(alive_at, answered_at)
        self._notifier = Notifier(health, environ)
        self._file = None if file is None else HealthFile(Path(file), health)
        self.server = None if port is None else HealthServer(port, health)

    def pulse(self, stopping: bool) -> None:
        """Tell what is new; to be called about twice a second."""
        self._health.stopping = stopping
        self._notifier.pulse()
        if self._file is not None:
            self._file.touch()

    def answering(self) -> contextlib.AbstractContextManager[None]:
        """Serve the pages from a thread until the block ends."""
        return contextlib.nullcontext() if self.server is None else self.server.answering()

    def close(self) -> None:
        """The worker has ended: take away what says that it lives."""
        if self.server is not None:
            self.server.close()
        if self._file is not None:
            self._file.remove()
