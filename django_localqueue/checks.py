"""System checks of the settings. Ids are fixed for ever; each names its mend in the hint.

Those that look at files carry the tag ``localqueue_files`` as well. Every process of a project
imports this module, so what few of them need, as the worker, is imported by the check itself.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.apps import AppConfig, apps
from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules, import_string

from django_localqueue import conf, folders
from django_localqueue.backends.base import BaseQueue
from django_localqueue.backends.sqlite import SQLiteQueue
from django_localqueue.exceptions import InvalidInput, LocalQueueError
from django_localqueue.queues import arguments, backend_class

TAG = "localqueue"
FILES_TAG = "localqueue_files"
TASK_BACKEND = "django_localqueue.tasks.LocalQueueBackend"
TASK_BACKENDS = (TASK_BACKEND, "django_localqueue.tasks.backend.LocalQueueBackend")

Apps = Sequence[AppConfig] | None


@register(TAG)
def check_keys(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """Unknown keys, wrong types and values, what can't be imported (E002, E003, E006, E008)."""
    problems = [problem for queue in _all() for problem in queue.problems]
    problems += conf.section_problems()
    for queue in _all():
        problems += _value_problems(queue)
        problems += _handler_problems(queue)
    return [
        Error(problem.message, hint=problem.hint, id=f"django_localqueue.{problem.id}")
        for problem in problems
    ]


