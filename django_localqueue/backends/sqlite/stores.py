"""The open stores of this process, and what becomes of them when it forks.

A process must open a file only once: POSIX drops all of its locks on a file when
any of its descriptors of it is closed.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from django_localqueue import _native, conf
from django_localqueue.conf import locations
from django_localqueue.exceptions import ForeignDatabase, InvalidInput, QueueClosed

if TYPE_CHECKING:
    from django_localqueue.backends.sqlite.queue import SQLiteQueue


class StoreOptions(NamedTuple):
    """How a store is opened: all its queues in one process must agree."""

    durability: str
    busy_timeout: float
    clock: _native.ManualClock | None


class StoreAddress(NamedTuple):
    """Where a store is. One in memory belongs to the process of its generation."""

    key: str
    in_memory: bool
    generation: int


class SharedStore:
    """An open store and the queues that use it. The last queue that closes, closes it.

    Queues hold it and this module only looks on, so a store whose queues were all
    dropped without being closed goes with them.
    """

    def __init__(self, key: str, options: StoreOptions, store: _native.Store) -> None:
        self.key = key
        self.options = options
        self.store = store
        self.queues: weakref.WeakSet[SQLiteQueue] = weakref.WeakSet()
        #: Somebody asked for a waiting call, or the next one, to end.
        self.interrupted = False


# Reentrant, for a signal handler that closes a queue while its thread holds the lock.
lock = threading.RLock()
_stores: weakref.WeakValueDictionary[str, SharedStore] = weakref.WeakValueDictionary()
_queues: weakref.WeakSet[SQLiteQueue] = weakref.WeakSet()
_generation = 0  # how many forks lie between this process and the first one
_inherited: list[SharedStore] = []
_numbers = itertools.count(1)


def address(path: object) -> StoreAddress:
    """Return where ``path`` leads; raises ``InvalidInput``."""
    if isinstance(path, str) and path.startswith(conf.IN_MEMORY):
        own = path == conf.IN_MEMORY
        return StoreAddress(f"{path}#{next(_numbers)}" if own else path, True, _generation)
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text or "\x00" in text:
        raise InvalidInput(
            f"path must be the path of a folder, as text or a pathlib.Path, and it is {path!r}."
        )
    return StoreAddress(os.path.realpath(text), False, _generation)


def join(queue: SQLiteQueue, where: StoreAddress, options: StoreOptions) -> SharedStore:
    """Return the store at ``where``, opened where it isn't yet, with ``queue`` among its users."""
    with lock:
        if where.in_memory and where.generation != _generation:
            raise QueueClosed(
                f"The queue {queue.name!r} is in the memory of the process that this one was"
                " forked from; make a new one here, or use a folder to share jobs."
            )
        shared = _stores.get(where.key)
        if shared is None:
            shared = _stores[where.key] = _open(where, options)
        elif shared.options != options:
            raise InvalidInput(
                f"The store {where.key} is open in this process with {_named(shared.options)}, and"
                f" {queue.name!r} asks for {_named(options)}; ask for the same, or close its other"
                " queues first."
            )
        shared.queues.add(queue)
        _queues.add(queue)
        return shared


def sent(queue: SQLiteQueue, options: StoreOptions) -> tuple[object, ...]:
    """Return how ``queue`` is pickled: in another process it opens the store when it is used.

    Raises ``TypeError`` where its store or its clock is in the memory of this process.
    """
    key = queue.store_key
    if key.startswith(conf.IN_MEMORY) or options.clock is not None:
        raise TypeError(
            f"{queue!r} can't go to another process: its store or its clock is in the memory of"
            " this one."
        )
    names = (
        *("lease_seconds", "max_retries", "max_payload_bytes", "retention_seconds"),
        *("serializer", "max_running", "rate"),
    )
    given = {name: getattr(queue, name) for name in names}
    given |= {"durability": options.durability, "busy_timeout": options.busy_timeout, "lazy": True}
    return _received, (type(queue), key, queue.name, given)


def _received(kind: type[SQLiteQueue], key: str, name: str, given: dict[str, Any]) -> SQLiteQueue:
    return kind(key, name, **given)


def leave(queue: SQLiteQueue, shared: SharedStore) -> None:
    """Take ``queue`` from the users of its store; without users it is closed."""
    with lock:
        _queues.discard(queue)
        shared.queues.discard(queue)
        if not shared.queues:
            _stores.pop(shared.key, None)
            shared.store.close()


def _open(where: StoreAddress, options: StoreOptions) -> SharedStore:
    if not where.in_memory:
        _refuse_a_file_of_django(where.key)
    store = _native.Store(
        None if where.in_memory else where.key,
        durability="normal" if options.durability == "normal" else "full",
        busy_timeout=options.busy_timeout,
        clock=options.clock,
    )
    return SharedStore(where.key, options, store)


def _named(options: StoreOptions) -> str:
    clock = "the machine's clock" if options.clock is None else "a clock of its own"
    return f"durability {options.durability!r}, busy_timeout {options.busy_timeout:g} and {clock}"


def _refuse_a_file_of_django(folder: str) -> None:
    file = os.path.join(folder, conf.FILE_NAME)
    for path, alias in locations.database_files().items():
        if path == os.path.realpath(file) or _is_one_file(path, file):
            raise ForeignDatabase(
                f"{file} is also the database {alias!r} of DATABASES, and two SQLite libraries in"
                " one process drop each other's locks. Give the queue a folder of its own."
            )


def _is_one_file(one: str, other: str) -> bool:
    # By stat alone: opening the file to look at it would cost its owner the locks.
    try:
        return os.path.samestat(os.stat(one), os.stat(other))
    except OSError:
        return False


def _before_fork() -> None:
    lock.acquire()
    _native.before_fork()


def _after_fork_in_parent() -> None:
    _native.after_fork()
    lock.release()


def _after_fork_in_child() -> None:
    """Forget the parent's stores: they are kept, and neither used nor closed here."""
    global lock, _stores, _generation
    _native.after_fork()
    _generation += 1
    _inherited.extend(_stores.values())
    _stores = weakref.WeakValueDictionary()
    lock = threading.RLock()
    for queue in list(_queues):
        queue._forget_store()
    _queues.clear()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
