"""Statements on a real SQLite database, with the results that rqlite gives.

Left out: several statements in one string, time and random functions rewritten, DATETIME and
BOOLEAN columns. ``types`` is right for columns whose name has one type in the whole database.
"""

from __future__ import annotations

import base64
import re
import sqlite3
import threading
from collections.abc import Sequence
from typing import Any

from tests.fakes.versions import Version

Slot = dict[str, Any]

_BLOB = re.compile(r"[xX]'((?:[0-9a-fA-F]{2})*)'")
_BINDINGS = re.compile(r"uses (\d+), and there are (\d+) supplied")
_TIME_FUNCTION = re.compile(r"\b(datetime|date|time|julianday|unixepoch|strftime)\s*\(", re.I)
# facts 2, forms whose RETURNING gives no rows: rqlite's own parser does not know them.
_UNPARSED = re.compile(
    r"is\s+not\s+distinct\s+from|in\s*\(\s*values|\[\w+\]|returning\b.*\blimit", re.I
)


class Unencodable(Exception):
    """facts 9: an infinity in a result is HTTP 500, though the write was applied."""


class Refused(Exception):
    """facts 1, 400: the body is not what rqlite reads."""


class Database:
    """One database, as the leader applies it."""

    def __init__(self, version: Version) -> None:
        self.version = version
        self.lock = threading.RLock()
        self._connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False
        )

    def close(self) -> None:
        self._connection.close()

    def file(self) -> bytes:
        """Return the database as the bytes of a SQLite file."""
        with self.lock:
            return self._connection.serialize()

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run a statement directly, as a test sees the database."""
        with self.lock:
            return self._connection.execute(*_by_number(sql, parameters)).fetchall()

    def query(self, body: Sequence[Any], **options: bool) -> list[Slot]:
        with self.lock:
            return [self._query(statement, options) for statement in map(_statement, body)]

    def _query(self, statement: tuple[str, Any], options: dict[str, bool]) -> Slot:
        if not _reads_only(statement[0]):
            # facts 2: /db/query refuses every write, RETURNING or not
            return {"error": "attempt to change database via query operation"}
        try:
            return self._run(statement, True, options)
        except sqlite3.Error as error:
            return {"error": str(error)}

    def execute(self, body: Sequence[Any], transaction: bool, **options: bool) -> list[Slot]:
        """facts 1, table: a failed transaction ends the list of results and is rolled back."""
        return self._apply([_statement(item) for item in body], transaction, False, options)

    def request(self, body: Sequence[Any], transaction: bool, **options: bool) -> list[Slot]:
        """As ``execute``, with reads among the writes; facts 0.4 for what is not rolled back."""
        return self._apply([_statement(item) for item in body], transaction, True, options)

    def _apply(
        self,
        statements: list[tuple[str, Any]],
        transaction: bool,
        reads: bool,
        options: dict[str, bool],
    ) -> list[Slot]:
        with self.lock:
            if transaction:
                self._connection.execute("BEGIN")
            slots: list[Slot] = []
            for statement in statements:
                unprepared = self._prepare_error(statement) if reads else None
                if unprepared is not None:
                    # facts 0.4: recorded, not rolled back, the next statement follows
                    slots.append({"error": unprepared})
                    continue
                with_rows = reads and _reads_only(statement[0])
                returning = not with_rows and _gives_rows(statement[0], options)
                try:
                    slots.append(self._run(statement, with_rows or returning, options))
                except sqlite3.Error as error:
                    slots.append({"error": str(error)})
                    ignored = returning and not self.version.returning_rolls_back  # facts 0.5
                    if transaction and not ignored:
                        self._connection.execute("ROLLBACK")
                        return slots
            if transaction:
                self._connection.execute("COMMIT")
            return slots

    def _prepare_error(self, statement: tuple[str, Any]) -> str | None:
        try:
            self._cursor("EXPLAIN " + statement[0], statement[1])
        except sqlite3.OperationalError as error:
            return str(error)
        except sqlite3.Error:
            pass
        return None

    def _run(self, statement: tuple[str, Any], rows: bool, options: dict[str, bool]) -> Slot:
        sql, parameters = statement
        cursor = self._cursor(sql, parameters)
        found = cursor.fetchall()
        if not rows:
            last, changed = self._connection.execute(
                "SELECT last_insert_rowid(), changes()"
            ).fetchone()
            # facts 1: zero fields are left out; last_insert_id stays from earlier statements
            written = {"last_insert_id": last, "rows_affected": changed}
            return {key: value for key, value in written.items() if value}
        columns = [column[0] for column in cursor.description]
        types = self._types(columns, found)
        values = [[_out(value, options) for value in row] for row in found]
        if options.get("associative"):
            named = [dict(zip(columns, row, strict=True)) for row in values]
            return {"types": dict(zip(columns, types, strict=True)), "rows": named}
        slot: Slot = {"columns": columns, "types": types}
        return slot | {"values": values} if values else slot

    def _cursor(self, sql: str, parameters: Any) -> sqlite3.Cursor:
        try:
            return self._connection.execute(*_by_number(sql, parameters))
        except sqlite3.ProgrammingError as error:
            match = _BINDINGS.search(str(error))
            if match is None:
                raise
            wanted, given = int(match[1]), int(match[2])
            if given > wanted:  # facts 1: too many are ignored silently
                return self._connection.execute(sql, parameters[:wanted])
            raise sqlite3.ProgrammingError(
                f"not enough args to execute query: want {wanted} got {given}"
            ) from None

    def _types(self, columns: list[str], rows: list[tuple[Any, ...]]) -> list[str]:
        """facts 9: the declared type, or of an expression the kind of the first row's value."""
        declared: dict[str, set[str]] = {}
        for name, kind in self._connection.execute(
            "SELECT p.name, lower(p.type) FROM sqlite_master m, pragma_table_info(m.name) p"
            " WHERE m.type = 'table'"
        ):
            declared.setdefault(name, set()).add(kind)
        first = rows[0] if rows else (None,) * len(columns)
        return [
            next(iter(declared[column])) if len(declared.get(column, ())) == 1 else _kind(value)
            for column, value in zip(columns, first, strict=True)
        ]


