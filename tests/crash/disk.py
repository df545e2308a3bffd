"""What a disk may hold after a power cut: the record of a run, played up to any moment.

What was synced is there. Of what wasn't, any 512 bytes are or are not, and one piece is torn; a
file that was made or removed is or is not, until its folder was synced.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.shim import OPEN, SYNC, SYNCED, TRUNCATE, UNLINK, WRITE

SECTOR = 512
FOLDER = "."
_HEAD = struct.Struct("IIIIQ64s")


@dataclass(frozen=True)
class Event:
    """One call: a write, a sync's begin or end, and so on."""

    kind: int
    pid: int
    token: int
    name: str
    offset: int
    data: bytes


def read(record: Path) -> list[Event]:
    """Return the events of a record in their order."""
    content = record.read_bytes()
    events = []
    at = 0
    while at < len(content):
        kind, pid, token, size, offset, name = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        text = name.rstrip(b"\0").decode()
        events.append(Event(kind, pid, token, text, offset, content[at : at + size]))
        at += size
    return events


@dataclass
class File:
    """A file: what of it is surely on the disk, and what was done to it since."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[Event] = field(default_factory=list)

    def content(self, keep: Iterator[bool], torn: random.Random | None) -> bytes:
        """Return what may be there: ``keep`` says of each piece whether it reached the disk."""
        found = bytearray(self.durable)
        pieces = [piece for event in self.pending for piece in _pieces(event)]
        kept = [piece for piece in pieces if next(keep)]
        if torn is not None and kept:
            at = torn.randrange(len(kept))
            one = kept[at]
            kept[at] = _written(one, one.data[: torn.randrange(len(one.data) + 1)])
        for piece in kept:
            _apply(found, piece)
        return bytes(found)


def _pieces(event: Event) -> Iterator[Event]:
    if event.kind != WRITE:
        yield event
        return
    end = event.offset + len(event.data)
    at = event.offset
    while at < end:
        until = min(end, (at // SECTOR + 1) * SECTOR)
        data = event.data[at - event.offset : until - event.offset]
        yield Event(WRITE, event.pid, event.token, event.name, at, data)
        at = until


def _written(event: Event, data: bytes) -> Event:
    return Event(event.kind, event.pid, event.token, event.name, event.offset, data)


def _apply(content: bytearray, event: Event) -> None:
    size = event.offset if event.kind == TRUNCATE else event.offset + len(event.data)
    if len(content) < size:
        content.extend(bytes(size - len(content)))
    if event.kind == TRUNCATE:
        del content[event.offset :]
    else:
        content[event.offset : size] = event.data


class Disk:
    """A folder on a disk, event by event."""

    def __init__(self) -> None:
        self._now: dict[str, File] = {}  # as programs see the folder
        self._durable: dict[str, File] = {}  # as it was when it was last synced
        self._syncs: dict[tuple[int, int], tuple[File, int] | dict[str, File]] = {}

    def play(self, event: Event) -> None:
        """Let one more event happen."""
        if event.kind == OPEN:
            self._now[event.name] = File()
        elif event.kind in (WRITE, TRUNCATE):
            self._now.setdefault(event.name, File()).pending.append(event)
        elif event.kind == UNLINK:
            self._now.pop(event.name, None)
        elif event.kind == SYNC and event.name == FOLDER:
            self._syncs[event.pid, event.token] = dict(self._now)
        elif event.kind == SYNC and event.name in self._now:
            file = self._now[event.name]
            self._syncs[event.pid, event.token] = (file, len(file.pending))
        elif event.kind == SYNCED:
            self._end_sync(event)

    def _end_sync(self, event: Event) -> None:
        begun = self._syncs.pop((event.pid, event.token), None)
        if isinstance(begun, dict):
            self._durable = begun
        elif begun is not None:
            # Another sync may have ended meanwhile that covered part of it.
            file, length = begun
            covered = file.pending[:length]
            for one in covered:
                _apply(file.durable, one)
            del file.pending[: len(covered)]
            for key, other in self._syncs.items():
                if isinstance(other, tuple) and other[0] is file:
                    self._syncs[key] = (file, max(0, other[1] - len(covered)))

    def unsynced(self, pid: int, suffix: str) -> list[Event]:
        """Return what a process wrote to a file, by the end of its name, and nobody synced."""
        return [
            event
            for name, file in self._now.items()
            if name.endswith(suffix)
            for event in file.pending
            if event.pid == pid and event.kind == WRITE
        ]

    def cut(self, folder: Path, rng: random.Random) -> None:
        """Make ``folder`` what a power cut at this moment may leave."""
        share = rng.choice([0.0, 1.0, rng.random(), rng.random()])
        prefix = rng.random() < 0.3
        torn = rng if rng.random() < 0.5 else None
        folder.mkdir()
        for name in sorted({*self._now, *self._durable}):
            as_seen = rng.random() < 0.5
            file = (self._now if as_seen else self._durable).get(name)
            if file is not None:
                keep = _prefix(share, rng) if prefix else _some(share, rng)
                (folder / name).write_bytes(file.content(keep, torn))


def _some(share: float, rng: random.Random) -> Iterator[bool]:
    while True:
        yield rng.random() < share


def _prefix(share: float, rng: random.Random) -> Iterator[bool]:
    left = rng.expovariate(1 / (1 + 200 * share))
    while True:
        left -= 1
        yield left > 0
