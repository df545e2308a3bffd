"""How long the console's pages take with a million jobs in each state.

``python -m benchmarks.console [--rows 1000000] [--retry 100000]`` makes a store on SQLite, asks
for each page as a logged-in superuser, without a network, and prints the median and the worst of
several answers; then it retries many jobs at once through the console, while a worker in another
process goes on. It exits with 1 if a page took longer than ``--limit`` milliseconds.

``python -m benchmarks.console --peers [--rows 100000]`` measures pages that the admins of
django-tasks-db and django-q2 have too, on as many rows in each state, 100 rows a page, one after
the other on this machine, and prints a table; see ``benchmarks.admins``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import admins, environment

BASE = "/admin/django_localqueue"
#: Blocked jobs wait behind this many leads.
GROUPS = 1_000
KINDS = ("ready", "delayed", "failed", "acked", "grouped", "processing")
PAGES = {
    "index": "/admin/",
    "overview": f"{BASE}/queue/",
    "overview, week": f"{BASE}/queue/?span=week",
    "queue": f"{BASE}/queue/default/change/",
    "dead letters": f"{BASE}/job/?state=failed",
    "ready": f"{BASE}/job/?state=ready",
    "delayed": f"{BASE}/job/?state=delayed",
    "blocked": f"{BASE}/job/?state=blocked",
    "processing": f"{BASE}/job/?state=processing",
    "acked": f"{BASE}/job/?state=acked",
    "errors": f"{BASE}/job/errors/",
    "tasks": f"{BASE}/job/tasks/",
    "failed in a task": f"{BASE}/job/?state=failed&error=ValueError",
    "workers": f"{BASE}/worker/",
    "schedules": f"{BASE}/schedule/",
}
#: What is compared with other admins; ``benchmarks.admins`` has their addresses.
COMPARED = {
    "failed": f"{BASE}/job/?state=failed&per=100",
    "waiting": f"{BASE}/job/?state=ready&per=100",
    "done": f"{BASE}/job/?state=acked&per=100",
    "page 100 of failed": f"{BASE}/job/?state=failed&per=100&after={{after}}",
    "search in failed": f"{BASE}/job/?state=failed&per=100&text=such",
    "a failed job": f"{BASE}/job/default_2F{{id}}/change/",
}
#: Takes jobs and acks them until it is ended; then prints how many, and the slowest in seconds.
WORKER = """
import signal, sys, time
from django_localqueue import SimpleQueue
from django_localqueue.exceptions import Empty
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
queue = SimpleQueue(sys.argv[1], durability="normal")
done, worst = 0, 0.0
print("ready", flush=True)
try:
    while True:
        began = time.monotonic()
        try:
            queue.ack(queue.get(timeout=1))
        except Empty:
            continue
        done += 1
        worst = max(worst, time.monotonic() - began)
finally:
    print(done, worst, flush=True)
"""


def fill(store: Path, rows: int, kinds: Sequence[str] = KINDS) -> None:
    """Make a store with so many jobs in each state; the groups of failures as the engine counts."""
    import sqlite3

    from benchmarks.fill import fill as fill_states

    fill_states(store.parent, dict.fromkeys(kinds, rows), groups=GROUPS)
    db = sqlite3.connect(store / "localqueue.db", isolation_level=None)
    db.execute("BEGIN")
    db.execute(
        "INSERT INTO failures(queue, err_class, place, task, total, first_at, last_at)"
        " SELECT queue, coalesce(err_class, ''), coalesce(err_place, ''), coalesce(task, ''),"
        " count(*), min(at), max(at) FROM messages WHERE state = 5 GROUP BY 1, 2, 3, 4"
    )
    db.execute("UPDATE messages SET failure = (SELECT id FROM failures) WHERE state = 5")
    db.execute(
        "INSERT INTO failure_counts SELECT failure, at / 300000000, count(*) FROM messages"
        " WHERE failure IS NOT NULL GROUP BY 1, 2"
    )
    db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def set_up(store: Path) -> Any:
    """Configure Django on that store; return a client that is logged in."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    import django
    from django.conf import settings

    django.setup()
    from django.core.management import call_command
    from django.test import Client

    settings.LOCALQUEUE = {"default": {"LOCATION": store, "OPTIONS": {"durability": "normal"}}}
    settings.ALLOWED_HOSTS = ["*"]
    call_command("migrate", verbosity=0)
    from django.contrib.auth.models import User

    client = Client()
    client.force_login(User.objects.create_superuser("operator"))
    return client


