"""What the worker command takes from the project: its queues, and the code that runs jobs."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import InvalidInput
from django_localqueue.queues import queues
from django_localqueue.types import JobFilter, State
from django_localqueue.worker import Handler
from django_localqueue.worker.django import DjangoExecutor

#: Waiting jobs of a queue and a state that are looked at when a worker starts.
NEXT = 100


def choose_queues(wanted: list[str], excluded: list[str]) -> tuple[list[str], bool]:
    """Return the aliases to serve, and whether in turns instead of in this order.

    Raises:
        InvalidInput: an alias is not one of LOCALQUEUE, or none is left.
    """
    known = list(queues)
    for alias in (*wanted, *excluded):
        if alias not in known and alias != "*":
            raise InvalidInput(
                f"There is no queue {alias!r} in LOCALQUEUE; it has {', '.join(known)}."
            )
    all_of_them = not wanted or "*" in wanted
    chosen = [
        alias
        for alias in (known if all_of_them else dict.fromkeys(wanted))
        if alias not in excluded
    ]
    if not known:
        raise InvalidInput("LOCALQUEUE has no queue; add one, for instance 'default'.")
    if not chosen:
        raise InvalidInput("No queue is left to serve; exclude fewer.")
    return chosen, all_of_them


def import_code(aliases: list[str], discover: Callable[[str], None]) -> DjangoExecutor:
    """Import tasks and handlers now: a broken deploy must not make dead letters.

    Args:
        aliases: of the queues whose handlers are needed.
        discover: imports a module of each installed app.

    Raises ``ImproperlyConfigured``.
    """
    if has_tasks():
        try:
            discover("tasks")
        except Exception as error:
            raise ImproperlyConfigured(
                f"{_broken_module(error)} can't be imported: {error!r}. With --traceback more is"
                " shown."
            ) from error
    handlers: dict[str, Handler] = {}
    for alias in aliases:
        path = queues.settings(alias).handler
        if path is None:
            continue
        try:
            handlers[alias] = import_string(path)
        except ImportError as error:
            raise ImproperlyConfigured(
                f"LOCALQUEUE[{alias!r}]['HANDLER'] is {path!r}, which can't be imported: {error}."
            ) from error
    if not has_tasks():
        return DjangoExecutor(None, _by_store(handlers))
    from django_localqueue import tasks
    from django_localqueue.tasks.compat import task_backends

    # What a task's own policy says of an error; without one it fails at once.
    settle_error = getattr(tasks, "settle_error", None)
    return DjangoExecutor(tasks.run_task, _by_store(handlers), settle_error, shared=[task_backends])


def unknown_tasks(served: Iterable[BaseQueue]) -> list[str]:
    """Return what to say of waiting jobs whose tasks this code doesn't have; they would fail.

    Of each queue the jobs that are next are looked at, ``NEXT`` ready and as many delayed ones.
    """
    if not has_tasks():
        return []
    from django_localqueue.tasks.runner import called_task

    said = []
    waiting: tuple[State, ...] = ("ready", "delayed")
    for queue in served:
        unknown: set[str] = set()
        for state in waiting:
            for job in queue.list(JobFilter(state), limit=NEXT).records:
                if job.task is None or job.task in unknown:
                    continue
                try:
                    called_task(job)
                except Exception:  # what its module raises too
                    unknown.add(job.task)
        if unknown:
            said.append(
                f"Jobs that wait in the queue {queue.name!r} call tasks that this code doesn't"
                f" have, and fail when they are run: {', '.join(sorted(unknown))}. Deploy the"
                " tasks, or say in moved_tasks of TASKS where they are now."
            )
    return said


def _broken_module(error: Exception) -> str:
    """Return the tasks module that raised this, with the line where that is known."""
    names = {f"{app.name}.tasks" for app in apps.get_app_configs()}
    frames = [
        f"{name}, line {line},"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if (name := frame.f_globals.get("__name__")) in names
    ]
    return frames[-1] if frames else "The tasks module of an installed app"


def has_tasks() -> bool:
    """Whether this project can have tasks."""
    return find_spec("django.tasks") is not None or find_spec("django_tasks") is not None


def _by_store(handlers: Mapping[str, Handler]) -> dict[tuple[str, str], Handler]:
    stored: dict[str, BaseQueue] = {alias: queues[alias] for alias in handlers}
    return {(stored[a].store_key, stored[a].name): handler for a, handler in handlers.items()}
