"""The actions of ``localqueue`` on queues and jobs."""

from __future__ import annotations

import argparse
import contextlib
import time as clock
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from django_localqueue.backends.base import BaseQueue
from django_localqueue.backends.rqlite import RqliteQueue
from django_localqueue.exceptions import InvalidInput
from django_localqueue.management.arguments import add_action, argument_type
from django_localqueue.management.output import NotFound, Output, time
from django_localqueue.queues import queues
from django_localqueue.records import WorkerRecord
from django_localqueue.types import MICROSECONDS, Action, JobFilter, JobRecord
from django_localqueue.worker.options import Number, Whole

Options = dict[str, Any]


def add_parsers(actions: Any) -> None:
    """Add a parser for each action."""
    parser = add_action(actions, "stats", stats, "Count the jobs of queues by state.")
    _queues(parser)
    parser.add_argument("--watch", type=argument_type(Number(positive=True)), metavar="SECONDS")

    parser = add_action(
        actions, "failed", failed, "List, show, retry, discard or purge dead letters."
    )
    parser.add_argument("what", choices=("list", "show", "retry", "discard", "purge"))
    parser.add_argument("ids", nargs="*", metavar="ID")
    parser.add_argument("--queue", default="default", metavar="ALIAS")
    parser.add_argument("--all", action="store_true", help="All that match, without an id.")
    parser.add_argument("--task")
    parser.add_argument("--error-class")
    parser.add_argument("--text", help="In error, task or id.")
    parser.add_argument("--limit", type=argument_type(Whole(1, 1_000)), default=50)
    parser.add_argument("--dry-run", action="store_true", help="Say how many, and do nothing.")

    parser = add_action(actions, "purge", purge, "Remove finished jobs by age.")
    _queues(parser)
    parser.add_argument(
        "--older-than", type=argument_type(Number()), required=True, metavar="SECONDS"
    )
    parser.add_argument("--state", choices=("acked", "failed"), default="acked")
    parser.add_argument("--dry-run", action="store_true", help="Say how many, and do nothing.")

    for name, text in (("pause", "Deliver nothing from queues."), ("resume", "Deliver again.")):
        parser = add_action(actions, name, pause_or_resume, text)
        parser.add_argument("queues", nargs="+", metavar="ALIAS")

    parser = add_action(actions, "check", check, "Check stores, and that workers live; 1 if not.")
    _queues(parser)
    parser.add_argument("--worker", metavar="NAME", help="This worker, or its processes, live.")
    parser.add_argument(
        "--max-age",
        type=argument_type(Number(positive=True)),
        metavar="SECONDS",
        help="How old the last report of that worker may be, by default 60. Without --worker:"
        " each queue has a live worker that reported since.",
    )

    parser = add_action(actions, "backup", backup, "Copy a store while it is in use.")
    parser.add_argument("path")
    parser.add_argument("--queue", default="default", metavar="ALIAS")

    parser = add_action(
        actions,
        "adopt",
        adopt,
        "Move the messages that wait in the tables of RqliteTransport into a queue of the same"
        " cluster, once each. May be interrupted and run again.",
    )
    parser.add_argument("queue", nargs="?", default="default", help='An alias; "default".')


def stats(out: Output, options: Options) -> None:
    """Count jobs."""
    _count(out, options)
    if options["watch"]:
        with contextlib.suppress(KeyboardInterrupt):  # how it is meant to end
            while True:
                clock.sleep(options["watch"])
                _count(out, options)


def _count(out: Output, options: Options) -> None:
    rows = []
    for alias in _aliases(options):
        queue = queues[alias]
        found = queue.stats()
        waits = None
        if found.oldest_ready_at is not None:
            waits = round((queue.now() - found.oldest_ready_at) / MICROSECONDS, 1)
        counts = {key: found[key] for key in found if key != "oldest_ready_at"}
        rows.append({"queue": alias, **counts, "oldest_ready_seconds": waits})
    out.table(rows, "There are no queues.")


def failed(out: Output, options: Options) -> None:
    """Look after dead letters."""
    queue, what = queues[options["queue"]], options["what"]
    ids = tuple(options["ids"])
    filter = JobFilter(
        task=options["task"],
        error_class=options["error_class"],
        text=options["text"],
        ids=ids or None,
    )
    if what == "list":
        records = queue.list(filter, limit=options["limit"]).records
        missing = set(ids) - {record.id for record in records}
        if missing and len(ids) <= options["limit"]:
            raise NotFound(
                f"The queue {queue.name!r} has no dead letter {', '.join(sorted(missing))};"
                " another queue is named by --queue."
            )
        out.table([_row(record) for record in records], "There are no dead letters.")
    elif what == "show":
        if not ids:
            raise InvalidInput("failed show needs the ids of jobs.")
        for id in ids:
            _show(out, queue, id)
    else:
        _act(out, queue, cast("Action", what), filter, options)


def _act(
    out: Output, queue: BaseQueue, action: Action, filter: JobFilter, options: Options
) -> None:
    if filter.ids is None and not options["all"]:
        raise InvalidInput(f"failed {action} needs ids, or --all for all that match.")
    if options["dry_run"]:
        count = queue.count(filter, cap=10_000_000)
        out.say(f"{count} jobs match; nothing was done.", matching=count)
        return
    done = queue.apply(action, filter)
    out.say(
        f"{action}: {done.done} done, {done.changed} changed meanwhile,"
        f" {done.not_found} not found.",
        done=done.done,
        changed=done.changed,
        not_found=done.not_found,
        more=done.more,
    )
    if done.not_found and not done.done:
        raise NotFound("None of these jobs is there.")


