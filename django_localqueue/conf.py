"""The settings: the only module that reads them.

Nothing is read before it is asked for, and ``override_settings`` is followed.
This module knows which keys there are and what shape they have; what values an
option may have is the backend's to say.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from django.conf import UserSettingsHolder, global_settings, settings
from django.core.signals import setting_changed

SQLITE_BACKEND = "django_localqueue.backends.sqlite.SQLiteQueue"
RQLITE_BACKEND = "django_localqueue.backends.rqlite.RqliteQueue"
IN_MEMORY = ":memory:"
FILE_NAME = "localqueue.db"  # in the folder that LOCATION names

QUEUE_KEYS = ("BACKEND", "LOCATION", "NAME", "HANDLER", "OPTIONS", "TEST")
TEST_KEYS = ("LOCATION",)
OPTIONS = (
    "durability",
    "lease_seconds",
    "max_retries",
    "retention_seconds",
    "max_payload_bytes",
    "serializer",
    "max_running",
    "rate",
    "auth",
    "tls",
    "timeouts",
)
#: The types of options that are looked at here, since a message must not show the value, or
#: since no backend looks at it.
OPTION_TYPES: dict[str, tuple[type, ...]] = {
    "auth": (str, list, tuple),
    "tls": (dict,),
    "timeouts": (int, float, dict),
}
#: Options that one backend takes and others don't act on.
OPTIONS_OF_BACKEND: dict[str, tuple[str, ...]] = {
    SQLITE_BACKEND: ("durability",),
    RQLITE_BACKEND: ("auth", "tls", "timeouts"),
}
#: Options of a store, whichever alias gives them: the others of one LOCATION take them too.
STORE_OPTIONS = ("durability", "auth", "tls", "timeouts")
#: Values that no message may show.
SECRET_OPTIONS = ("auth",)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong in the settings; ``id`` is the id of its system check."""

    id: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """One alias of LOCALQUEUE, with what it left out filled in."""

    alias: str
    backend: str = SQLITE_BACKEND
    location: Any = field(default=None, repr=False)  # it and OPTIONS may hold a password
    name: str = ""
    handler: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    test_location: Any = field(default=None, repr=False)
    problems: tuple[Problem, ...] = ()
    #: LOCATION is nowhere set: it is the default one.
    unset_location: bool = False
    #: The keys given under OPTIONS that have no effect in this version.
    without_effect: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """LOCALQUEUE_WORKER: what ``runqueueworker`` does where its flags don't say otherwise.

    But for ``heartbeat_interval`` the keys are those of ``worker.options``; None: not set.
    """

    heartbeat_interval: float = 10
    queues: tuple[str, ...] | None = None
    exclude_queues: tuple[str, ...] | None = None
    processes: int | None = None
    threads: int | None = None
    burst: bool | None = None
    fail_on_error: bool | None = None
    max_idle: float | None = None
    max_jobs: int | None = None
    max_jobs_jitter: int | None = None
    max_memory: float | None = None
    max_lifetime: float | None = None
    poll_interval: float | None = None
    lease: float | None = None
    job_timeout: float | None = None
    shutdown_timeout: float | None = None
    name: str | None = None
    health_file: str | None = None
    health_port: int | None = None
    pidfile: str | None = None
    reload: bool | None = None
    log_format: str | None = None


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """LOCALQUEUE_CONSOLE.

    ``auto_register``: whether the console puts itself on Django's default admin site.
    ``has_permission``: dotted path of the rule who may do what, instead of Django's
    permissions; see ``django_localqueue.console.permissions``.
    ``read_only``: nobody may change anything.
    ``hidden_keys``: values of payloads, results and headers are hidden whose key contains one
    of these, whatever its case.
    ``redact``: dotted path of a function that gets decoded data and its record and returns what
    may be shown; after ``hidden_keys``.
    ``index_notice``: whether the admin's index tells how many jobs have failed.
    ``refresh_seconds``: how often a page that is watched is read again; 0: never.
    ``read_seconds``: how long a page waits for a cluster before it says that it can't be read.
    """

    auto_register: bool = True
    has_permission: str | None = None
    read_only: bool = False
    hidden_keys: tuple[str, ...] = (
        *("password", "passwd", "secret", "token", "api_key", "apikey", "authorization"),
        *("credential", "private_key", "session", "cookie", "card_number", "cvv", "iban", "ssn"),
    )
    redact: str | None = None
    index_notice: bool = True
    refresh_seconds: int = 10
    read_seconds: float = 3