@register(TAG)
def check_leases(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """A lease that ends before the worker renews it (E004)."""
    heartbeat = conf.worker().heartbeat_interval
    return [
        Error(
            f"LOCALQUEUE[{queue.alias!r}] has a lease of {lease:g} seconds, and workers renew"
            f" leases every {heartbeat:g} seconds.",
            hint="Make OPTIONS['lease_seconds'] longer than LOCALQUEUE_WORKER"
            "['HEARTBEAT_INTERVAL'], best three times as long: else jobs run twice.",
            id="django_localqueue.E004",
        )
        for queue in _all()
        if isinstance(lease := queue.options.get("lease_seconds", 60), (int, float))
        and 0 < lease <= heartbeat
    ]


@register(TAG)
def check_worker(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """Values of LOCALQUEUE_WORKER that no worker takes (E006, E010)."""
    from django_localqueue.worker.options import OPTIONS, Kind, Number

    worker = conf.worker()
    messages: list[CheckMessage] = []
    kinds: dict[str, Kind] = {option.key: option.kind for option in OPTIONS}
    kinds["HEARTBEAT_INTERVAL"] = Number(positive=True)
    for key, kind in kinds.items():
        value = getattr(worker, key.lower())
        try:
            if value is not None:
                kind.check(value)
        except InvalidInput as error:
            messages.append(
                Error(
                    f"LOCALQUEUE_WORKER['{key}'] is {value!r}: {error}",
                    hint="Correct the value, or leave it out.",
                    id="django_localqueue.E006",
                )
            )
    known = [*conf.queue_settings(), "*"]
    messages += [
        Error(
            f"LOCALQUEUE_WORKER['{key}'] names {name!r}, which LOCALQUEUE doesn't have.",
            hint=f"Add it to LOCALQUEUE. {conf.suggestion(name, known)}",
            id="django_localqueue.E010",
        )
        for key in ("QUEUES", "EXCLUDE_QUEUES")
        for name in getattr(worker, key.lower()) or ()
        if name not in known
    ]
    return messages


@register(TAG)
def check_schedules(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """Schedules that can't be: expressions, time zones, tasks, names (E011)."""
    if not _tasks_are_possible():
        return []
    from django_localqueue.schedules.declared import problems

    # What can't be imported is told by whoever needs it, as the worker does.
    with contextlib.suppress(Exception):
        autodiscover_modules("tasks")
    return [Error(message, hint=hint, id="django_localqueue.E011") for message, hint in problems()]


@register(TAG)
def check_options_without_effect(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """Options that the backend of the queue doesn't act on (W009)."""
    return [
        Warning(
            f"LOCALQUEUE[{queue.alias!r}]['OPTIONS']['{key}'] has no effect"
            f" on {queue.backend.rpartition('.')[2]}.",
            hint="Leave it out, or silence this check to keep it.",
            id="django_localqueue.W009",
        )
        for queue in _all()
        for key in queue.without_effect
    ]


@register(TAG)
def check_durability(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """Jobs that a power cut may lose, in production (W006, W010)."""
    if conf.setting("DEBUG"):
        return []
    messages: list[CheckMessage] = []
    for queue in _all():
        if queue.location == conf.IN_MEMORY:
            if not conf.in_test_run():
                messages.append(
                    Warning(
                        f"LOCALQUEUE[{queue.alias!r}] is in memory: its jobs are gone when the"
                        " process ends, and no worker sees them.",
                        hint="Set LOCATION to a folder; ':memory:' is for tests.",
                        id="django_localqueue.W010",
                    )
                )
        elif queue.options.get("durability") == "normal":
            messages.append(
                Warning(
                    f"LOCALQUEUE[{queue.alias!r}] has durability 'normal': a power cut may lose"
                    " jobs that were put.",
                    hint="Leave OPTIONS['durability'] out for 'full', or silence this check where"
                    " that is what you want.",
                    id="django_localqueue.W006",
                )
            )
    return messages


@register(TAG, FILES_TAG)
def check_locations(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """Folders that can't be used, or should not be (E001, E007, W001, W002, W012)."""
    messages: list[CheckMessage] = []
    databases = conf.database_files()
    for alias, given, folder in _folders():
        where = f"LOCALQUEUE[{alias!r}]['LOCATION']"
        if "://" in given:
            messages.append(
                Error(
                    f"{where} is a URL, and SQLiteQueue keeps its file in a folder.",
                    hint="Name a folder, for instance BASE_DIR / 'localqueue'; for an rqlite"
                    f" cluster set BACKEND to '{conf.RQLITE_BACKEND}'.",
                    id="django_localqueue.E001",
                )
            )
            continue
        if not os.path.isabs(given):
            messages.append(
                Warning(
                    f"{where} is {given!r}, which is relative: each process takes it from the"
                    " folder that it was started in, so web and worker may use two queues.",
                    hint=f"Give the whole path, for instance BASE_DIR / {given!r}.",
                    id="django_localqueue.W012",
                )
            )
        problem = folders.unusable(folder)
        if problem:
            messages.append(
                Error(
                    f"{where} is {folder!r}, {problem[0]}",
                    hint=problem[1],
                    id="django_localqueue.E001",
                )
            )
        database = databases.get(os.path.realpath(os.path.join(folder, conf.FILE_NAME)))
        if database is not None:
            messages.append(
                Error(
                    f"{where} is {folder!r}, whose {conf.FILE_NAME} is also the database"
                    f" {database!r} of DATABASES.",
                    hint="Give the queue a folder of its own: two SQLite libraries in one process"
                    " drop each other's locks.",
                    id="django_localqueue.E007",
                )
            )
        kind = folders.file_system(folder)
        if kind in folders.NETWORK_FILE_SYSTEMS:
            messages.append(
                Warning(
                    f"{where} is {folder!r}, on a network file system ({kind}).",
                    hint="Use a local disk: SQLite needs locks that network file systems don't"
                    " keep. For several machines use the rqlite queue.",
                    id="django_localqueue.W001",
                )
            )
        for name in ("MEDIA_ROOT", "STATIC_ROOT"):
            root = conf.setting(name)
            if root and folders.is_inside(folder, os.fspath(root)):
                messages.append(
                    Warning(
                        f"{where} is {folder!r}, inside {name}: its file may be served to anybody.",
                        hint=f"Move it out of {os.fspath(root)!r}.",
                        id="django_localqueue.W002",
                    )
                )
    return messages


@register(TAG)
def check_tasks(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """Whether tasks reach the queue, and safely (E005, E008, W003, W004, W007).

    That QUEUES names aliases which LOCALQUEUE has is the task backend's check (E009).
    """
    ours = {
        alias: entry
        for alias, entry in conf.tasks().items()
        if entry.get("BACKEND") in TASK_BACKENDS
    }
    messages: list[CheckMessage] = [
        Error(
            f"TASKS[{alias!r}]['BACKEND'] is {path!r}, which isn't there.",
            hint=f"Set it to '{TASK_BACKEND}'.",
            id="django_localqueue.E008",
        )
        for alias, entry in conf.tasks().items()
        if str(path := entry.get("BACKEND")).startswith("django_localqueue.")
        and path not in TASK_BACKENDS
    ]
    if ours and find_spec("django.tasks") is None:
        if find_spec("django_tasks") is None:
            hint = "Install it: pip install 'django-localqueue[tasks]', or use Django 6.0 or later."
            messages.append(_backport("is not installed", hint))
        elif not apps.is_installed("django_tasks"):
            messages.append(
                _backport("is not in INSTALLED_APPS", "Add 'django_tasks' to INSTALLED_APPS.")
            )
    for alias, entry in ours.items():
        where = f"TASKS[{alias!r}]"
        if "QUEUES" in entry and not entry["QUEUES"]:
            messages.append(
                Warning(
                    f"{where}['QUEUES'] is empty: a task may then name a queue that LOCALQUEUE"
                    " doesn't have.",
                    hint="Leave QUEUES out: it is then every alias of LOCALQUEUE.",
                    id="django_localqueue.W003",
                )
            )
        options = entry.get("OPTIONS") or {}
        at_once = not any(key in options for key in ("enqueue_on_commit", "outbox"))
        if at_once and (database := _atomic_requests()):
            messages.append(
                Warning(
                    f"DATABASES[{database!r}] has ATOMIC_REQUESTS, and {where} enqueues at once:"
                    " a worker may run a task before the request's transaction is committed, or"
                    " one that was rolled back.",
                    hint=f"Set 'enqueue_on_commit' in {where}['OPTIONS'] to True, or 'outbox' to"
                    " lose none between commit and enqueue; to False where at once is meant.",
                    id="django_localqueue.W004",
                )
            )
    if _tasks_are_possible() and conf.tasks_are_the_default():
        messages.append(
            Warning(
                "TASKS is Django's default, which runs tasks at once in the process that enqueues"
                " them: the worker has nothing to do.",
                hint=f"Set TASKS = {{'default': {{'BACKEND': '{TASK_BACKEND}'}}}}, or silence this"
                " check where only plain jobs are put.",
                id="django_localqueue.W007",
            )
        )
    return messages


@register(TAG)
def check_console(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """The console without the admin (W005)."""
    if not conf.console().auto_register or apps.is_installed("django.contrib.admin"):
        return []
    return [
        Warning(
            "The console of django_localqueue is on, and django.contrib.admin is not installed.",
            hint="Add 'django.contrib.admin' to INSTALLED_APPS, or set LOCALQUEUE_CONSOLE ="
            " {'AUTO_REGISTER': False}.",
            id="django_localqueue.W005",
        )
    ]


@register(TAG, deploy=True)
def check_deployment(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """A LOCATION that nobody chose (W008)."""
    return [
        Warning(
            f"LOCALQUEUE[{queue.alias!r}] has no LOCATION; its jobs are kept in"
            f" {os.fspath(queue.location)!r}.",
            hint="Set LOCATION to a folder that outlives a deploy: a release's own folder is"
            " replaced by the next one, and a container's disk must be a volume.",
            id="django_localqueue.W008",
        )
        for queue in _all()
        if queue.unset_location
    ]


@register(TAG, deploy=True)
def check_nodes(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """Nodes of an rqlite cluster that don't answer, or not as they should (W011)."""
    from django_localqueue.backends.rqlite import RqliteQueue

    messages: list[CheckMessage] = []
    seen: set[str] = set()
    for queue in _all():
        if queue.backend != conf.RQLITE_BACKEND or queue.problems:
            continue
        try:
            opened = RqliteQueue(queue.location, queue.name, **arguments(queue))
        except (InvalidInput, ImproperlyConfigured):
            continue  # E006 and E008 say so
        for node, error in () if opened.store_key in seen else opened.unreachable().items():
            messages.append(
                Warning(
                    f"LOCALQUEUE[{queue.alias!r}]['LOCATION']: a node can't be used. {error}",
                    hint=_node_mend(node, error),
                    id="django_localqueue.W011",
                )
            )
        seen.add(opened.store_key)
    return messages


def _node_mend(node: str, error: LocalQueueError) -> str:
    from django_localqueue.transports.errors import (
        AccessRefused,
        MissingExtra,
        NotRqlite,
        TlsFailed,
    )

    match error:
        case MissingExtra():
            return "Install it: pip install 'django-localqueue[rqlite]'."
        case AccessRefused():
            return (
                "Correct OPTIONS['auth'], or give that user the permissions 'execute' and 'query'"
                f" in the -auth file of rqlited at {node}."
            )
        case TlsFailed():
            return (
                "Correct OPTIONS['tls'] ('ca', 'cert', 'key'), or the certificate of rqlited at"
                f" {node}."
            )
        case NotRqlite():
            return f"Give the node's HTTP port (-http-adv-addr of rqlited) in place of {node}."
    return (
        f"Start rqlited at {node}, open its port to this machine, or take it out of LOCATION. The"
        " queue works as long as more than half of the nodes do."
    )


def register_those_of_tasks() -> None:
    """Have Django ask the task backends too (E009, E020, E021), where one of them is ours.

    It registers that check when ``django.tasks`` is imported, which ``check`` by itself doesn't
    do. The backport's app does it for its own.
    """
    ours = any(entry.get("BACKEND") in TASK_BACKENDS for entry in conf.tasks().values())
    if ours and find_spec("django.tasks") is not None:
        import_module("django.tasks.checks")


def _all() -> list[conf.QueueSettings]:
    return list(conf.queue_settings().values())


def _value_problems(queue: conf.QueueSettings) -> Iterator[conf.Problem]:
    """Let the backend look at each option by itself; nothing is opened."""
    where = f"LOCALQUEUE[{queue.alias!r}]"
    if any(problem.id == "E006" for problem in queue.problems):
        return
    try:
        backend = backend_class(queue)
        options = arguments(queue)
    except ImproperlyConfigured as error:
        yield conf.Problem("E008", str(error), "Correct the dotted path, or leave it out.")
        return
    make: Callable[..., BaseQueue] = backend
    if issubclass(backend, SQLiteQueue):
        make = partial(backend, lazy=True)
    else:
        from django_localqueue.backends.rqlite import RqliteQueue

        if not issubclass(backend, RqliteQueue):
            return  # what another backend takes shows when it is first used
    tries: list[tuple[str, dict[str, Any]]] = [("", {})]
    tries += [(f"['OPTIONS']['{key}']", {key: value}) for key, value in options.items()]
    for key, values in tries:
        try:
            make(queue.location, queue.name, **values)
        except InvalidInput as error:
            yield conf.Problem("E006", f"{where}{key}: {error}", "Correct the value.")
            if not key:
                return


def _handler_problems(queue: conf.QueueSettings) -> Iterator[conf.Problem]:
    if queue.handler is None:
        return
    where = f"LOCALQUEUE[{queue.alias!r}]['HANDLER'] is {queue.handler!r}"
    hint = "Give the dotted path of a function that takes a job."
    try:
        handler = import_string(queue.handler)
    except ImportError as error:
        yield conf.Problem("E008", f"{where}, which can't be imported: {error}.", hint)
        return
    if not callable(handler):
        yield conf.Problem("E008", f"{where}, which can't be called.", hint)


def _folders() -> Iterator[tuple[str, str, str]]:
    """Return each folder once: the first alias that has it, LOCATION as given, the real path."""
    seen = set()
    for queue in _all():
        location = queue.location
        if queue.backend == conf.RQLITE_BACKEND:
            continue
        if not isinstance(location, (str, os.PathLike)) or location == conf.IN_MEMORY:
            continue
        given = os.fspath(location)
        folder = os.path.realpath(given)
        if folder not in seen:
            seen.add(folder)
            yield queue.alias, given, folder


def _atomic_requests() -> str | None:
    for alias, database in conf.setting("DATABASES", {}).items():
        if database.get("ATOMIC_REQUESTS"):
            return str(alias)
    return None


def _tasks_are_possible() -> bool:
    return find_spec("django.tasks") is not None or apps.is_installed("django_tasks")


def _backport(state: str, hint: str) -> Error:
    return Error(
        f"TASKS uses {TASK_BACKEND}, this Django has no django.tasks, and the django-tasks"
        f" backport {state}.",
        hint=hint,
        id="django_localqueue.E005",
    )
