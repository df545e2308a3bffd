"""Three rqlite nodes of the demo's own: on the loopback, their data in a temporary folder."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from testproject.processes import (
    DemoError,
    Lock,
    begun,
    end,
    has_ended,
    interrupts_held_back,
    tail,
)

HOST = "127.0.0.1"
COUNT = 3
READY_SECONDS = 60.0
STOP_SECONDS = 10.0
# Below what systems give to outgoing connections, one of which could take a node's port.
PORTS = range(20_000, 32_000)


def find_rqlited() -> str:
    """Return the path of rqlited: RQLITED of the environment, or else the one on PATH.

    Raises:
        DemoError: there is none; the message says how to get one.
    """
    named = os.environ.get("RQLITED")
    found = shutil.which(named or "rqlited")
    if found is not None:
        return found
    what = f"RQLITED is {named!r}, which is no program" if named else "rqlited is not on PATH"
    raise DemoError(
        f"{what}. It is the server of rqlite (https://rqlite.io), 8.43 or later, one file."
        " Install it, or name it: make demo STORE=rqlite RQLITED=/path/to/rqlited. Without"
        " STORE=rqlite the demo runs on SQLite and needs nothing."
    )


class Nodes:
    """A cluster that ends with the demo; use as a context manager, and its ``urls``.

    Each node is in a session of its own, so that Ctrl-C in the terminal reaches the demo alone,
    and holds the demo's lock as long as it lives.
    """

    def __init__(self, program: str, state: Path, lock: Lock) -> None:
        self._program = program
        self._state = state
        self._lock = lock
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.urls: list[str] = []

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="demo-rqlite-")
        try:
            self._start()
            for url in self._processes:
                self._wait_ready(url)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()

    def ended(self) -> list[str]:
        """Return the URLs of the nodes that have ended since the last call."""
        gone = [url for url, process in self._processes.items() if has_ended(process)]
        for url in gone:
            del self._processes[url]
        return gone

    @property
    def running(self) -> int:
        """How many nodes have not ended, as far as ``ended`` has looked."""
        return len(self._processes)

    def _start(self) -> None:
        ports = _free_ports(2 * COUNT)
        raft = [f"{HOST}:{port}" for port in ports[COUNT:]]
        for index, port in enumerate(ports[:COUNT]):
            name = f"node-{index + 1}"
            command = [self._program, "-node-id", name, "-http-addr", f"{HOST}:{port}"]
            command += ["-raft-addr", raft[index], "-join", ",".join(raft)]
            command += ["-bootstrap-expect", str(COUNT), str(Path(self._folder.name) / name)]
            with open(self._state / f"{name}.log", "wb") as log, interrupts_held_back():
                try:
                    self._processes[f"http://{HOST}:{port}"] = begun(command, log, self._lock)
                except OSError as error:
                    raise DemoError(f"{self._program} can't be started: {error}") from error
        self.urls = list(self._processes)

    def _wait_ready(self, url: str) -> None:
        """Wait until a node is up and knows the leader."""
        process = self._processes[url]
        log = self._state / f"node-{self.urls.index(url) + 1}.log"
        deadline = time.monotonic() + READY_SECONDS
        # The loopback is never reached through a proxy of the environment.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while True:
            try:
                with opener.open(f"{url}/readyz", timeout=5):
                    return
            except (OSError, urllib.error.HTTPError):
                pass
            ended = has_ended(process)
            if ended or time.monotonic() > deadline:
                what = "has ended" if ended else "isn't ready"
                raise DemoError(f"a node of rqlite {what}; {log} ends with:\n{tail(log)}")
            time.sleep(0.05)

    def _stop(self) -> None:
        """End every node: asked, then killed. Nothing that they hold is needed again."""
        try:
            end(self._processes.values(), STOP_SECONDS)
        finally:
            self._folder.cleanup()


def _free_ports(count: int) -> list[int]:
    ports: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as listener:
            try:
                listener.bind((HOST, port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise DemoError(f"no {count} free ports between {PORTS.start} and {PORTS.stop} were found")
