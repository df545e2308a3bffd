"""Arguments, checked: what a backend gets may be stored as it is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from django_localqueue.exceptions import InvalidInput
from django_localqueue.serializers import JSONSerializer
from django_localqueue.types import MICROSECONDS, ErrorRecord, Job, Progress

MAX_SECONDS = 100 * 365 * 86_400  # a century: nobody means more
MAX_NAME = 255
HEADERS = JSONSerializer()  # headers are small facts, JSON whatever the payload is


class Message(NamedTuple):
    """A checked ``NewJob``, ready to be stored: bytes, and microseconds."""

    payload: bytes
    job_id: str | None
    delay: int
    priority: int
    group_id: str | None
    max_retries: int | None
    task: str | None
    headers: bytes | None
    expires: int | None = None
    unique_key: str | None = None
    unique_for: int = 0
    retention: int | None = None


@dataclass(frozen=True, slots=True)
class Settlement:
    """A checked ``Settle``: bytes, and microseconds."""

    job: Job
    verb: str
    delay: int
    result: bytes | None
    error: ErrorRecord | None
    reason: str


@dataclass(frozen=True, slots=True)
class Act:
    """A checked action of ``apply``: a delay in microseconds, a queue's name, where it has them."""

    action: str
    delay: int = 0
    target: str = ""


def failure_number(key: str) -> int:
    """Return the number of a failure group; one that no group has for what isn't a key."""
    return int(key) if key.isascii() and key.isdigit() and len(key) < 19 else -1


def progress_record(value: bytes | None) -> Progress | None:
    """Return what ``BaseQueue.progress`` had stored."""
    return None if value is None else Progress(**HEADERS.loads(value))


def text(value: object, name: str, *, limit: int = MAX_NAME, empty: bool = False) -> str:
    """Return ``value`` if it is storable text; raises ``InvalidInput`` naming ``name``."""
    if not isinstance(value, str):
        raise InvalidInput(f"{name} must be text, and it is {value!r}.")
    if not value and not empty:
        raise InvalidInput(f"{name} is empty; give it at least one character.")
    if len(value) > limit:
        raise InvalidInput(f"{name} has {len(value)} characters, and at most {limit} are allowed.")
    if "\x00" in value:
        raise InvalidInput(f"{name} contains a NUL character; leave it out.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(
            f"{name} contains a lone surrogate, which UTF-8 can't carry; replace it."
        ) from None
    return value


def whole(value: object, name: str, low: int, high: int) -> int:
    """Return ``value`` if it is a whole number in range; raises ``InvalidInput``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"{name} must be a whole number, and it is {value!r}.")
    if not low <= value <= high:
        raise InvalidInput(f"{name} must be from {low} to {high}, and it is {value}.")
    return value


def seconds(value: object, name: str, *, positive: bool = False) -> float:
    """Return ``value`` if it is a sane number of seconds; raises ``InvalidInput``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidInput(f"{name} must be a number of seconds, and it is {value!r}.")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(f"{name} must be a finite number of seconds, and it is {value!r}.")
    if value < 0 or (positive and value < 0.001):
        least = "at least 0.001" if positive else "0 or more"
        raise InvalidInput(f"{name} must be {least} seconds, and it is {value}.")
    if value > MAX_SECONDS:
        raise InvalidInput(f"{name} is {value} seconds, and at most {MAX_SECONDS} are allowed.")
    return value


def optional_microseconds(value: object, name: str, *, positive: bool = False) -> int | None:
    """``microseconds``, or None for None."""
    return None if value is None else microseconds(value, name, positive=positive)


def number(value: object, name: str, low: float) -> float:
    """Return ``value`` if it is a finite number of at least ``low``; raises ``InvalidInput``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InvalidInput(f"{name} must be a finite number, and it is {value!r}.")
    if value < low:
        raise InvalidInput(f"{name} must be {low} or more, and it is {value}.")
    return value


PERIODS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
#: Seconds' worth of a rate that may come at once: else high rates would need a claim a job.
AT_ONCE = 0.05


class Limits(NamedTuple):
    """What bounds the claims of a queue, checked: microseconds between two, 0 for no rate."""

    max_running: int | None
    interval: int
    burst: int


def limits(max_running: object, rate: object) -> Limits | None:
    """Return the limits of a queue; raises ``InvalidInput``."""
    if max_running is None and rate is None:
        return None
    most = None if max_running is None else whole(max_running, "max_running", 1, 1_000_000)
    if rate is None:
        return Limits(most, 0, 1)
    interval = max(1, round(MICROSECONDS / _per_second(rate)))
    return Limits(most, interval, max(1, int(AT_ONCE * MICROSECONDS / interval)))


def _per_second(rate: object) -> float:
    hint = "rate must be jobs a second, or text such as '100/m' (s, m, h, d)"
    number: object = rate
    period = 1
    if isinstance(rate, str):
        text, _, unit = rate.partition("/")
        if unit not in PERIODS:
            raise InvalidInput(f"{hint}, and it is {rate!r}.")
        period = PERIODS[unit]
        try:
            number = float(text)
        except ValueError:
            raise InvalidInput(f"{hint}, and it is {rate!r}.") from None
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise InvalidInput(f"{hint}, and it is {rate!r}.")
    if not math.isfinite(number) or not 1e-6 <= number / period <= 1_000_000:
        raise InvalidInput(f"{hint}; {rate!r} is out of range.")
    return number / period


def microseconds(value: object, name: str, *, positive: bool = False) -> int:
    """``seconds`` as whole microseconds."""
    return round(seconds(value, name, positive=positive) * MICROSECONDS)
