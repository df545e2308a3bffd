"""A contestant's process, from the side of the one who gives the commands."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.contestants import OWN
from benchmarks.environment import ROOT


class ContestantError(Exception):
    """A contestant answered with an error, or not at all."""


@dataclass(frozen=True)
class Programs:
    """What runs the contestants: the peers' interpreter and the bare loop, where wanted."""

    peers: str = ""
    bare: str = ""

    def command(self, name: str) -> list[str]:
        if name == "bare":
            return [self.bare]
        python = sys.executable if name in OWN else self.peers
        return [python, "-m", "benchmarks.measure", name]


class Process:
    """One contestant on one folder."""

    def __init__(
        self, programs: Programs, name: str, folder: Path, durability: str, groups: int = 0
    ) -> None:
        self.name = name
        self.folder = folder
        place = folder / "store" if name == "bare" else folder
        self._process = subprocess.Popen(
            [*programs.command(name), str(place), durability, str(groups)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if name != "bare":
            self.answer(120)

    def tell(self, *words: object) -> None:
        """Give a command, and don't wait for the answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(" ".join(map(str, words)) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ContestantError(f"{self.name}: {error}") from error

    def answer(self, timeout: float = 300) -> dict[str, Any]:
        """Return the answer to the oldest command that has none yet."""
        assert self._process.stdout is not None
        timer = threading.Timer(timeout, self._process.kill)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            raise ContestantError(f"{self.name}: no answer within {timeout:.0f} seconds")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ContestantError(f"{self.name}: {answer['error']}")
        return answer

    def call(self, *words: object, timeout: float = 300) -> dict[str, Any]:
        """Give a command and return its answer."""
        self.tell(*words)
        return self.answer(timeout)

    def close(self) -> None:
        """End the process; its files stay."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
