"""The demo's worker processes, and the lock that keeps two demos apart."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Self

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FINISH_SECONDS = 20.0  # a worker that is asked to stop finishes the jobs that run
RETURN_SECONDS = 10.0  # asked again, it gives them back
TAIL = 2_000


class DemoError(Exception):
    """The demo can't go on; the message says why and what to do."""


class Lock:
    """Held by the demo and, through the descriptor they inherit, by its workers and nodes.

    So it is free only when the last of them has ended, however that came.
    """

    def __init__(self, state: Path) -> None:
        self._state = state

    def __enter__(self) -> Self:
        self._file = open(self._state / "lock", "a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            owner = self._file.read().strip()
            self._file.close()
            raise DemoError(
                f"a demo, or a process that it left behind, is running in {self._state}"
                f" (the demo's process was {owner or 'not written down'}); end it first."
            ) from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()
        return self

    def fileno(self) -> int:
        return self._file.fileno()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()


@contextmanager
def interrupts_held_back() -> Iterator[list[int]]:
    """Raise ``KeyboardInterrupt`` at the end only; yield the signals that came.

    No process shall start and go unnoticed; and one raised within ``Popen.poll`` may leave its lock
    taken, for which ``wait`` then waits for ever. By handlers and not by a mask, which a new
    process would inherit.
    """
    held: list[int] = []
    before = {
        number: signal.signal(number, lambda number, frame: held.append(number))
        for number in INTERRUPTS
    }
    try:
        yield held
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if held:
        raise KeyboardInterrupt


def begun(
    command: list[str], log: IO[bytes], lock: Lock, folder: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own that holds the demo's lock as long as it lives.

    Ctrl-C in the terminal reaches the demo alone. Call it under ``interrupts_held_back``.
    """
    return subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=(lock.fileno(),),
    )


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has ended."""
    with interrupts_held_back():
        return process.poll() is not None


def end(processes: Collection[subprocess.Popen[bytes]], *patience: float) -> None:
    """End processes: asked, once for each of these seconds, then killed.

    A Ctrl-C meanwhile kills at once; it is raised when they have ended.
    """
    with interrupts_held_back() as held:
        for seconds in patience:
            for process in processes:
                process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + seconds
            while not held and any(process.poll() is None for process in processes):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.02)
            if held:
                break
        for process in processes:
            process.kill()
            process.wait()


def tail(log: Path) -> str:
    """Return what a process said last."""
    return log.read_bytes()[-TAIL:].decode(errors="replace").rstrip()


class Workers:
    """Worker processes that end with the demo.

    Each is in a session of its own: Ctrl-C in the terminal reaches the demo alone, which
    then asks each worker once.
    """

    def __init__(self, base: Path, state: Path, lock: Lock) -> None:
        self._base = base
        self._state = state
        self._lock = lock
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *arguments: str) -> None:
        """Start a worker on both queues; what it says goes to ``<name>.log``."""
        command = [sys.executable, "-m", "testproject.manage", "runqueueworker"]
        command += ["--queue", "default", "--queue", "archives", *arguments]
        with open(self._log(name), "wb") as log, interrupts_held_back():
            self._processes[name] = begun(command, log, self._lock, self._base)

    def running(self) -> bool:
        """Whether a worker lives."""
        return not all(has_ended(process) for process in self._processes.values())

    def check_progress(self, progress: bool) -> None:
        """Raise ``DemoError`` where the workers have failed without settling a job."""
        for name, process in self._processes.items():
            if process.returncode and not progress:
                log = self._log(name)
                raise DemoError(
                    f"{name} ended with exit code {process.returncode};"
                    f" {log} ends with:\n{tail(log)}"
                )

    def wait(self) -> None:
        """Wait for workers that end by themselves."""
        while self.running():
            time.sleep(0.02)

    def stop(self) -> None:
        """End every worker: asked, asked again, then killed. A Ctrl-C meanwhile kills at once."""
        end(self._processes.values(), FINISH_SECONDS, RETURN_SECONDS)

    def _log(self, name: str) -> Path:
        return self._state / f"{name}.log"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
