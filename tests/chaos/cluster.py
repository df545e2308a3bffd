"""Three real nodes that reach each other, and are reached, through proxies only."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import requests

from tests.chaos.proxies import HOST, STRANGE, Network
from tests.fakes.server import free_port
from tests.rqlite.nodes import find_rqlited

NODES = 3
READY_SECONDS = 60.0


class ProxiedCluster:
    """``NODES`` nodes with their data in ``folder``; ``urls`` are those of the proxies.

    Who is given ``strange_urls`` can follow no redirect, so the nodes forward its requests:
    version 10 applies some of them twice.
    """

    def __init__(self, folder: Path, network: Network) -> None:
        program = find_rqlited()
        assert program is not None, "rqlited is neither on PATH nor named by RQLITED"
        self.network = network
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self._folder = folder
        self._session = requests.Session()
        self._session.trust_env = False
        ports: list[int] = []
        while len(ports) < 4 * NODES:
            port = free_port()
            if port not in ports:
                ports.append(port)
        self._http, raft, doors, peers = (ports[i::4][:NODES] for i in range(4))
        self.urls = [f"http://{HOST}:{port}" for port in doors]
        self.strange_urls = [f"http://{STRANGE}:{port}" for port in doors]
        join = ",".join(f"{HOST}:{port}" for port in peers)
        self._commands = []
        for i in range(NODES):
            command = [program, "-node-id", f"n{i}", "-bootstrap-expect", str(NODES), "-join", join]
            command += ["-http-addr", f"{HOST}:{self._http[i]}"]
            command += ["-http-adv-addr", f"{HOST}:{doors[i]}"]
            command += ["-raft-addr", f"{HOST}:{raft[i]}", "-raft-adv-addr", f"{HOST}:{peers[i]}"]
            self._commands.append([*command, str(folder / f"n{i}")])
        for i in range(NODES):
            network.serve_clients(i, doors[i], self._http[i])
            network.serve_peers(i, peers[i], raft[i])

    def start(self, node: int) -> None:
        """Start a node that doesn't run."""
        with (self._folder / f"n{node}.log").open("ab") as log:
            process = subprocess.Popen(
                self._commands[node], stdout=log, stderr=subprocess.STDOUT, process_group=0
            )
        self.processes[node] = process
        self.network.pids[node] = process.pid

    def stop(self, node: int, number: signal.Signals = signal.SIGKILL) -> None:
        """End a node and wait for that; a graceful end may take its time, but not for ever."""
        process = self.processes.pop(node, None)
        if process is None:
            return
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()

    def signal(self, node: int, number: signal.Signals) -> None:
        """Send a signal to a node that runs."""
        os.kill(self.processes[node].pid, number)

    def leader(self, seconds: float = READY_SECONDS) -> int | None:
        """Return the node that leads, None if none does within ``seconds``."""
        deadline = time.monotonic() + seconds
        while True:
            for node in list(self.processes):
                if self._answer(node, "POST", "/db/query?level=strong&redirect", ["SELECT 1"]):
                    return node
            if time.monotonic() > deadline:
                return None
            time.sleep(0.1)

    def transfer(self, leader: int) -> bool:
        """Ask the leader to hand over; return whether it said that it did."""
        return self._answer(leader, "POST", "/leader", None) is not None

    def wait_ready(self) -> None:
        """Wait until every node is up and knows the leader."""
        deadline = time.monotonic() + READY_SECONDS
        for node in range(NODES):
            while self._answer(node, "GET", "/readyz", None) is None:
                if time.monotonic() > deadline:
                    raise AssertionError(f"node {node} was not ready in {READY_SECONDS:.0f} s")
                time.sleep(0.1)

    def heal(self) -> None:
        """Start what doesn't run, wake what was stopped, and wait until all are ready."""
        for node in range(NODES):
            if node in self.processes:
                self.signal(node, signal.SIGCONT)
            else:
                self.start(node)
        self.wait_ready()

    def close(self) -> None:
        """End every node."""
        for node in range(NODES):
            self.stop(node)
        self._session.close()

    def _answer(self, node: int, verb: str, path: str, body: Any) -> requests.Response | None:
        """Ask a node itself, past its proxy; return None unless all is well."""
        url = f"http://{HOST}:{self._http[node]}{path}"
        try:  # the errors of requests are OSErrors
            answer = self._session.request(verb, url, json=body, allow_redirects=False, timeout=3)
        except OSError:
            return None
        return answer if answer.status_code == 200 and b'"error"' not in answer.content else None