def purge(out: Output, options: Options) -> None:
    """Remove finished jobs."""
    total = 0
    for alias in _aliases(options):
        queue = queues[alias]
        until = queue.now() - round(options["older_than"] * MICROSECONDS)
        filter = JobFilter(state=options["state"], until=until)
        if options["dry_run"]:
            total += queue.count(filter, cap=10_000_000)
        else:
            total += queue.apply("purge", filter, limit=100_000_000).done
    if options["dry_run"]:
        out.say(f"{total} jobs match; nothing was removed.", matching=total)
    else:
        out.say(f"Removed {total} jobs.", removed=total)


def pause_or_resume(out: Output, options: Options) -> None:
    """Pause or resume queues."""
    chosen = [queues[alias] for alias in options["queues"]]
    for queue in chosen:
        queue.pause() if options["action"] == "pause" else queue.resume()
    done = "Paused" if options["action"] == "pause" else "Resumed"
    out.say(f"{done} {', '.join(options['queues'])}.", **{done.lower(): options["queues"]})


def check(out: Output, options: Options) -> bool:
    """Check stores and workers; return whether all is well."""
    faults: list[str] = []
    aliases, name, max_age = _aliases(options), options["worker"], options["max_age"]
    workers: list[tuple[WorkerRecord, str | None]] = []
    served: set[tuple[str, str]] = set()
    for queue in _stores(aliases):
        look = getattr(queue, "check", None)
        faults += look() if look is not None else []
        for one in queue.workers():
            fault = _fault_of(one, queue.now(), max_age or 60)
            workers.append((one, fault))
            if fault is None:
                served |= {(queue.store_key, of_one) for of_one in one.queues}
    if name is not None:
        of_name = [found for found in workers if found[0].name.partition("/")[0] == name]
        of_name = of_name or [found for found in workers if found[0].name == name]
        if not of_name:
            faults.append(f"There is no worker {name!r}.")
        faults += [fault for _, fault in of_name if fault is not None]
    elif max_age is not None:
        faults += [
            f"No live worker serves the queue {alias!r}."
            for alias in aliases
            if (queues[alias].store_key, queues[alias].name) not in served
        ]
    well = not faults
    out.say("\n".join(faults) or "All is well.", well=well, faults=faults)
    return well


def _fault_of(worker: WorkerRecord, now: int, max_age: float) -> str | None:
    age = (now - worker.seen_at) / MICROSECONDS
    if worker.alive is False:
        return f"The worker {worker.name} is dead."
    if age > max_age:
        return f"The worker {worker.name} was last seen {age:.0f} seconds ago."
    return None


def backup(out: Output, options: Options) -> None:
    """Copy a store."""
    queue = queues[options["queue"]]
    copy = getattr(queue, "backup", None)
    if copy is None:
        raise InvalidInput(f"{type(queue).__name__} can't make a backup.")
    copy(Path(options["path"]))
    out.say(f"Copied {queue.store_key} to {options['path']}.", path=options["path"])


def adopt(out: Output, options: Options) -> None:
    """Move the transport's messages into a queue."""
    alias = options["queue"]
    queue = queues[alias]
    if not isinstance(queue, RqliteQueue):
        raise InvalidInput(
            f"The queue {alias!r} is not on rqlite; adopt moves messages within one cluster."
            " Name an alias whose BACKEND is RqliteQueue."
        )
    adopted = queue.adopt()
    text = f"Moved {adopted.moved} messages into the queue {alias!r}."
    if adopted.left:
        text += (
            f"\nLeft {adopted.left} messages of groups that are in flight: run this again when"
            " the workers of the transport have ended."
        )
    out.say(text, moved=adopted.moved, left=adopted.left)


def _show(out: Output, queue: BaseQueue, id: str) -> None:
    record = queue.lookup(id)
    if record is None:
        raise NotFound(f"The queue {queue.name!r} has no job {id!r}.")
    row = _row(record)
    row["payload"] = record.payload.decode("utf-8", "replace")
    row["traceback"] = record.error.traceback if record.error else None
    row["history"] = [
        f"{attempt.number} {attempt.outcome} {time(attempt.ended_at)} by {attempt.worker}"
        for attempt in record.history
    ]
    lines = [
        f"{key}: {value if not isinstance(value, list) else '; '.join(value)}"
        for key, value in row.items()
    ]
    out.say("\n".join(lines), **row)


def _row(record: JobRecord) -> dict[str, Any]:
    error = record.error
    return {
        "id": record.id,
        "task": record.task,
        "reason": record.reason,
        "error": error.error_class if error else None,
        "message": error.message if error else None,
        "attempts": record.attempts,
        "finished": time(record.finished_at),
    }


def _aliases(options: Options) -> list[str]:
    return options["queues"] or list(queues)


def _stores(aliases: Sequence[str]) -> list[BaseQueue]:
    return list({queue.store_key: queue for queue in map(queues.__getitem__, aliases)}.values())


def _queues(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("queues", nargs="*", metavar="ALIAS", help="Default: every queue.")
