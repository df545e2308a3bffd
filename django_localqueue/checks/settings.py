"""Checks of the settings by themselves: keys, types, values, options without effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from django_localqueue import conf
from django_localqueue.backends.base import BaseQueue
from django_localqueue.backends.sqlite import SQLiteQueue
from django_localqueue.checks.common import TAG, Apps, every_queue
from django_localqueue.exceptions import InvalidInput
from django_localqueue.queues import arguments, backend_class


@register(TAG)
def check_keys(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """Unknown keys, wrong types and values, what can't be imported (E002, E003, E006, E008)."""
    problems = [problem for queue in every_queue() for problem in queue.problems]
    problems += conf.section_problems()
    for queue in every_queue():
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
        for queue in every_queue()
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
def check_options_without_effect(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """Options that the backend of the queue doesn't act on (W009)."""
    return [
        Warning(
            f"LOCALQUEUE[{queue.alias!r}]['OPTIONS']['{key}'] has no effect"
            f" on {queue.backend.rpartition('.')[2]}.",
            hint="Leave it out, or silence this check to keep it.",
            id="django_localqueue.W009",
        )
        for queue in every_queue()
        for key in queue.without_effect
    ]


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
    location, another = queue.location, "."
    if issubclass(backend, SQLiteQueue):
        make = partial(backend, lazy=True)
    else:
        from django_localqueue.backends.rqlite import RqliteQueue

        if not issubclass(backend, RqliteQueue):
            return  # what another backend takes shows when it is first used
        another = "http://127.0.0.1:4001"
    tries: list[tuple[str, dict[str, Any]]] = [("", {})]
    tries += [(f"['OPTIONS']['{key}']", {key: value}) for key, value in options.items()]
    for key, values in tries:
        try:
            make(location, queue.name, **values)
        except InvalidInput as error:
            yield conf.Problem("E006", f"{where}{key}: {error}", "Correct the value.")
            if not key:
                location = another  # with it the options can be looked at all the same
                try:
                    make(location, queue.name)
                except InvalidInput:
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
