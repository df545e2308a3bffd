"""What the ``localqueue`` command prints: lines and tables for people, or one JSON document."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from django_localqueue.types import to_datetime


class NotFound(Exception):
    """What was named isn't there."""


class Output:
    """Where an action prints to."""

    def __init__(self, stream: Any, as_json: bool) -> None:
        self._stream: TextIO = stream
        self.as_json = as_json

    def say(self, text: str, **facts: Any) -> None:
        """Print a line; as JSON, the facts in it."""
        if self.as_json:
            self._dump(facts)
        else:
            self._stream.write(text)

    def table(self, rows: Sequence[Mapping[str, Any]], empty: str) -> None:
        """Print rows of equal keys, or ``empty`` where there are none."""
        if self.as_json:
            self._dump(list(rows))
            return
        if not rows:
            self._stream.write(empty)
            return
        heads = list(rows[0])
        cells = [heads, *([_shown(row[head]) for head in heads] for row in rows)]
        widths = [max(len(line[column]) for line in cells) for column in range(len(heads))]
        for line in cells:
            columns = zip(line, widths, strict=True)
            self._stream.write("  ".join(cell.ljust(width) for cell, width in columns).rstrip())

    def _dump(self, value: Any) -> None:
        self._stream.write(json.dumps(value, ensure_ascii=False, default=str))


def time(microseconds: int | None) -> str | None:
    """Return a record's time as ISO 8601 in UTC."""
    if microseconds is None:
        return None
    return to_datetime(microseconds).isoformat(timespec="seconds")


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "-"
    return " ".join(str(value).split())[:80]
