"""The demo: ``make demo``, or ``python -m testproject.demo`` with ``--help`` for its options.

Every file under a folder becomes a job; worker processes read and index the files until
the queue is empty; broken files end as dead letters. Then the site is served with a worker
beside it, so that a retry in the console runs.

Each run starts with an empty queue: jobs and dead letters of the run before are removed.
The catalogue stays and is read anew; files that are no longer there leave it. A second demo
on the same state folder is refused while the first, or a worker of its, lives.

With ``--store rqlite`` the queue is on three rqlite nodes, which are started for the run and
end with it. Kill one and look: the jobs go on.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from testproject.nodes import COUNT, Nodes, find_rqlited
from testproject.processes import INTERRUPTS, DemoError, Lock, Workers
from testproject.progress import Counts, Progress
from testproject.state import BASE_DIR, STATE

if TYPE_CHECKING:
    from django_localqueue import JobRecord

BATCH = 500
LOOK_SECONDS = 0.1
#: The users, and the group of ``django_localqueue.console.permissions.ROLES`` that each is in.
USERS = {
    "viewer": "Queue viewer",
    "operator": "Queue operator",
    "developer": "Queue developer",
}
ADMIN = "admin"  # may do everything


def main(argv: list[str] | None = None) -> int:
    """Run the demo; returns the exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    options = _options(argv)
    for number in INTERRUPTS:
        signal.signal(number, signal.default_int_handler)
    os.environ["DJANGO_SETTINGS_MODULE"] = "testproject.settings"
    try:
        return _run(options)
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; everything that was started has ended.", file=sys.stderr)
        return 130


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m testproject.demo", description=__doc__)
    parser.add_argument("--dir", default="", help="the folder; default: the standard library's")
    parser.add_argument("--serve", default="1", help="0: end after the summary")
    parser.add_argument("--store", default="sqlite", choices=["sqlite", "rqlite"])
    parser.add_argument("--processes", type=int, default=2, help="worker processes")
    parser.add_argument("--threads", type=int, default=2, help="threads of each")
    options = parser.parse_args(argv)
    options.standard = not options.dir
    options.folder = Path(options.dir or sysconfig.get_path("stdlib")).expanduser().resolve()
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is not a folder; name one with DIR= or --dir")
    if options.serve not in ("", "0", "1"):
        parser.error(f"--serve takes 0 or 1, and it is {options.serve!r}")
    if not (1 <= options.processes <= 64 and 1 <= options.threads <= 64):
        parser.error("--processes and --threads take 1 to 64")
    return options


def _run(options: argparse.Namespace) -> int:
    import django

    os.environ.pop("DEMO_RQLITE", None)
    program = find_rqlited() if options.store == "rqlite" else None
    with ExitStack() as stack:
        lock = stack.enter_context(Lock(STATE))
        shutil.rmtree(STATE / "queue", ignore_errors=True)
        nodes = None
        if program is not None:
            nodes = stack.enter_context(Nodes(program, STATE, lock))
            os.environ["DEMO_RQLITE"] = ",".join(nodes.urls)
            print(f"The queue is on three rqlite nodes: {', '.join(nodes.urls)}", flush=True)
        workers = stack.enter_context(Workers(BASE_DIR, STATE, lock))
        django.setup()
        from django_localqueue import LocalQueueError, queues

        try:
            password = _prepare()
            started = time.monotonic()
            files = _enqueue(options.folder, options.standard, STATE)
            counts = _work(workers, options.processes, options.threads, nodes)
            _summary(options.folder, files, counts, time.monotonic() - started)
            if options.serve != "0":
                _serve(workers, options.threads, password, nodes)
        except LocalQueueError as error:
            raise DemoError(f"the queue can't be used: {error}") from error
        finally:
            workers.stop()
            queues.close_all()
    return 0


def _prepare() -> str:
    """Bring the database up to date and return the new password of the demo's users."""
    from django.contrib.auth import get_user_model
    from django.contrib.auth.models import Group, Permission
    from django.core.management import call_command

    from django_localqueue.console.permissions import ROLES

    call_command("migrate", verbosity=0, interactive=False)
    password = secrets.token_urlsafe(12)
    for name, role in {ADMIN: None, **USERS}.items():
        user, _ = get_user_model().objects.update_or_create(
            username=name,
            defaults={"is_staff": True, "is_superuser": role is None, "is_active": True},
        )
        user.set_password(password)
        user.save()
        user.user_permissions.clear()
        if role is not None:
            group, _ = Group.objects.get_or_create(name=role)
            group.permissions.set(
                Permission.objects.filter(
                    content_type__app_label="django_localqueue", codename__in=ROLES[role]
                )
                | Permission.objects.filter(
                    content_type__app_label="catalogue", codename="view_file"
                )
            )
            user.groups.set([group])
    return password


def _files(folder: Path, standard: bool, state: Path) -> Iterator[str]:
    """Yield the path of everything under a folder that is not a folder itself."""
    skipped = {"__pycache__", "site-packages"} if standard else set()

    def unreadable(error: OSError) -> None:
        print(f"demo: this folder is left out: {error}", file=sys.stderr)

    for place, folders, names in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(
            name
            for name in folders
            if name not in skipped and os.path.join(place, name) != str(state)
        )
        for name in sorted(names):
            yield os.path.join(place, name)