#: The types that each key of a schedule takes.
SCHEDULE_KEYS: dict[str, tuple[type, ...]] = {
    "TASK": (str,),
    "CRON": (str,),
    "TIMEZONE": (str,),
    "ARGS": (list, tuple),
    "KWARGS": (dict,),
    "MISSED": (str,),
    "OVERLAP": (str,),
}
#: The types that each key of the two takes.
SECTION_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("queues", "exclude_queues"), (list, tuple)),
    **dict.fromkeys(("processes", "threads", "max_jobs", "max_jobs_jitter", "health_port"), (int,)),
    **dict.fromkeys(("burst", "fail_on_error", "reload"), (bool,)),
    **dict.fromkeys(
        (
            *("max_idle", "max_memory", "max_lifetime", "poll_interval", "lease", "job_timeout"),
            *("shutdown_timeout", "heartbeat_interval"),
        ),
        (int, float),
    ),
    **dict.fromkeys(("name", "log_format"), (str,)),
    **dict.fromkeys(("health_file", "pidfile"), (str, os.PathLike)),
    "auto_register": (bool,),
    "has_permission": (str,),
    "read_only": (bool,),
    "hidden_keys": (list, tuple),
    "redact": (str,),
    "index_notice": (bool,),
    "refresh_seconds": (int,),
    "read_seconds": (int, float),
}


@cache
def queue_settings() -> dict[str, QueueSettings]:
    """Return every alias of LOCALQUEUE; unset, it is one alias "default".

    Never raises for what is in the setting: the faults are in ``problems``.
    """
    raw = getattr(settings, "LOCALQUEUE", None)
    if raw is None:
        raw = {"default": {}}
    if not isinstance(raw, Mapping):
        problem = _wrong_type("LOCALQUEUE", raw, "a dict of aliases, as CACHES is")
        return {"default": QueueSettings("default", problems=(problem,))}
    default = _parse("default", raw.get("default", {}), None)
    parsed = {
        str(alias): default if alias == "default" else _parse(alias, entry, default)
        for alias, entry in raw.items()
    }
    return _with_the_options_of_their_stores(parsed)


def worker() -> WorkerSettings:
    """Return LOCALQUEUE_WORKER; a key of the wrong type counts as left out."""
    return WorkerSettings(**_section("LOCALQUEUE_WORKER", WorkerSettings)[0])


def console() -> ConsoleSettings:
    """Return LOCALQUEUE_CONSOLE; a key of the wrong type counts as left out."""
    return ConsoleSettings(**_section("LOCALQUEUE_CONSOLE", ConsoleSettings)[0])


def schedules() -> tuple[dict[str, Mapping[str, Any]], list[tuple[str, str]]]:
    """Return LOCALQUEUE_SCHEDULES by name, and what is wrong in its shape: messages and hints."""
    raw = getattr(settings, "LOCALQUEUE_SCHEDULES", None)
    if raw is None:
        return {}, []
    if not isinstance(raw, Mapping):
        return {}, [
            (f"LOCALQUEUE_SCHEDULES is {raw!r}.", "It must be a dict of schedules by name.")
        ]
    found: dict[str, Mapping[str, Any]] = {}
    problems = []
    for name, entry in raw.items():
        where = f"LOCALQUEUE_SCHEDULES[{name!r}]"
        if not isinstance(name, str) or not isinstance(entry, Mapping):
            problems.append((f"{where} is {entry!r}.", "It must be a dict, its name text."))
            continue
        wrong = [
            (f"{where}[{key!r}] is {entry[key]!r}.", f"It must be {_names(types)}.")
            for key, types in SCHEDULE_KEYS.items()
            if key in entry and not _is_a(entry[key], types)
        ]
        problems += wrong
        problems += [(p.message, p.hint) for p in _unknown(where, entry, SCHEDULE_KEYS)]
        if not wrong:
            found[name] = entry
    return found, problems


