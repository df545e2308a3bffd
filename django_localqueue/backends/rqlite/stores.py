"""The clusters that this process uses, and what wakes those who wait for a job of one."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django_localqueue.backends.rqlite import creation
from django_localqueue.backends.rqlite.statements import forget
from django_localqueue.exceptions import InvalidInput, LocalQueueError, NotStored, OutcomeUnknown
from django_localqueue.transports.answers import Result
from django_localqueue.transports.client import RqliteClient
from django_localqueue.transports.cluster import Timeouts
from django_localqueue.transports.nodes import parse_location
from django_localqueue.transports.statements import Statement
from django_localqueue.transports.tls import Tls

#: One write of so many also forgets old operations.
FORGETTING = 64

#: A clock returns wall time and lease time, in microseconds.
Clock = Callable[[], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How a cluster is reached: all its queues in one process must agree."""

    nodes: tuple[str, ...]
    auth: tuple[str, str] | None = field(repr=False)
    tls: Tls
    timeouts: Timeouts
    clock: Clock | None


class SharedStore:
    """A cluster and the queues of this process that use it.

    Threads may share it. ``turn`` is where taking turns between queues goes on; ``busy`` says
    that the last claim found something, so the next need not look first; ``promoted`` is when
    claims last promoted what was due, and ``pruned`` how far it was pruned, by queue.
    """

    def __init__(self, key: str, options: StoreOptions) -> None:
        self.key = key
        self.options = options
        self.client = RqliteClient(
            options.nodes,
            auth=options.auth,
            tls=options.tls,
            timeouts=options.timeouts,
            user="RqliteQueue",
        )
        self.turn = 0
        self.busy = False
        self.interrupted = False
        self.promoted: dict[str, tuple[int, int]] = {}
        self.pruned: dict[str, tuple[int, int]] = {}
        self._writes = 0
        self.bell = Bell()
        self._prepared = False
        self._preparing = threading.Lock()

    def times(self) -> tuple[int, int]:
        """Return wall time and lease time: the leader's clock, but for a test's."""
        if self.options.clock is not None:
            return self.options.clock()
        now = self.client.run(self.client.clock.now())
        return now, now

    def execute(self, statements: Sequence[Statement], guard: str = "") -> tuple[Result, ...]:
        """Apply writes that may be applied twice; sent again until their outcome is known.

        ``guard`` as ``Cluster.execute`` takes it.
        """
        return self._write(partial(self.client.execute, guard=guard), statements)

    def request(self, statements: Sequence[Statement]) -> tuple[Result, ...]:
        """As ``execute``, with reads among the writes; each statement costs more."""
        return self._write(self.client.request, statements)

    def _write(
        self, send: Callable[..., tuple[Result, ...]], statements: Sequence[Statement]
    ) -> tuple[Result, ...]:
        self._prepare()
        self._writes += 1
        if self._writes % FORGETTING:
            return send(statements, repeatable=True)
        return send([*statements, forget(self.times()[0])], repeatable=True)[:-1]

    def read(self, statements: Sequence[Statement]) -> tuple[Result, ...]:
        """Read on the leader; nothing enters the Raft log."""
        self._prepare()
        return self.client.query(statements, level="weak")

    def read_after_a_write(self, statements: Sequence[Statement]) -> tuple[Result, ...]:
        """Read what an earlier write did, from no leader that was deposed meanwhile.

        Raises ``OutcomeUnknown`` where it can't be read.
        """
        with after_a_write():
            return self.client.query(statements, level="linearizable")

    def after_fork(self) -> None:
        """Forget who holds the locks: they are threads of the parent."""
        self.bell = Bell()
        self._preparing = threading.Lock()

    def _prepare(self) -> None:
        if self._prepared:
            return
        with self._preparing:
            if not self._prepared:
                self.client.run(creation.prepare(self.client.cluster))
                self._prepared = True


class Bell:
    """Rung when something may have become claimable; nobody who looks at it misses a ring."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._rings = 0

    def rings(self) -> int:
        """Return how often it has rung."""
        return self._rings

    def ring(self) -> None:
        """Wake all who wait."""
        with self._condition:
            self._rings += 1
            self._condition.notify_all()

    def wait(self, seen: int, seconds: float) -> None:
        """Wait until it has rung more than ``seen`` times, ``seconds`` at most."""
        with self._condition:
            self._condition.wait_for(lambda: self._rings != seen, seconds)


# Reentrant, for a signal handler that closes a queue while its thread holds the lock.
lock = threading.RLock()
_stores: weakref.WeakValueDictionary[str, SharedStore] = weakref.WeakValueDictionary()
_users: weakref.WeakKeyDictionary[SharedStore, weakref.WeakSet[Any]] = weakref.WeakKeyDictionary()


def address(
    location: str | Sequence[str], auth: tuple[str, str] | None
) -> tuple[str, StoreOptions]:
    """Return the key of the cluster, without credentials, and the nodes and login of its options.

    Raises ``InvalidInput``, never showing a password.
    """
    if not isinstance(location, str) and not (
        isinstance(location, Sequence) and all(isinstance(url, str) for url in location)
    ):
        raise InvalidInput("location must be the URL of an rqlite node, or a list of them.")
    nodes, login = parse_location(location, auth)
    urls = tuple(sorted(node.url for node in nodes.all))
    pair = None if login is None else (login.user, login.password)
    return " ".join(urls), StoreOptions(
        tuple(node.url for node in nodes.all), pair, Tls(), Timeouts(), None
    )


@contextlib.contextmanager
def after_a_write() -> Iterator[None]:
    """What fails in here is no proof that nothing was done: a write was sent before."""
    try:
        yield
    except NotStored as error:
        raise OutcomeUnknown(f"{error} What was sent before may have been applied.") from error


def unreachable(options: StoreOptions) -> dict[str, LocalQueueError]:
    """Ask each node by itself, whoever leads; return those that don't answer, and why."""
    brief = Timeouts(connect=1.0, read=2.0, total=3.0)
    found: dict[str, LocalQueueError] = {}
    for url in options.nodes:
        try:
            client = RqliteClient(url, auth=options.auth, tls=options.tls, timeouts=brief)
            with contextlib.closing(client):
                client.query([["SELECT 1"]], level="none")
        except LocalQueueError as error:
            found[url] = error
    return found


def join(user: object, key: str, options: StoreOptions) -> SharedStore:
    """Return the store of ``key``, made where it isn't yet, with ``user`` among its users."""
    with lock:
        shared = _stores.get(key)
        if shared is None:
            shared = _stores[key] = SharedStore(key, options)
            _users[shared] = weakref.WeakSet()
        elif _agreed(shared.options) != _agreed(options):
            raise InvalidInput(
                f"The cluster {key} is in use in this process with other auth, tls, timeouts or"
                " clock; ask for the same, or close its other queues first."
            )
        _users[shared].add(user)
        return shared


def leave(user: object, shared: SharedStore) -> None:
    """Take ``user`` from the users of its store; without users its connections are closed."""
    with lock:
        _users[shared].discard(user)
        if not _users[shared]:
            _stores.pop(shared.key, None)
            shared.client.close()


def _agreed(options: StoreOptions) -> tuple[Any, ...]:
    return options.auth, options.tls, options.timeouts, options.clock


def _after_fork_in_child() -> None:
    global lock
    lock = threading.RLock()
    for shared in list(_stores.values()):
        shared.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
