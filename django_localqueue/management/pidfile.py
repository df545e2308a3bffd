"""A file with the id of the process, which holds a lock on it as long as it lives."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows: there the file is written and holds nobody off
    fcntl = None  # type: ignore[assignment]


class PidfileHeld(OSError):
    """Another process holds the pidfile."""


@contextlib.contextmanager
def pidfile(path: Path) -> Iterator[None]:
    """Hold ``path`` while the block runs, and remove it after.

    Raises ``PidfileHeld`` where a live process has it, ``OSError`` where it can't be written.
    What a dead process left is taken over.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise OSError(f"The pidfile {path} can't be written: {error.strerror}.") from error
    try:
        if fcntl is not None:
            try:
                # A lock of the process: its children don't inherit it.
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                other = os.read(file, 32).decode(errors="replace").strip()
                raise PidfileHeld(
                    f"The pidfile {path} is held by the process {other or '(unknown)'}."
                ) from None
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        owner = os.getpid()
        try:
            yield
        finally:
            if os.getpid() == owner:
                with contextlib.suppress(OSError):
                    path.unlink()
    finally:
        os.close(file)
