"""Telling systemd how the worker is, where its unit asks: ``Type=notify``, ``WatchdogSec``."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Mapping

from django_localqueue.worker.health import Health


class Notifier:
    """Sends what the unit waits for: that the worker is ready, that it lives, that it stops.

    Says nothing where ``NOTIFY_SOCKET`` is not set, or can't be written to.

    Args:
        health: how the worker is.
        environ: the environment that systemd made.
    """

    def __init__(self, health: Health, environ: Mapping[str, str]) -> None:
        self._health = health
        self._address = environ.get("NOTIFY_SOCKET", "")
        interval = environ.get("WATCHDOG_USEC", "")
        #: Seconds between two signs of life: half of what the unit allows.
        self._every = int(interval) / 2_000_000 if interval.isdecimal() else None
        self._next = 0.0
        self._ready = self._stopping = False

    def pulse(self) -> None:
        """Send what is new; to be called about twice a second."""
        if not self._address:
            return
        live, now = self._health.live(), time.monotonic()
        if live and not (self._ready or self._health.stopping):
            self._ready = True
            self._send("READY=1")
        if self._health.stopping and not self._stopping:
            self._stopping = True
            self._send("STOPPING=1")
        if live and self._every is not None and now >= self._next:
            self._next = now + self._every
            self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        abstract = self._address.startswith("@")
        address = f"\0{self._address[1:]}" if abstract else self._address
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as one,
        ):
            one.settimeout(0.1)
            one.sendto(text.encode(), address)