def _enqueue(folder: Path, standard: bool, state: Path) -> int:
    """Put a job for each file, in batches; returns how many."""
    from testproject.catalogue.models import File
    from testproject.catalogue.tasks import enqueue_many, index_file, shown_path

    seen: set[str] = set()
    batch: list[list[object]] = []
    for path in _files(folder, standard, state):
        seen.add(shown_path(path))
        batch.append([path])
        if len(batch) == BATCH:
            enqueue_many(index_file, batch)
            batch = []
    enqueue_many(index_file, batch)
    known = File.objects.filter(archive=None).values_list("pk", "path")
    for gone in [pk for pk, path in known.iterator() if path not in seen]:
        File.objects.filter(pk=gone).delete()
    return len(seen)


def _counts() -> Counts:
    from django.conf import settings

    from django_localqueue import queues

    return Counts.of([queues[alias].stats() for alias in settings.LOCALQUEUE])


def _work(workers: Workers, processes: int, threads: int, nodes: Nodes | None) -> Counts:
    """Run workers until no job is left, showing how far they are; returns the final counts.

    Where a worker was killed, its jobs are run by others once their leases have run out.
    """
    progress = Progress(sys.stderr)
    counts = _counts()
    done_before = -1
    while counts.left:
        if not workers.running() and counts.claimable:
            workers.check_progress(counts.done > done_before)
            done_before = counts.done
            for number in range(processes):
                workers.start(f"worker-{number + 1}", "--burst", "--threads", str(threads))
        progress.show(counts)
        _tell_of_ended(nodes)
        time.sleep(LOOK_SECONDS)
        counts = _counts()
    progress.end(counts)
    workers.wait()
    return counts


def _tell_of_ended(nodes: Nodes | None) -> None:
    """Say which nodes have ended: the queue goes on while two of the three run."""
    if nodes is None:
        return
    for url in nodes.ended():
        print(f"\nThe node {url} has ended; {nodes.running} of {COUNT} run.", file=sys.stderr)


def _summary(folder: Path, files: int, counts: Counts, seconds: float) -> None:
    from django.db.models import Count, Sum
    from django.template.defaultfilters import filesizeformat

    from testproject.catalogue.models import File

    totals = File.objects.aggregate(
        files=Count("pk"), bytes=Sum("size", default=0), words=Sum("word_count", default=0)
    )
    rate = counts.done / seconds
    print(f"\n{folder}")
    print(f"  files       {files:,}, and {counts.done - files:,} more in archives")
    print(f"  seconds     {seconds:.1f}")
    print(f"  jobs        {counts.done:,}, {rate:,.0f} a second")
    print(f"  stats       {counts.acked:,} acked, {counts.failed:,} failed, {counts.left} left")
    print(
        f"  catalogue   {totals['files']:,} files, {totals['words']:,} words,"
        f" {filesizeformat(totals['bytes'])}".replace("\xa0", " ")
    )
    _dead_letters(counts.failed)


def _dead_letters(total: int) -> None:
    """Print the dead letters by reason and class of error, with one file of each."""
    from testproject.catalogue.tasks import file_of

    groups: dict[tuple[str, str], list[JobRecord]] = {}
    for record in _failed_jobs():
        kind = record.error.error_class if record.error else ""
        groups.setdefault((record.reason or "", kind), []).append(record)
    print(f"  dead letters {total:,}")
    for (reason, kind), records in sorted(groups.items(), key=lambda item: -len(item[1])):
        print(f"    {len(records):>6,}  {reason}  {kind or '-'}  as {file_of(records[0].id)}")


def _failed_jobs() -> Iterator[JobRecord]:
    from django.conf import settings

    from django_localqueue import JobFilter, queues

    for alias in settings.LOCALQUEUE:
        after = None
        while True:
            page = queues[alias].list(JobFilter(state="failed"), limit=1_000, after=after)
            yield from page.records
            if page.next is None:
                break
            after = page.next


def _serve(workers: Workers, threads: int, password: str, nodes: Nodes | None) -> None:
    """Serve the site on a free loopback port with a worker beside it, until Ctrl-C."""
    from django.contrib.staticfiles.handlers import StaticFilesHandler
    from django.core.handlers.wsgi import WSGIHandler
    from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler

    server = ThreadedWSGIServer(("127.0.0.1", 0), WSGIRequestHandler)
    server.daemon_threads = True
    server.set_app(StaticFilesHandler(WSGIHandler()))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    site = f"http://127.0.0.1:{server.server_address[1]}"
    workers.start("worker", "--threads", str(threads))
    print(f"\nSearch   {site}/\nConsole  {site}/admin/")
    print(f"Login    {', '.join(USERS)} or {ADMIN}\nPassword {password}")
    print("\nA worker runs beside the site. Ctrl-C ends both.", flush=True)
    try:
        while True:
            time.sleep(1)
            _tell_of_ended(nodes)
            if not workers.running():
                print("The worker has ended; here is another.", file=sys.stderr)
                workers.start("worker", "--threads", str(threads))
    except KeyboardInterrupt:
        print("\nEnding.", file=sys.stderr)
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    sys.exit(main())
