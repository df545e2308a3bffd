"""Which process a loopback connection belongs to, as Linux tells it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable


def owner_of(port: int, pids: Iterable[int]) -> int | None:
    """Return the one of ``pids`` that has a connection from the local ``port``."""
    inodes = set(_inodes(port))
    for pid in pids:
        with contextlib.suppress(OSError):  # a process may end meanwhile
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    link = os.readlink(f"/proc/{pid}/fd/{name}")
                    if link.startswith("socket:[") and link[8:-1] in inodes:
                        return pid
    return None


def _inodes(port: int) -> Iterable[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table) as lines:
            next(lines)
            for line in lines:
                words = line.split()
                if int(words[1].rpartition(":")[2], 16) == port:
                    yield words[9]
