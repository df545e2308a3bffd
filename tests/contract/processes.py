"""Processes of their own for tests: they share one store and wait for each other."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.contract.helpers import PATIENCE, InThread, wait_for_sleep

OPENING = """
import json, os, signal, sys, threading, time
from django_localqueue import Empty, LeaseExpired, SimpleQueue
folder = sys.argv[1]

def say(value):
    print(json.dumps(value), flush=True)
"""

#: Says "held" when another SQLite has the write lock; gives it up when told.
HOLD_THE_WRITE_LOCK = """
import sqlite3
connection = sqlite3.connect(os.path.join(folder, "localqueue.db"))
connection.execute("BEGIN IMMEDIATE")
say("held")
sys.stdin.readline()
connection.rollback()
connection.close()
"""


class Process:
    """A Python process of its own that runs a piece of code; it says JSON, a line at a time."""

    def __init__(self, folder: Path, code: str, *arguments: object) -> None:
        text = OPENING + textwrap.dedent(code)
        command = [sys.executable, "-c", text, str(folder), *map(str, arguments)]
        self.popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder.parent,
        )

    def hear(self) -> Any:
        """Return the next thing the process says."""
        assert self.popen.stdout is not None
        line = InThread(self.popen.stdout.readline).outcome()
        assert line, f"the process ended with {self.popen.wait(PATIENCE)} and said nothing"
        return json.loads(line)

    def tell(self) -> None:
        """Send a line to the process that waits for one."""
        assert self.popen.stdin is not None
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()

    def wait_until_asleep(self) -> None:
        wait_for_sleep(Path(f"/proc/{self.popen.pid}/stat"))

    def end(self, code: int = 0) -> None:
        """Wait for the process to end by itself."""
        assert self.popen.wait(PATIENCE) == code

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait(PATIENCE)

    def close(self) -> None:
        if self.popen.poll() is None:
            self.kill()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()


class Processes:
    """Starts processes on one store and sees to it that none outlives the test."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack

    def start(self, code: str, *arguments: object) -> Process:
        process = Process(self.folder, code, *arguments)
        self._stack.callback(process.close)
        return process

    def assert_file_is_whole(self) -> None:
        """Check the file from a process that has nothing else open."""
        code = """
        import sqlite3
        connection = sqlite3.connect(os.path.join(folder, "localqueue.db"))
        say(connection.execute("PRAGMA integrity_check").fetchone()[0])
        connection.close()
        """
        assert self.start(code).hear() == "ok"