def section_problems() -> list[Problem]:
    """Return what is wrong in LOCALQUEUE_WORKER and LOCALQUEUE_CONSOLE."""
    return [
        *_section("LOCALQUEUE_WORKER", WorkerSettings)[1],
        *_section("LOCALQUEUE_CONSOLE", ConsoleSettings)[1],
    ]


def setting(name: str, default: Any = None) -> Any:
    """Return one of Django's or the project's own settings."""
    return getattr(settings, name, default)


def tasks() -> dict[str, Mapping[str, Any]]:
    """Return the aliases of TASKS with what is a dict; unset: none."""
    raw = getattr(settings, "TASKS", None)
    if not isinstance(raw, Mapping):
        return {}
    return {str(alias): entry for alias, entry in raw.items() if isinstance(entry, Mapping)}


def tasks_are_the_default() -> bool:
    """Whether TASKS is unset or what Django has it be."""
    raw = getattr(settings, "TASKS", None)
    return raw is None or raw == getattr(global_settings, "TASKS", None)


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


def suggestion(key: object, known: Iterable[str]) -> str:
    """Return a hint for an unknown key: the known one it looks like, and all of them."""
    known = list(known)
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(str(key).lower(), by_lower, n=1, cutoff=0.6)
    guess = f"Did you mean {by_lower[near[0]]!r}? " if near else ""
    return f"{guess}The keys are {', '.join(known)}."


def _parse(alias: object, entry: Any, default: QueueSettings | None) -> QueueSettings:
    where = f"LOCALQUEUE[{alias!r}]"
    if not isinstance(alias, str) or not alias:
        problem = _wrong_type(f"The alias {alias!r} of LOCALQUEUE", alias, "text, not empty")
        return QueueSettings(str(alias), problems=(problem,))
    if not isinstance(entry, Mapping):
        return QueueSettings(alias, problems=(_wrong_type(where, entry, "a dict"),))
    problems = _unknown(where, entry, QUEUE_KEYS)
    backend = entry.get("BACKEND", default.backend if default else SQLITE_BACKEND)
    if not isinstance(backend, str):
        problems.append(_wrong_type(f"{where}['BACKEND']", backend, "the dotted path of a class"))
        backend = SQLITE_BACKEND
    name = entry.get("NAME", alias)
    if not isinstance(name, str):
        problems.append(_wrong_type(f"{where}['NAME']", name, "text"))
        name = alias
    handler = entry.get("HANDLER")
    if handler is not None and not isinstance(handler, str):
        problems.append(
            _wrong_type(f"{where}['HANDLER']", handler, "the dotted path of a function")
        )
        handler = None
    options = entry.get("OPTIONS", {})
    if not isinstance(options, Mapping):
        problems.append(_wrong_type(f"{where}['OPTIONS']", options, "a dict"))
        options = {}
    problems += _unknown(f"{where}['OPTIONS']", options, OPTIONS)
    for key, types in OPTION_TYPES.items():
        if key in options and not _is_a(options[key], types):
            given = options[key]
            if key in SECRET_OPTIONS and not isinstance(given, int):
                given = type(given)  # a message must not show a password
            problems.append(_wrong_type(f"{where}['OPTIONS']['{key}']", given, _names(types)))
    test = entry.get("TEST", {})
    if not isinstance(test, Mapping):
        problems.append(_wrong_type(f"{where}['TEST']", test, "a dict"))
        test = {}
    problems += _unknown(f"{where}['TEST']", test, TEST_KEYS)
    test_location = test.get("LOCATION")
    location = entry.get("LOCATION")
    unset_location = False
    if location is None and default is not None and backend == default.backend:
        location = default.location
        test_location = default.test_location if test_location is None else test_location
    elif location is None and backend == SQLITE_BACKEND:
        location = _default_location()
        unset_location = location is not None
    if location is None:
        problems.append(
            Problem(
                "E006",
                f"{where} has no LOCATION, and there is no default for it.",
                "Set LOCATION to the URLs of the nodes, for instance ['http://10.0.0.1:4001']."
                if backend == RQLITE_BACKEND
                else "Set LOCATION to the folder of the queue, for instance"
                " BASE_DIR / 'localqueue'.",
            )
        )
    return QueueSettings(
        alias,
        backend,
        location,
        name,
        handler,
        {key: options[key] for key in options if _has_effect(key, backend)},
        test_location,
        tuple(problems),
        unset_location,
        tuple(key for key in options if key in OPTIONS and not _has_effect(key, backend)),
    )


