"""Which settings there are, and of what shape.

What values an option may have is the backend's to say.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
