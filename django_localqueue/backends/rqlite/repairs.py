"""Changing jobs from outside: retry, cancel, discard, purge, reclaim."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from django_localqueue.backends.arguments import Act, microseconds
from django_localqueue.backends.rqlite import changes, counts, fast, listing, statements
from django_localqueue.backends.rqlite.stores import SharedStore
from django_localqueue.transports.errors import GuardFailed
from django_localqueue.types import Applied, JobFilter

#: Jobs that one request changes.
BATCH = 500


def act_on_one(shared: SharedStore, queue: str, id: str, act: str) -> bool | None:
    """Retry or cancel a job; return whether that did anything, None if it isn't there."""
    public = listing.public_id(id)
    if public is None:
        return None
    now, _ = shared.times()
    op = statements.operation(now)
    results = shared.request(changes.act_on_one(op, now, queue, public, act))
    if not results[-1].rows:
        return None
    shared.bell.ring()
    return bool(results[-1].rows[0][1] != "none")


@dataclass(frozen=True, slots=True)
class _Plan:
    """What to do to which jobs of a queue."""

    queue: str
    verb: str
    filter: JobFilter
    as_of: int
    due: int
    target: str


def apply(
    shared: SharedStore, queue: str, act: Act, filter: JobFilter, as_of: int, limit: int
) -> Applied:
    """Do one thing to every job that matches, in requests of ``BATCH`` jobs."""
    verb = act.action
    if verb == "cancel":
        verb = "stop" if filter.state == "processing" else "cancelled"
    elif verb == "discard":
        verb = "discarded"
    if filter.state != "delayed":  # that is in the order of the due times
        until = as_of if filter.until is None else min(filter.until, as_of)
        filter = replace(filter, until=until)
    if verb == "purge" and filter.state == "acked":
        counts.roll_up(shared, queue)
    plan = _Plan(queue, verb, filter, as_of, shared.times()[0] + act.delay, act.target)
    if filter.ids is None:
        return _apply_to_all(shared, plan, limit)
    ids = filter.ids[:limit]
    total = Applied(more=len(ids) < len(filter.ids))
    for start in range(0, len(ids), BATCH):
        chunk = ids[start : start + BATCH]
        done, found = _act_on_many(shared, plan, chunk)
        total = replace(
            total,
            done=total.done + done,
            changed=total.changed + found - done,
            not_found=total.not_found + len(chunk) - found,
        )
    return total


def _apply_to_all(shared: SharedStore, plan: _Plan, limit: int) -> Applied:
    done = 0
    after: tuple[int, int] | None = None
    while done < limit:
        batch = min(BATCH, limit - done)
        rows, after = listing.read_page(shared, plan.queue, plan.filter, after, batch)
        if rows:
            ids = [str(row.id) if row.job_id is None else row.job_id for row in rows]
            done += _act_on_many(shared, plan, ids)[0]
        if after is None:
            break
    return Applied(done=done, more=after is not None)


def _act_on_many(shared: SharedStore, plan: _Plan, ids: Sequence[str]) -> tuple[int, int]:
    """Act on the jobs of these ids that match; return how many those are, and how many exist."""
    named = [public for id in ids if (public := listing.public_id(id)) is not None]
    now, _ = shared.times()
    op = statements.operation(now)
    where = listing.named(plan.filter, now, as_of=plan.as_of)
    results = shared.request(
        changes.act_on_many(op, now, plan.queue, named, plan.verb, where, plan.due, plan.target)
    )
    shared.bell.ring()
    matching, _, found = results[-1].rows[0]
    return len(json.loads(matching)), cast("int", found)


def purge(
    shared: SharedStore, queue: str, older_than: float, kinds: Sequence[str], limit: int | None
) -> int:
    """Remove jobs of these kinds that finished so many seconds ago, up to ``limit``."""
    before = shared.times()[0] - microseconds(older_than, "older_than")
    if "acked" in kinds:
        counts.roll_up(shared, queue)
    total = 0
    for kind in kinds:
        while limit is None or total < limit:
            batch = BATCH if limit is None else min(BATCH, limit - total)
            now, _ = shared.times()
            op = statements.operation(now)
            request = changes.purge(op, now, queue, kind, before, batch)
            done = len(json.loads(shared.request(request)[-1].rows[0][0]))
            total += done
            if done < batch:
                break
    return total