def _has_effect(option: str, backend: str) -> bool:
    owners = [owner for owner, options in OPTIONS_OF_BACKEND.items() if option in options]
    if owners and backend in OPTIONS_OF_BACKEND:
        return backend in owners
    return option in OPTIONS


def _with_the_options_of_their_stores(
    parsed: dict[str, QueueSettings],
) -> dict[str, QueueSettings]:
    """Give aliases of one store the options of it that one asks for; two may not differ."""
    result = dict(parsed)
    for option in STORE_OPTIONS:
        asked: dict[str, QueueSettings] = {}
        for alias, queue in result.items():
            if option not in queue.options or queue.location == IN_MEMORY:
                continue
            first = asked.setdefault(store_key(queue.location), queue)
            if first.options[option] != queue.options[option]:
                # URLs may hold a password.
                shown = f" {str(queue.location)!r}" if queue.backend == SQLITE_BACKEND else ""
                problem = Problem(
                    "E003",
                    f"LOCALQUEUE[{alias!r}] and LOCALQUEUE[{first.alias!r}] share the"
                    f" LOCATION{shown} and ask for different {option}.",
                    f"A store has one {option}: give both the same, or another LOCATION to one.",
                )
                result[alias] = replace(queue, problems=(*queue.problems, problem))
        for alias, queue in result.items():
            found = asked.get(store_key(queue.location))
            if found is not None and option not in queue.options:
                options = {**queue.options, option: found.options[option]}
                result[alias] = replace(queue, options=options)
    return result


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


def _default_location() -> Path | None:
    base = getattr(settings, "BASE_DIR", None)
    return None if base is None else Path(base) / "localqueue"


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


def _section(
    name: str, section: type[WorkerSettings] | type[ConsoleSettings]
) -> tuple[dict[str, Any], list[Problem]]:
    raw = getattr(settings, name, None)
    if raw is None:
        return {}, []
    if not isinstance(raw, Mapping):
        return {}, [_wrong_type(name, raw, "a dict")]
    known = {entry.name.upper(): entry.name for entry in fields(section)}
    problems = _unknown(name, raw, known)
    values = {}
    for key, attribute in known.items():
        if key not in raw:
            continue
        types = SECTION_TYPES[attribute]
        if _is_a(raw[key], types):
            values[attribute] = tuple(raw[key]) if list in types else raw[key]
        else:
            problems.append(_wrong_type(f"{name}['{key}']", raw[key], _names(types)))
    return values, problems


def _unknown(where: str, given: Mapping[Any, Any], known: Iterable[str]) -> list[Problem]:
    known = list(known)
    return [
        Problem("E002", f"{where} has the unknown key {key!r}.", suggestion(key, known))
        for key in given
        if key not in known
    ]


def _is_a(value: Any, types: tuple[type, ...]) -> bool:
    if isinstance(value, bool):
        return bool in types
    return isinstance(value, types)


def _names(types: tuple[type, ...]) -> str:
    return " or ".join(kind.__name__ for kind in types)


def _wrong_type(what: str, value: Any, wanted: str) -> Problem:
    return Problem("E006", f"{what} is {value!r}.", f"It must be {wanted}.")


def _is_overridden() -> bool:
    """Whether a test has LOCALQUEUE overridden, as ``override_settings`` does it."""
    holder: Any = vars(settings)["_wrapped"]
    while isinstance(holder, UserSettingsHolder) and holder.default_settings is not global_settings:
        if "LOCALQUEUE" in vars(holder):
            return True
        holder = holder.default_settings
    return False


def _follow(*, setting: str, **_: Any) -> None:
    if setting in ("LOCALQUEUE", "BASE_DIR"):
        queue_settings.cache_clear()


setting_changed.connect(_follow, dispatch_uid="django_localqueue.conf")
