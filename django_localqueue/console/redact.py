"""Hiding what not everybody is to read: passwords, tokens, whatever a project says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.utils.module_loading import import_string

from django_localqueue.conf import console
from django_localqueue.types import JobRecord

#: What is shown in the place of a hidden value.
HIDDEN = "••••••"


def redacted(data: Any, record: JobRecord) -> Any:
    """Return decoded data as it may be shown.

    Values whose key contains one of ``LOCALQUEUE_CONSOLE["HIDDEN_KEYS"]`` are hidden, at any
    depth; then ``LOCALQUEUE_CONSOLE["REDACT"]``, a function of (data, record), has its say. Where
    that raises, nothing is shown.
    """
    settings = console()
    data = _without(data, [key.lower() for key in settings.hidden_keys])
    if not settings.redact:
        return data
    try:
        return import_string(settings.redact)(data, record)
    except Exception as error:
        return f"{HIDDEN} ({type(error).__name__} in {settings.redact})"


def _without(data: Any, keys: Sequence[str], depth: int = 0) -> Any:
    if depth > 200:  # deeper than anybody reads
        return HIDDEN
    if isinstance(data, dict):
        return {
            name: HIDDEN
            if isinstance(name, str) and any(key in name.lower() for key in keys)
            else _without(value, keys, depth + 1)
            for name, value in data.items()
        }
    if isinstance(data, (list, tuple)):
        return [_without(value, keys, depth + 1) for value in data]
    return data