def prune(shared: SharedStore, queue: str, retention: float | None, limit: int) -> int:
    """Remove up to ``limit`` acked or discarded jobs whose retention is over; return how many.

    What to remove is read first: reading stays out of the Raft log. Jobs with a retention of
    their own are passed over once, not each time.
    """
    total = 0
    counts.roll_up(shared, queue)
    while total < limit:
        batch = min(BATCH, limit - total)
        now, _ = shared.times()
        (found,) = shared.read(changes.kept(queue, now, batch))
        _remove(shared, [row[0] for row in found.rows])
        total += len(found.rows)
        if len(found.rows) < batch:
            break
    if retention is None:
        return total
    before = shared.times()[0] - microseconds(retention, "retention_seconds")
    after = _pruned(shared, queue, before)
    while total < limit:
        batch = min(BATCH, limit - total)
        (found,) = shared.read(changes.acked(queue, before, after, batch))
        keys = [key for key, _, plain in found.rows if plain]
        _remove(shared, keys)
        total += len(keys)
        if found.rows:
            after = found.rows[-1][1], found.rows[-1][0]
        if len(found.rows) < batch:
            break
    shared.pruned[queue] = after
    return total + purge(shared, queue, retention, ("discarded",), limit - total)


def has_leftovers(shared: SharedStore, queue: str, retention: float | None) -> bool:
    """Tell whether ``prune`` or ``reclaim`` may find a job, by reads alone."""
    now, boot = shared.times()
    looks = [*changes.lapsed(queue, boot), *changes.kept(queue, now, 1)]
    if retention is not None:
        before = now - microseconds(retention, "retention_seconds")
        looks += changes.acked(queue, before, _pruned(shared, queue, before), 1)
        looks += changes.discarded(queue, before)
    return any(found.rows for found in shared.read(looks))


def _pruned(shared: SharedStore, queue: str, before: int) -> tuple[int, int]:
    """Return how far the queue was pruned; its beginning where that is later than ``before``."""
    at, key = shared.pruned.get(queue, (-1, 0))
    return (-1, 0) if at > before else (at, key)


def _remove(shared: SharedStore, keys: Sequence[int]) -> None:
    if keys:
        now, _ = shared.times()
        shared.execute(changes.remove(statements.operation(now), now, keys))


def edit(shared: SharedStore, queue: str, id: str, payload: str) -> bool | None:
    """Give a job another payload; return whether that was done, None if it isn't there."""
    public = listing.public_id(id)
    if public is None:
        return None
    now, _ = shared.times()
    op = statements.operation(now)
    results = shared.request(changes.edit(op, now, queue, public, payload))
    return bool(results[-1].rows[0][1] == "edit") if results[-1].rows else None


def set_paused(shared: SharedStore, queue: str, paused: bool) -> None:
    """Stop or resume delivery."""
    now, _ = shared.times()
    op = statements.operation(now)
    with contextlib.suppress(GuardFailed):  # then an earlier copy did it
        shared.execute(changes.set_paused(op, now, queue, paused), fast.GUARD)


def reclaim(
    shared: SharedStore, queue: str, max_retries: int, dead_worker: str | None = None
) -> int:
    """Give back every job whose lease ran out, or that a dead worker holds; return how many."""
    total = 0
    while True:
        now, boot = shared.times()
        op = statements.operation(now)
        if dead_worker is None:
            request = changes.reclaim(op, now, boot, queue, max_retries)
        else:
            request = changes.take_back(op, now, queue, max_retries, dead_worker)
        done = len(json.loads(shared.request(request)[-1].rows[0][0]))
        total += done
        if done < statements.PROMOTIONS:
            if total:
                shared.bell.ring()
            return total
