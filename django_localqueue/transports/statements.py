"""SQL statements as rqlite takes them: checked, and encoded so that they arrive unchanged."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from django_localqueue.exceptions import InvalidInput

Statement = Sequence[Any]
"""A statement as a list: the SQL text, then its positional parameters."""

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_BLOB_LITERAL = re.compile(r"[xX]'(?:[0-9a-fA-F]{2})*'")
_LOST_RETURNING = re.compile(r"\breturning[^\S ]", re.IGNORECASE)
_RETURNING = re.compile(r"\breturning ", re.IGNORECASE)


def looks_like_blob(value: str) -> bool:
    """Tell whether rqlite would store this text as a BLOB: ``x'6869'``, spaces around it or not."""
    return _BLOB_LITERAL.fullmatch(value.strip()) is not None


def text(value: str) -> tuple[str, tuple[str, ...]]:
    """Return the SQL expression and the parameters that carry ``value`` as TEXT, verbatim.

    Mostly ``"?"`` and the value. A text that looks like a BLOB literal travels in two halves,
    neither of which does, and SQLite joins them.
    """
    if not looks_like_blob(value):
        return "?", (value,)
    cut = value.index("'")
    return "(? || ?)", (value[:cut], value[cut:])


@lru_cache(maxsize=1024)
def returns_rows(sql: str) -> bool:
    """Tell whether a write has a RETURNING clause, in the only form that rqlite sees."""
    return _RETURNING.search(sql) is not None


def encode(statements: Sequence[Statement]) -> bytes:
    """Return the body of a request.

    Raises ``InvalidInput`` for what rqlite would change silently or answer without rows: texts
    that look like BLOB literals, unpaired surrogates, integers beyond 64 bits, NaN and
    infinities, RETURNING followed by a line break.
    """
    if not statements:
        raise InvalidInput("A request needs at least one statement.")
    body = [[_checked_sql(sql), *map(_checked_value, values)] for sql, *values in statements]
    return _ENCODER.encode(body).encode()


def check_text(value: str, name: str) -> str:
    """Return ``value``; raise ``InvalidInput`` unless it is text that JSON can carry unchanged."""
    if not isinstance(value, str):
        raise InvalidInput(f"{name} must be a str, not {type(value).__name__}.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{name} holds an unpaired surrogate, which UTF-8 has not.") from None
    return value


@lru_cache(maxsize=1024)
def _checked_sql(sql: Any) -> str:
    if not check_text(sql, "SQL").strip():
        raise InvalidInput("A statement is empty.")
    if _LOST_RETURNING.search(sql):
        raise InvalidInput("RETURNING must be followed by a space, or rqlite sends no rows.")
    return str(sql)


def _checked_value(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if looks_like_blob(check_text(value, "A parameter")):
            raise InvalidInput(
                "rqlite would store this text parameter as a BLOB, as it has the form x'..'; "
                "carry it with django_localqueue.transports.statements.text()."
            )
        return value
    if isinstance(value, int):
        if not INT64_MIN <= value <= INT64_MAX:
            raise InvalidInput("An integer parameter has more than 64 bits.")
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput("A float parameter is NaN or infinite, which JSON has not.")
        return value
    if isinstance(value, bytes):
        # The x'..' form is shorter, but a text before rqlite 8.31.
        return list(value)
    raise InvalidInput(f"A parameter cannot be a {type(value).__name__}.")
