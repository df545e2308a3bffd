"""Starts real rqlite nodes on the loopback, from ``rqlited`` on PATH or named by RQLITED."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fakes.server import free_port

if TYPE_CHECKING:
    import requests

READY_SECONDS = 60.0


def find_rqlited() -> str | None:
    """Return the path of rqlited, None if there is none."""
    return shutil.which(os.environ.get("RQLITED") or "rqlited")


class RealCluster:
    """``nodes`` nodes of rqlited with their data in ``folder``; use as a context manager.

    ``options`` are added to each node's command line; ``login`` is the user of these methods.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int = 1,
        options: tuple[str, ...] = (),
        login: tuple[str, str] | None = None,
    ) -> None:
        import requests

        program = find_rqlited()
        assert program is not None, "rqlited is neither on PATH nor named by RQLITED"
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * nodes
        ports = [(free_port(), free_port()) for _ in range(nodes)]
        join = ",".join(f"127.0.0.1:{raft}" for _, raft in ports)
        self._commands = [
            [program, "-node-id", f"n{index + 1}", "-http-addr", f"127.0.0.1:{http}"]
            + ["-raft-addr", f"127.0.0.1:{raft}"]
            + (["-bootstrap-expect", str(nodes), "-join", join] if nodes > 1 else [])
            + [*options, str(folder / f"n{index + 1}")]
            for index, (http, raft) in enumerate(ports)
        ]
        self._folder = folder
        self.urls = [f"http://127.0.0.1:{http}" for http, _ in ports]
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.auth = login

    def __enter__(self) -> RealCluster:
        try:
            for index in range(len(self._commands)):
                self.start(index)
            self.wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for index in range(len(self._processes)):
            self.kill(index)
        self.session.close()

    @property
    def version(self) -> tuple[int, ...]:
        """The version the nodes tell; ``(10,)`` for a build that only knows its major version."""
        told = self.post(0, "/db/query?level=none", ["SELECT 1"]).headers["X-RQLITE-VERSION"]
        return tuple(int(part) for part in told.lstrip("v").split(".") if part.isdigit())

    def start(self, index: int) -> None:
        with (self._folder / f"n{index + 1}.log").open("ab") as log:
            self._processes[index] = subprocess.Popen(
                self._commands[index], stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self, index: int) -> None:
        process = self._processes[index]
        if process is not None:
            process.kill()
            process.wait()
            self._processes[index] = None

    def freeze(self, index: int) -> None:
        """Stop a node as a suspended machine stops: it keeps its connections and says nothing."""
        self._signal(index, signal.SIGSTOP)

    def thaw(self, index: int) -> None:
        self._signal(index, signal.SIGCONT)

    def _signal(self, index: int, number: signal.Signals) -> None:
        process = self._processes[index]
        assert process is not None
        process.send_signal(number)

    def post(self, index: int, path: str, body: Any) -> requests.Response:
        return self.session.post(
            self.urls[index] + path, json=body, allow_redirects=False, timeout=30
        )

    def execute(self, statements: list[Any]) -> list[dict[str, Any]]:
        """Apply statements on the first node, which forwards them."""
        answer = self.post(0, "/db/execute?transaction", statements).json()
        assert "error" not in answer, answer
        return list(answer["results"])

    def leader(self) -> int:
        """Return the index of the node that leads, waiting until there is one."""
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            for index, process in enumerate(self._processes):
                if process is not None and self._leads(index):
                    return index
            time.sleep(0.05)
        raise AssertionError("the cluster has no leader")

    def wait_ready(self) -> None:
        """Wait until every node is up and knows the leader."""
        for url in self.urls:
            self._wait_ready(url)

    def _leads(self, index: int) -> bool:
        try:  # the errors of requests are OSErrors
            answer = self.post(index, "/db/query?level=strong&redirect", ["SELECT 1"])
        except OSError:
            return False
        return answer.status_code == 200 and "error" not in answer.json()

    def _wait_ready(self, url: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            try:
                if self.session.get(f"{url}/readyz", timeout=5).status_code == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"{url} was not ready within {READY_SECONDS:.0f} seconds")
