"""How long a task waits before it runs again."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from django.utils.module_loading import import_string

from django_localqueue.backends.arguments import number, seconds
from django_localqueue.exceptions import InvalidInput

#: Seconds; or what ``exponential`` returns; or a function of the attempt and the exception, or
#: its dotted path.
Backoff = float | Mapping[str, float] | Callable[[int, BaseException], float] | str


def exponential(
    base: float = 1, factor: float = 2, maximum: float = 3_600, jitter: float = 0.5
) -> dict[str, float]:
    """Return a backoff that grows with each attempt: 1, 2, 4 ... seconds, an hour at most.

    Args:
        base: seconds before the first retry.
        factor: what each further one is multiplied by.
        maximum: seconds that none exceeds.
        jitter: the part of each, 0 to 1, that is left to chance, so that jobs which failed
            together don't come back together.
    """
    given = {"base": base, "factor": factor, "maximum": maximum, "jitter": jitter}
    return dict(_exponential(given))


def described(backoff: Backoff) -> Any:
    """Return a backoff as JSON can carry it; raises ``InvalidInput`` for what is none."""
    if isinstance(backoff, Mapping):
        return dict(_exponential(backoff))
    if isinstance(backoff, str):
        if "." not in backoff:
            raise InvalidInput(f"backoff is {backoff!r}, which is no dotted path of a function.")
        return backoff
    if callable(backoff):
        path = f"{backoff.__module__}.{getattr(backoff, '__qualname__', '')}"
        if "<" in path or not path.rpartition(".")[2]:
            raise InvalidInput(
                "backoff must be a function at the top of a module, so that workers find it."
            )
        return path
    return seconds(backoff, "backoff")


def delay_of(backoff: Backoff | None, attempt: int, error: BaseException) -> float:
    """Return the seconds to wait after the attempt of this number, from 1, raised ``error``."""
    if backoff is None:
        backoff = DEFAULT
    if isinstance(backoff, Mapping):
        try:
            grown = backoff["base"] * backoff["factor"] ** (attempt - 1)
        except OverflowError:
            grown = backoff["maximum"]
        wait = min(grown, backoff["maximum"])
        return wait * (1 - backoff["jitter"] * random.random())
    if isinstance(backoff, (int, float)):
        return backoff
    function = import_string(backoff) if isinstance(backoff, str) else backoff
    return seconds(function(attempt, error), "what the backoff function returned")


def _exponential(given: Mapping[str, float]) -> Mapping[str, float]:
    if set(given) != {"base", "factor", "maximum", "jitter"}:
        raise InvalidInput("A backoff that grows is made by exponential(...).")
    seconds(given["base"], "base")
    number(given["factor"], "factor", 1)
    seconds(given["maximum"], "maximum")
    if not 0 <= number(given["jitter"], "jitter", 0) <= 1:
        raise InvalidInput(f"jitter must be from 0 to 1, and it is {given['jitter']}.")
    return given


DEFAULT = exponential()
