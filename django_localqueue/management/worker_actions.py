"""The actions of ``localqueue`` on workers and schedules."""

from __future__ import annotations

from typing import Any

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import InvalidInput
from django_localqueue.management.arguments import add_action
from django_localqueue.management.code import has_tasks
from django_localqueue.management.output import NotFound, Output, time
from django_localqueue.queues import queues
from django_localqueue.records import WorkerRecord
from django_localqueue.types import MICROSECONDS

Options = dict[str, Any]


def add_parsers(actions: Any) -> None:
    """Add a parser for each action."""
    parser = add_action(
        actions, "workers", workers, "List workers; make one quiet, resume or stop it."
    )
    parser.add_argument("what", nargs="?", default="list", choices=("list", *COMMANDS))
    parser.add_argument("names", nargs="*", metavar="NAME")

    parser = add_action(actions, "schedule", schedule, "List schedules; run, pause or resume one.")
    parser.add_argument("what", nargs="?", default="list", choices=("list", "run", *PAUSES))
    parser.add_argument("names", nargs="*", metavar="NAME")


COMMANDS = ("quiet", "resume", "stop")
PAUSES = ("pause", "resume")


def workers(out: Output, options: Options) -> None:
    """List workers, or tell them something."""
    what, names = options["what"], options["names"]
    if what == "list":
        rows = [_row(worker, queue) for queue in _stores() for worker in queue.workers()]
        out.table(rows, "There are no workers.")
        return
    if not names:
        raise InvalidInput(f"workers {what} needs the names of workers.")
    for name in names:
        found = [queue.command_worker(name, what) for queue in _stores()]
        if not any(found):
            raise NotFound(f"There is no worker {name!r}.")
    out.say(f"Asked {', '.join(names)} to {_said(what)}.", asked=names, command=what)


def schedule(out: Output, options: Options) -> None:
    """List schedules, or do something with them."""
    if not has_tasks():
        raise InvalidInput("Schedules need Django 6, or django-localqueue[tasks].")
    from django_localqueue.schedules import acts

    what, names = options["what"], options["names"]
    if what == "list":
        rows = [
            {
                "name": record.name,
                "expression": record.expression,
                "timezone": record.timezone,
                "task": record.task,
                "queue": record.queue,
                "paused": record.paused,
                "next": time(record.next_at),
                "last": time(record.last_at),
                "last_id": record.last_id,
            }
            for _, record in acts.stored()
        ]
        out.table(rows, "There are no schedules: a worker stores those of the code it runs.")
        return
    if not names:
        raise InvalidInput(f"schedule {what} needs the names of schedules.")
    done: dict[str, Any] = {}
    for name in names:
        try:
            acts.find(name)
        except InvalidInput as error:
            raise NotFound(str(error)) from error
        if what == "run":
            done[name] = acts.run_now(name)
        elif what == "pause":
            acts.pause(name)
            done[name] = "paused"
        else:
            done[name] = time(acts.resume(name))
    said = {"run": "put the job", "pause": "is", "resume": "is due next at"}[what]
    out.say("\n".join(f"{name} {said} {result}" for name, result in done.items()), **done)


def _row(worker: WorkerRecord, queue: BaseQueue) -> dict[str, Any]:
    now = queue.now()
    return {
        "name": worker.name,
        "host": worker.host,
        "pid": worker.pid,
        "state": worker.state,
        "alive": worker.alive,
        "seen_seconds": round((now - worker.seen_at) / MICROSECONDS, 1),
        "queues": list(worker.queues),
        "running": [job.task or job.id for job in worker.running],
        "concurrency": worker.concurrency,
        **worker.counts,
        "rss_mib": round(worker.rss / (1 << 20), 1),
    }


def _said(command: str) -> str:
    return {"quiet": "be quiet", "resume": "go on", "stop": "stop"}[command]


def _stores() -> list[BaseQueue]:
    return list({queue.store_key: queue for queue in queues.all()}.values())
