"""``queues``: from an alias of the LOCALQUEUE setting to its queue."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from django_localqueue import conf
from django_localqueue.backends.base import BaseQueue
from django_localqueue.conf import locations
from django_localqueue.exceptions import InvalidInput, UnknownQueue


class QueueHandler:
    """The queues of LOCALQUEUE by alias, opened when first asked for.

    Unlike Django's connections they are not one a thread: a queue may be used by
    all threads of the process. Where LOCALQUEUE is overridden, or a test run begins,
    the queues that are open are closed and opened anew from what the settings then say.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._open: dict[str, BaseQueue] = {}
        self._inherited: dict[str, BaseQueue] = {}
        self._in_test_run = False
        self._generation = itertools.count()
        self._memory = self._new_memory()

    def __getitem__(self, alias: str) -> BaseQueue:
        """Return the queue of this alias.

        Raises:
            UnknownQueue: LOCALQUEUE has no such alias.
            ImproperlyConfigured: what LOCALQUEUE says of it can't be.
            StoreUnavailable: its store can't be opened.
        """
        queue = self._open.get(alias)
        if queue is not None and self._in_test_run == locations.in_test_run():
            return queue
        with self._lock:
            if self._in_test_run != locations.in_test_run():
                self.close_all()
                self._in_test_run = locations.in_test_run()
            queue = self._open.get(alias)
            if queue is None:
                queue = self._open[alias] = self._build(alias)
            return queue

    def __iter__(self) -> Iterator[str]:
        return iter(conf.queue_settings())

    def __contains__(self, alias: object) -> bool:
        return alias in conf.queue_settings()

    def __len__(self) -> int:
        return len(conf.queue_settings())

    def all(self) -> list[BaseQueue]:
        """Return the queue of every alias, in the order of the setting."""
        return [self[alias] for alias in self]

    def close_all(self) -> None:
        """Close the queues that are open; the next use of an alias opens it again.

        Queues in memory are gone with what they hold.
        """
        with self._lock:
            opened = list(self._open.values())
            self._open.clear()
            self._memory = self._new_memory()
            for queue in opened:
                queue.close()

    def settings(self, alias: str) -> conf.QueueSettings:
        """Return what LOCALQUEUE says of this alias; raises ``UnknownQueue``."""
        known = conf.queue_settings()
        if alias not in known:
            raise UnknownQueue(
                f"LOCALQUEUE has no queue {alias!r}; it has"
                f" {', '.join(repr(name) for name in known) or 'none'}. Add it to LOCALQUEUE, or"
                " use one of these."
            )
        return known[alias]

    def _build(self, alias: str) -> BaseQueue:
        settings = self.settings(alias)
        for problem in settings.problems:
            raise ImproperlyConfigured(f"{problem.message} {problem.hint}")
        location = locations.location_for(settings)
        if location == conf.IN_MEMORY:
            # In memory as elsewhere, aliases of one LOCATION share one store.
            location = f"{self._memory}:{locations.shown_store(settings)}"
            settings = locations.in_memory(settings)
        # Each backend has a constructor of its own: location, name, and its options.
        backend: Callable[..., BaseQueue] = backend_class(settings)
        try:
            return backend(location, locations.name_for(settings), **arguments(settings))
        except InvalidInput as error:
            raise ImproperlyConfigured(f"LOCALQUEUE[{alias!r}]: {error}") from error

    def _new_memory(self) -> str:
        return f"{conf.IN_MEMORY}{next(self._generation)}"

    def _after_fork_in_child(self) -> None:
        # A queue in memory can't be used in a child, so the child gets new ones. The
        # parent's are kept: their stores must not be closed here.
        self._lock = threading.RLock()
        self._inherited = self._open
        self._open = {}
        self._memory = self._new_memory()


def backend_class(settings: conf.QueueSettings) -> type[BaseQueue]:
    """Return the class of a queue's BACKEND; raises ``ImproperlyConfigured``."""
    where = f"LOCALQUEUE[{settings.alias!r}]['BACKEND']"
    try:
        backend = import_string(settings.backend)
    except ImportError as error:
        raise ImproperlyConfigured(
            f"{where} is {settings.backend!r}, which can't be imported: {error}."
        ) from error
    if not (isinstance(backend, type) and issubclass(backend, BaseQueue)):
        raise ImproperlyConfigured(f"{where} is {settings.backend!r}, which is not a queue class.")
    return backend


def arguments(settings: conf.QueueSettings) -> dict[str, Any]:
    """Return OPTIONS as the backend's arguments, the serializer imported."""
    options = dict(settings.options)
    serializer = options.get("serializer")
    if isinstance(serializer, str):
        try:
            found = import_string(serializer)
        except ImportError as error:
            raise ImproperlyConfigured(
                f"LOCALQUEUE[{settings.alias!r}]['OPTIONS']['serializer'] is {serializer!r}, which"
                f" can't be imported: {error}."
            ) from error
        options["serializer"] = found() if isinstance(found, type) else found
    return options


queues = QueueHandler()

os.register_at_fork(after_in_child=queues._after_fork_in_child)


def _follow(*, setting: str, **_: Any) -> None:
    if setting in ("LOCALQUEUE", "BASE_DIR"):
        queues.close_all()


setting_changed.connect(_follow, dispatch_uid="django_localqueue.queues")