def measure(client: Any, address: str, rounds: int) -> tuple[float, float]:
    """Return median and worst milliseconds of a page, the first answer left out."""
    times = []
    for number in range(rounds + 1):
        began = time.perf_counter()
        response = client.get(address)
        took = 1_000 * (time.perf_counter() - began)
        assert response.status_code == 200, (address, response.status_code)
        if number:
            times.append(took)
    return statistics.median(times), max(times)


def retry(client: Any, store: Path, number: int) -> str:
    """Retry so many jobs through the console beside a worker; say how long what took."""
    from django_localqueue import queues
    from tests.unit.test_console.tools import Page

    failed = queues["default"].stats().failed
    command = [sys.executable, "-c", WORKER, str(store)]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    worker.stdout.readline()
    act = f"{BASE}/job/act/"
    fields: dict[str, Any] = {
        "act": "retry-all",
        "filter": "state=failed",
        "state": "failed",
        "as_of": str(time.time_ns() // 1_000),
        "confirmed": "1",
    }
    began = time.perf_counter()
    longest, requests, done = 0.0, 0, 0
    while True:
        asked = time.perf_counter()
        response = client.post(act, fields)
        longest = max(longest, time.perf_counter() - asked)
        requests += 1
        if response.status_code != 200 or done >= number:
            break
        done = response.context_data["act"].total.done
        fields = Page(response.content.decode()).fields
        fields.pop("csrfmiddlewaretoken", None)
    took = time.perf_counter() - began
    number = failed - queues["default"].stats().failed
    worker.terminate()
    acked, worst = worker.communicate(timeout=60)[0].split()[-2:]
    return (
        f"retry of {number}: {took:.1f} s in {requests} requests, the longest {longest:.1f} s;"
        f" beside it a worker acked {acked} jobs, the slowest in {1_000 * float(worst):.0f} ms"
    )


def compare(rows: int, rounds: int) -> None:
    """Print a table of our pages and those of other admins, on the same rows."""
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        fill(store, rows, ("ready", "failed", "acked", "processing"))
        client = set_up(store)
        from django_localqueue import queues

        after, id = None, ""
        for _ in range(99):  # pages of 100 are behind page 100
            page = queues["default"].list(limit=100, after=after)
            after, id = page.next, page.records[0].id
        assert after is not None, "--peers needs 10,000 rows at least"
        found["here"] = {
            name: list(
                measure(client, address.format(after=f"{after[0]}-{after[1]}", id=id), rounds)
            )
            for name, address in COMPARED.items()
        }
        queues.close_all()
    for peer in admins.FILLS:
        with tempfile.TemporaryDirectory() as folder:
            python = environment.peers_python(environment.ADMIN_PEERS)
            command = [python, admins.__file__, peer, f"{folder}/db.sqlite3"]
            done = subprocess.run(
                [*command, str(rows), str(rounds)], stdout=subprocess.PIPE, text=True, check=True
            )
            found[peer] = json.loads(done.stdout)
    print(f"| {rows:,} rows in each state | {' | '.join(found)} |")
    print(f"| --- {'| ---: ' * len(found)}|")
    for name in [*COMPARED, "all"]:
        cells = [f"{one[name][0]:,.0f} ms" if name in one else "-" for one in found.values()]
        print(f"| {name} | {' | '.join(cells)} |")


def main() -> int:
    """Run it; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--retry", type=int, default=100_000)
    parser.add_argument("--limit", type=float, default=200.0, help="milliseconds a page may take")
    parser.add_argument("--peers", action="store_true", help="compare with other admins instead")
    options = parser.parse_args()
    if options.peers:
        compare(options.rows, options.rounds)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        fill(store, options.rows)
        client = set_up(store)
        slow = []
        for name, address in PAGES.items():
            median, worst = measure(client, address, options.rounds)
            print(f"{name:<18} {median:8.1f} ms  worst {worst:8.1f} ms", flush=True)
            if median > options.limit:
                slow.append(name)
        if options.retry:
            print(retry(client, store, options.retry), flush=True)
    if slow:
        print(f"Slower than {options.limit} ms: {', '.join(slow)}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
