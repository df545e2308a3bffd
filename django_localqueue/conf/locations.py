"""Where the stores are: by LOCATION, and elsewhere in a test run."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from django.conf import UserSettingsHolder, global_settings, settings

from django_localqueue.conf.keys import (
    IN_MEMORY,
    OPTIONS_OF_BACKEND,
    RQLITE_BACKEND,
    SQLITE_BACKEND,
    QueueSettings,
)


def location_for(queue: QueueSettings) -> Any:
    """Return where this queue's store is now.

    That is TEST LOCATION in a test run, a folder for each parallel test process.
    A test run without one never touches the queue of the settings file: its queues
    are in memory, unless the test overrides LOCALQUEUE itself.
    """
    if not in_test_run():
        return queue.location
    if queue.test_location is not None:
        if queue.backend == RQLITE_BACKEND:
            return queue.test_location
        return _of_this_test_process(queue.test_location)
    if queue.backend in OPTIONS_OF_BACKEND and not _is_overridden():
        return IN_MEMORY
    return queue.location


def name_for(queue: QueueSettings) -> str:
    """Return the queue's name in its store; parallel test processes share a cluster, by name."""
    if queue.backend != RQLITE_BACKEND or queue.test_location is None or not in_test_run():
        return queue.name
    return str(_of_this_test_process(queue.name))


def in_memory(queue: QueueSettings) -> QueueSettings:
    """Return the settings of a queue in memory instead of this one."""
    ours = OPTIONS_OF_BACKEND.get(queue.backend, ())
    options = {key: value for key, value in queue.options.items() if key not in ours}
    return replace(queue, backend=SQLITE_BACKEND, options=options)


def shown_store(queue: QueueSettings) -> str:
    """Return what is equal for aliases that share a LOCATION; URLs in it may hold a password."""
    key = store_key(queue.location)
    return key if queue.backend != RQLITE_BACKEND else f"rqlite-{hash(key):x}"


def in_test_run() -> bool:
    """Whether Django's test environment is set up: the test database's time."""
    state = getattr(sys.modules.get("django.test.utils"), "_TestState", None)
    return hasattr(state, "saved_data")


def database_files() -> dict[str, str]:
    """Return the real path of every SQLite file that DATABASES opens, with its alias."""
    if not settings.configured:
        return {}
    files = {}
    for alias, database in getattr(settings, "DATABASES", {}).items():
        engine = str(database.get("ENGINE", ""))
        if "sqlite" not in engine and "spatialite" not in engine:
            continue
        for name in (database.get("NAME"), (database.get("TEST") or {}).get("NAME")):
            path = _file_of(name)
            if path:
                files[os.path.realpath(path)] = str(alias)
    return files


def store_key(location: Any) -> str:
    """Return what is equal for locations that are one store, without a login in URLs."""
    if isinstance(location, (list, tuple)):
        return " ".join(sorted(_without_login(str(url)) for url in location))
    if isinstance(location, str) and _is_url(location):
        return _without_login(location)
    if isinstance(location, (str, os.PathLike)) and location != IN_MEMORY:
        return os.path.realpath(os.fspath(location))
    return repr(location)


def _is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _without_login(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    return scheme + mark + rest.rpartition("@")[2].rstrip("/")


def _of_this_test_process(location: Any) -> Any:
    if not isinstance(location, (str, os.PathLike)) or location == IN_MEMORY:
        return location
    process = os.environ.get("PYTEST_XDIST_WORKER")
    if not process:  # Django's own parallel runner numbers its processes from 1
        number = getattr(sys.modules.get("django.test.runner"), "_worker_id", 0)
        process = str(number) if number else None
    return f"{os.fspath(location)}_{process}" if process else location


def _file_of(name: Any) -> str | None:
    """Return the file that the NAME of a SQLite database means; None: it is in memory."""
    if not isinstance(name, (str, os.PathLike)):
        return None
    text = os.fspath(name)
    if text.startswith("file:"):
        path, _, query = text[len("file:") :].partition("?")
        if "mode=memory" in query:
            return None
        text = unquote(path)
        if text.startswith("//"):
            text = "/" + text[2:].partition("/")[2]
    return None if not text or text == IN_MEMORY else text


def _is_overridden() -> bool:
    """Whether a test has LOCALQUEUE overridden, as ``override_settings`` does it."""
    holder: Any = vars(settings)["_wrapped"]
    while isinstance(holder, UserSettingsHolder) and holder.default_settings is not global_settings:
        if "LOCALQUEUE" in vars(holder):
            return True
        holder = holder.default_settings
    return False
