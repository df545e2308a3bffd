"""How payloads become bytes: JSON by default, anything with ``dumps`` and ``loads`` by setting."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from typing import Any, Protocol

from django_localqueue.exceptions import SerializationError, UndecodablePayload


class Serializer(Protocol):
    """Turns payloads into bytes and back.

    ``dumps`` raises ``SerializationError`` for what it can't carry without change;
    ``loads`` may raise anything, which the queue takes as an undecodable payload.
    """

    def dumps(self, data: Any) -> bytes: ...

    def loads(self, payload: bytes) -> Any: ...


class JSONSerializer:
    """JSON that gives back exactly what it was given, or refuses it and says where.

    Tuples, sets, dates, bytes, keys that are not text, NaN and infinities are
    refused: JSON would change them silently.
    """

    def __init__(self) -> None:
        self._encode = _encoder(ensure_ascii=False)
        self._encode_ascii = _encoder(ensure_ascii=True)
        decoder: Any = json.JSONDecoder()
        self._decode, self._scan = decoder.decode, decoder.scan_once

    def __reduce__(self) -> tuple[type[JSONSerializer], tuple[()]]:
        return type(self), ()  # its parts can't be pickled, and are the same everywhere

    def dumps(self, data: Any) -> bytes:
        """Return ``data`` as UTF-8 JSON; raises ``SerializationError`` naming the bad value."""
        try:
            _check(data)
            try:
                return self._encode(data).encode()
            except UnicodeEncodeError:  # a lone surrogate: only the escaped form can carry it
                return self._encode_ascii(data).encode()
        except RecursionError:
            raise SerializationError(
                "The payload is nested too deeply, or contains itself."
            ) from None
        except _BadValue as bad:
            raise SerializationError(bad.text()) from None
        except (TypeError, ValueError) as error:
            raise SerializationError(f"The payload can't be carried as JSON: {error}.") from None

    def loads(self, payload: bytes) -> Any:
        """Return the value of UTF-8 JSON ``payload``; raises ``UndecodablePayload``."""
        try:
            text = payload.decode()
            try:
                value, end = self._scan(text, 0)  # what most are: a value and nothing around it
            except StopIteration:
                end = -1
            return value if end == len(text) else self._decode(text)
        except (ValueError, RecursionError) as error:
            raise UndecodablePayload(f"The payload is not valid JSON: {error}.") from error


def _encoder(ensure_ascii: bool) -> Callable[[Any], str]:
    """Return what ``JSONEncoder.encode`` does, without making its inner encoder each time."""
    encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=ensure_ascii)
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # not every interpreter has it
        return encoder.encode
    quote = json.encoder.encode_basestring_ascii if ensure_ascii else json.encoder.encode_basestring
    # No markers: what contains itself ends in a RecursionError, which the caller expects.
    pieces = make(None, encoder.default, quote, None, ":", ",", False, False, False)
    return lambda data: "".join(pieces(data, 0))


class _BadValue(Exception):
    def __init__(self, problem: str) -> None:
        self.problem = problem
        self.path: list[str] = []

    def text(self) -> str:
        where = "".join(reversed(self.path))
        return f"The payload can't be carried as JSON: data{where} {self.problem}."


_EXACT = frozenset({str, int, bool, type(None)})


def _check(value: Any) -> None:
    kind = type(value)
    if kind in _EXACT:
        return
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise _BadValue(f"has the key {key!r}, and JSON has only text keys; use str(key)")
            if type(item) not in _EXACT:
                _check_below(item, f"[{key!r}]")
    elif kind is list:
        for index, item in enumerate(value):
            if type(item) not in _EXACT:
                _check_below(item, f"[{index}]")
    elif kind is float:
        if value != value or value in (float("inf"), float("-inf")):
            raise _BadValue(f"is {value!r}, which JSON does not have; use None or a string")
    else:
        _check_other(value)


def _check_below(item: Any, step: str) -> None:
    try:
        _check(item)
    except _BadValue as bad:
        bad.path.append(step)
        raise


def _check_other(value: Any) -> None:
    name = type(value).__name__
    if isinstance(value, enum.Enum):
        raise _BadValue(f"is the enum member {value!r}; pass its .value")
    if isinstance(value, dict):
        _check(dict(value))
    elif isinstance(value, list):
        _check(list(value))
    elif isinstance(value, float):
        _check(float(value))
    elif isinstance(value, tuple):
        raise _BadValue("is a tuple, which JSON would turn into a list; use a list")
    elif hasattr(value, "_meta") and hasattr(value, "pk"):
        raise _BadValue(f"is a {name} model instance; pass its primary key and load it in the job")
    elif not isinstance(value, (str, int)):
        raise _BadValue(f"is a {name}; pass text, numbers, lists or dicts instead")
