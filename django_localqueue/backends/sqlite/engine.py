"""Loads the engine, or says what keeps it from being loaded."""

from __future__ import annotations

try:
    from django_localqueue import _native  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"The engine of django-localqueue can't be loaded in this interpreter: {error}. It is built"
        " for CPython with a GIL (not for a free-threaded build), and one interpreter of a process"
        " can use it (under mod_wsgi: WSGIApplicationGroup %{GLOBAL})."
    ) from error
