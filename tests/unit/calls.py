"""Calls in threads and in forked children, and waiting for what they do."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NOBODY = 65534


def call_unprivileged(function: Callable[[], str]) -> str:
    """Return what ``function`` returns in a forked child that is not root."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            text = function()
        except BaseException as error:
            text = f"unexpected {type(error).__name__}: {error}"
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


def in_child(function: Callable[[], object]) -> int:
    """Return 0 where ``function`` returns something true in a forked child."""
    child = os.fork()
    if not child:
        try:
            code = 0 if function() else 1
        except BaseException as error:
            sys.stderr.write(f"in the child: {error!r}\n")
            code = 2
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it did not happen within 30 seconds"
        time.sleep(0.002)


class Call(threading.Thread):
    """A call in a thread of its own; ``outcome`` is what it returned or raised."""

    def __init__(self, function: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.function = function
        self.outcome: object = None
        self.start()

    def run(self) -> None:
        try:
            self.outcome = self.function()
        except Exception as error:
            self.outcome = error

    def result(self) -> Any:
        self.join(30)
        assert not self.is_alive(), "the call did not end within 30 seconds"
        return self.outcome


def sleeps(call: Call) -> bool:
    """Whether the thread of the call waits for something in the kernel."""
    stat = Path(f"/proc/self/task/{call.native_id}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "S"