def _statement(item: Any) -> tuple[str, Any]:
    """facts 1, request body: a string, or a list of the SQL and its parameters."""
    if isinstance(item, str):
        return item, ()
    if not isinstance(item, list) or not item or not isinstance(item[0], str):
        raise Refused("invalid request")
    if len(item) == 2 and isinstance(item[1], dict):
        return item[0], {name: _in(value) for name, value in item[1].items()}
    return item[0], tuple(_in(value) for value in item[1:])


def _in(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)  # facts 9
    if isinstance(value, str):
        blob = _BLOB.fullmatch(value.strip())
        if blob is not None:  # facts 0.10
            return bytes.fromhex(blob[1])
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # facts 9
    if isinstance(value, list):
        return bytes(value)  # facts 9, blob in
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return float(value)  # facts 9
    return value


def _out(value: Any, options: dict[str, bool]) -> Any:
    if isinstance(value, bytes):
        # facts 9, blob out: base64, or an array where that is asked for
        return list(value) if options.get("blob_array") else base64.b64encode(value).decode()
    if isinstance(value, float):
        if value in (float("inf"), float("-inf")):
            raise Unencodable(
                "json: error calling MarshalJSON for type *http.DBResults:"
                f" json: unsupported value: {'+' if value > 0 else '-'}Inf"
            )
        return int(value) if value.is_integer() and abs(value) < 1e21 else value  # facts 9
    return value


def _kind(value: Any) -> str:
    # facts 9: "" for NULL
    kinds = {int: "integer", float: "real", str: "text", bytes: "blob"}
    return kinds.get(type(value), "")


def _reads_only(sql: str) -> bool:
    words = sql.split(None, 1)
    first = words[0].upper() if words else ""
    if first == "WITH":
        return re.search(r"\b(insert|update|delete)\b", sql, re.I) is None
    return first in ("SELECT", "VALUES", "EXPLAIN", "PRAGMA")


def _gives_rows(sql: str, options: dict[str, bool]) -> bool:
    """facts 0.6 and 2: which RETURNING rqlite sees."""
    if "returning " not in sql.lower() or options.get("noparse") or _UNPARSED.search(sql):
        return False
    changes = sql.split(None, 1)[0].upper() in ("UPDATE", "DELETE")
    return not (changes and _TIME_FUNCTION.search(sql))


def _by_number(sql: str, parameters: Any) -> tuple[str, Any]:
    """Bind ``?1`` and so on by name: from Python 3.12 on a sequence won't do for them.

    A bare ``?`` beside them gets the next number, as SQLite counts.
    """
    if isinstance(parameters, dict) or not re.search(r"\?\d", sql):
        return sql, parameters
    highest = 0

    def numbered(token: re.Match[str]) -> str:
        nonlocal highest
        if token[0].startswith("'"):
            return token[0]
        number = int(token[1] or highest + 1)
        highest = max(highest, number)
        return f":p{number}"

    rewritten = re.sub(r"'(?:[^']|'')*'|\?(\d*)", numbered, sql)
    if len(parameters) < highest:
        return sql, parameters
    return rewritten, {f"p{number}": value for number, value in enumerate(parameters, 1)}
