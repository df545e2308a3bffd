"""Running what the worker command was asked for: one worker, or a supervisor of several."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.db import connections

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import InvalidInput
from django_localqueue.management.chores import project_chores
from django_localqueue.worker import Summary, Worker
from django_localqueue.worker.executor import Executor
from django_localqueue.worker.lifecycle import TellingWorker
from django_localqueue.worker.limits import Limits
from django_localqueue.worker.names import default_name

if TYPE_CHECKING:
    from django_localqueue.management.reload import Watch
    from django_localqueue.management.vitals import Vitals
    from django_localqueue.worker.board import Board

logger = logging.getLogger("django_localqueue.worker")


@dataclass
class Plan:
    """What to run.

    ``values`` are the options by name, ``aliases`` those of ``queues``; ``in_turns`` says that
    an earlier queue doesn't come before a later one; ``warnings`` are to be told at the start.
    """

    values: dict[str, Any]
    aliases: list[str]
    queues: list[BaseQueue]
    in_turns: bool
    executor: Executor
    limits: Limits
    heartbeat_interval: float
    warnings: list[str]
    name: str = ""
    health_port: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.name = self.values["name"] or default_name()

    @property
    def stores(self) -> list[BaseQueue]:
        """A queue of each store."""
        return list({queue.store_key: queue for queue in self.queues}.values())

    @property
    def supervised(self) -> bool:
        """Whether workers run in processes of their own."""
        return bool(self.values["processes"] > 1 or self.values["job_timeout"] > 0)

    def worker(self, name: str, **more: Any) -> Worker:
        """Return a worker as planned."""
        return TellingWorker(
            self.queues,
            self.executor,
            self.heartbeat_interval,
            threads=self.values["threads"],
            burst=self.values["burst"],
            round_robin=self.in_turns,
            lease_seconds=self.values["lease"],
            shutdown_timeout=self.values["shutdown_timeout"],
            name=name,
            limits=self.limits,
            job_timeout=self.values["job_timeout"] or None,
            chores=project_chores(self.queues),
            **more,
        )


@dataclass(frozen=True)
class End:
    """What was done, and whether the command shall start anew."""

    summary: Summary
    starts_anew: bool = False


def run(plan: Plan, on_start: Callable[[], None]) -> End:
    """Run as planned; ``on_start`` is called once everything is at hand.

    Raises ``OSError`` where the health port or file can't be had, ``InvalidInput`` where
    another live worker has the name.
    """
    _refuse_a_taken_name(plan)
    return (_supervise if plan.supervised else _work)(plan, _Watched(plan), on_start)


def _work(plan: Plan, watched: _Watched, on_start: Callable[[], None]) -> End:
    def on_pulse(worker: Worker) -> None:
        if watched.pulse(worker.state == "stopping"):
            worker.stop()

    worker = plan.worker(plan.name, on_pulse=on_pulse)
    with watched.by(worker.alive_at, worker.answered_at) as vitals, contextlib.ExitStack() as stack:
        if vitals is not None:
            stack.enter_context(vitals.answering())
        on_start()
        return End(worker.run(), watched.changed and not worker.was_told)


def _supervise(plan: Plan, watched: _Watched, on_start: Callable[[], None]) -> End:
    from django_localqueue.worker.supervisor import Supervisor  # one worker alone needs none

    def on_tick() -> None:
        if watched.pulse(supervisor.stopping):
            supervisor.stop()

    def make_worker(name: str, board: Board) -> Worker:
        return plan.worker(name, board=board)

    with watched.by(lambda: supervisor.alive_at(), lambda: supervisor.answered_at()) as vitals:
        supervisor = Supervisor(
            make_worker,
            processes=plan.values["processes"],
            name=plan.name,
            queues=plan.queues,
            executor=plan.executor,
            slots=plan.values["threads"] * len(plan.stores),
            shutdown_timeout=plan.values["shutdown_timeout"],
            before_fork=connections.close_all,
            health=None if vitals is None else vitals.server,
            on_tick=on_tick,
        )
        on_start()
        return End(supervisor.run(), watched.changed and not supervisor.was_told)


class _Watched:
    """Whoever watches a worker or a supervisor, and the code that may change beneath it.

    What is not asked for is not imported: an idle worker is to be small.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._vitals: Vitals | None = None
        self._code: Watch | None = None
        #: Whether the code changed, so that the command shall start anew.
        self.changed = False
        if plan.values["reload"]:
            from django_localqueue.management.reload import Watch

            self._code = Watch(logger.info)

    @contextlib.contextmanager
    def by(
        self, alive_at: Callable[[], float], answered_at: Callable[[], float]
    ) -> Iterator[Vitals | None]:
        """Have the health told while the block runs, where somebody wants to know."""
        file, port = self._plan.values["health_file"], self._plan.values["health_port"]
        if file is None and port is None and not os.environ.get("NOTIFY_SOCKET"):
            yield None
            return
        from django_localqueue.management.vitals import Vitals

        vitals = Vitals(alive_at, answered_at, file=file, port=port, environ=os.environ)
        self._vitals = vitals
        if vitals.server is not None:
            self._plan.health_port = vitals.server.port
        try:
            yield vitals
        finally:
            vitals.close()

    def pulse(self, stopping: bool) -> bool:
        """Tell what is new; return whether to stop, for the code has changed."""
        if self._vitals is not None:
            self._vitals.pulse(stopping)
        if stopping or self._code is None or not self._code.changed():
            return False
        self.changed = True
        return True


def _refuse_a_taken_name(plan: Plan) -> None:
    names = {plan.name, *(f"{plan.name}/{n}" for n in range(1, plan.values["processes"] + 1))}
    for queue in plan.stores:
        for worker in queue.workers():
            if worker.name in names and worker.alive:
                raise InvalidInput(
                    f"A worker of the name {worker.name!r} is alive already, process"
                    f" {worker.pid} on {worker.host}; give this one another --name, or none."
                )
