"""Checks of what LOCATION names: folders, nodes of a cluster, and what survives there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import ImproperlyConfigured

from django_localqueue import conf, folders
from django_localqueue.checks.common import FILES_TAG, TAG, Apps, every_queue
from django_localqueue.conf import locations
from django_localqueue.exceptions import InvalidInput, LocalQueueError
from django_localqueue.queues import arguments


@register(TAG)
def check_durability(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """Jobs that a power cut may lose, in production (W006, W010)."""
    if conf.setting("DEBUG"):
        return []
    messages: list[CheckMessage] = []
    for queue in every_queue():
        if queue.location == conf.IN_MEMORY:
            if not locations.in_test_run():
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
    databases = locations.database_files()
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
        for queue in every_queue()
        if queue.unset_location
    ]


@register(TAG, deploy=True)
def check_nodes(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """Nodes of an rqlite cluster that don't answer, or not as they should (W011)."""
    from django_localqueue.backends.rqlite import RqliteQueue

    messages: list[CheckMessage] = []
    seen: set[str] = set()
    for queue in every_queue():
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


def _folders() -> Iterator[tuple[str, str, str]]:
    """Return each folder once: the first alias that has it, LOCATION as given, the real path."""
    seen = set()
    for queue in every_queue():
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
