"""Running what the worker command was asked for: one worker, or a supervisor of several."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.db import connections

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import InvalidInput
from django_localqueue.management.chores import project_chores
from django_localqueue.management.notify import Notifier
from django_localqueue.management.reload import Watch
from django_localqueue.worker import Summary, Worker
from django_localqueue.worker.board import Board
from django_localqueue.worker.executor import Executor
from django_localqueue.worker.health import Health, HealthFile, HealthServer
from django_localqueue.worker.lifecycle import TellingWorker
from django_localqueue.worker.limits import Limits
from django_localqueue.worker.names import default_name

logger = logging.getLogger("django_localqueue.worker")


@dataclass
class Plan:
    """What to run.

    ``values`` are the options by name, ``aliases`` those of ``queues``; ``in_turns`` says that
    an earlier queue doesn't come before a later one.
    """

    values: dict[str, Any]
    aliases: list[str]
    queues: list[BaseQueue]
    in_turns: bool
    executor: Executor
    limits: Limits
    heartbeat_interval: float
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
    watch = Watch(logger.info) if plan.values["reload"] else None
    return (_supervise if plan.supervised else _work)(plan, watch, on_start)


def _work(plan: Plan, watch: Watch | None, on_start: Callable[[], None]) -> End:
    changed: list[bool] = []

    def on_pulse(worker: Worker) -> None:
        health.stopping = worker.state == "stopping"
        notifier.pulse()
        if file is not None:
            file.touch()
        if watch is not None and worker.state != "stopping" and watch.changed():
            changed.append(True)
            worker.stop()

    worker = plan.worker(plan.name, on_pulse=on_pulse)
    health = Health(worker.alive_at, worker.answered_at)
    notifier = Notifier(health, os.environ)
    file = _file(plan, health)
    with contextlib.ExitStack() as stack:
        server = _server(plan, health)
        if server is not None:
            stack.enter_context(server.answering())
        if file is not None:
            stack.callback(file.remove)
        on_start()
        return End(worker.run(), bool(changed) and not worker.was_told)


def _supervise(plan: Plan, watch: Watch | None, on_start: Callable[[], None]) -> End:
    from django_localqueue.worker.supervisor import Supervisor  # one worker alone needs none

    changed: list[bool] = []

    def on_tick() -> None:
        health.stopping = supervisor.stopping
        notifier.pulse()
        if file is not None:
            file.touch()
        if watch is not None and not supervisor.stopping and watch.changed():
            changed.append(True)
            supervisor.stop()

    def make_worker(name: str, board: Board) -> Worker:
        return plan.worker(name, board=board)

    health = Health(lambda: supervisor.alive_at(), lambda: supervisor.answered_at())
    notifier = Notifier(health, os.environ)
    server = _server(plan, health)
    supervisor = Supervisor(
        make_worker,
        processes=plan.values["processes"],
        name=plan.name,
        queues=plan.queues,
        executor=plan.executor,
        slots=plan.values["threads"] * len(plan.stores),
        shutdown_timeout=plan.values["shutdown_timeout"],
        before_fork=connections.close_all,
        health=server,
        on_tick=on_tick,
    )
    file = _file(plan, health)
    with contextlib.ExitStack() as stack:
        if server is not None:
            stack.callback(server.close)
        if file is not None:
            stack.callback(file.remove)
        on_start()
        return End(supervisor.run(), bool(changed) and not supervisor.was_told)


def _refuse_a_taken_name(plan: Plan) -> None:
    names = {plan.name, *(f"{plan.name}/{n}" for n in range(1, plan.values["processes"] + 1))}
    for queue in plan.stores:
        for worker in queue.workers():
            if worker.name in names and worker.alive:
                raise InvalidInput(
                    f"A worker of the name {worker.name!r} is alive already, process"
                    f" {worker.pid} on {worker.host}; give this one another --name, or none."
                )


def _file(plan: Plan, health: Health) -> HealthFile | None:
    path = plan.values["health_file"]
    return None if path is None else HealthFile(Path(path), health)


def _server(plan: Plan, health: Health) -> HealthServer | None:
    port = plan.values["health_port"]
    if port is None:
        return None
    server = HealthServer(port, health)
    plan.health_port = server.port
    return server
