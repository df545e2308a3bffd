"""``manage.py runqueueworker``: gets jobs from the queues and runs them.

Exit codes: 0 after a clean end; 1 where running jobs were given back unfinished; 2 for
a fault of usage or configuration; 3 where a store can't be used; 4 with --burst
--fail-on-error where a job became a dead letter.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import django
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser, SystemCheckError
from django.utils.module_loading import autodiscover_modules, import_string

from django_localqueue import conf
from django_localqueue.backends.arguments import seconds, whole
from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import InvalidInput, LocalQueueError
from django_localqueue.queues import queues
from django_localqueue.worker import Handler, Summary, Worker
from django_localqueue.worker.django import DjangoExecutor, TaskRunner

USAGE = 2
FORCED = 1
JOBS_FAILED = 4
LEVELS = {0: logging.WARNING, 1: logging.INFO}
PREFIX = "LOCALQUEUE_"
TRUE = ("1", "true", "yes", "on")
FALSE = ("", "0", "false", "no", "off")


def seconds_from(value: str) -> float:
    """Return a number of seconds, 0 or more; for argparse."""
    try:
        return seconds(float(value), "it")
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{value!r} is not a number of seconds: {error}") from None


def threads_from(value: str) -> int:
    """Return a number of threads; for argparse."""
    try:
        return whole(int(value), "it", 1, 1_000)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{value!r} is not a number of threads: {error}") from None


class Command(BaseCommand):
    """See the module."""

    help = (
        "Gets jobs from the queues of LOCALQUEUE and runs them: tasks, and plain jobs with their"
        " queue's HANDLER. The first TERM or INT claims no more jobs and finishes those that run;"
        " a second one, a second or more later, or QUIT, gives them back to be run elsewhere."
        " Every option but --verbosity may also stand in the environment, as LOCALQUEUE_ and its"
        " name in capitals (LOCALQUEUE_THREADS=8); what it may hold of them LOCALQUEUE_WORKER"
        " sets in the settings. An option comes before the environment, and that before settings."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--queue",
            action="append",
            metavar="ALIAS",
            help="A queue to serve; may be repeated or a list with commas. An earlier one is"
            " emptied before a later one is looked at. '*', or no --queue at all, serves every"
            " queue of LOCALQUEUE, in turns.",
        )
        parser.add_argument(
            "--exclude-queue",
            action="append",
            metavar="ALIAS",
            help="A queue not to serve; may be repeated or a list with commas.",
        )
        parser.add_argument(
            "--threads",
            type=threads_from,
            help="How many jobs of one store run at a time. Default: 4.",
        )
        parser.add_argument(
            "--burst",
            action="store_true",
            default=None,
            help="End when no job is ready or running in these queues.",
        )
        parser.add_argument(
            "--fail-on-error",
            action="store_true",
            default=None,
            help="With --burst: exit code 4 if a job became a dead letter.",
        )
        parser.add_argument(
            "--lease",
            type=seconds_from,
            help="Seconds that a job belongs to this worker unless renewed, which it does."
            " Default: the queue's lease_seconds.",
        )
        parser.add_argument(
            "--shutdown-timeout",
            type=seconds_from,
            help="Seconds that running jobs have to finish after TERM or INT; then they are given"
            " back. Default: 30.",
        )
        parser.add_argument(
            "--name",
            help="The worker's name, kept with each attempt. Default: host:pid:random.",
        )

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except SystemCheckError as error:
            error.returncode = USAGE
            raise

    def handle(self, *args: Any, **options: Any) -> None:
        settings = conf.worker()
        options = _with_environment(options)
        aliases, in_turns = choose_queues(
            _names(options["queue"]) or list(settings.queues), _names(options["exclude_queue"])
        )
        try:
            handlers = self._import_code(aliases)
            served = [queues[alias] for alias in aliases]
            for queue in served:
                queue.stats()
        except (ImproperlyConfigured, InvalidInput) as error:
            raise CommandError(str(error), returncode=USAGE) from error
        except LocalQueueError as error:
            raise CommandError(f"A store can't be used: {error}", returncode=3) from error
        timeout = options["shutdown_timeout"]
        try:
            worker = Worker(
                served,
                DjangoExecutor(_task_runner(), _by_store(handlers)),
                settings.heartbeat_interval,
                threads=options["threads"] or settings.threads,
                burst=bool(options["burst"]),
                round_robin=in_turns,
                lease_seconds=options["lease"],
                shutdown_timeout=30 if timeout is None else timeout,
                name=options["name"],
            )
        except InvalidInput as error:
            raise CommandError(str(error), returncode=USAGE) from error
        verbosity = options["verbosity"]
        with _logging(verbosity):
            if verbosity:
                self._print_banner(worker, aliases)
            summary = worker.run()
            if verbosity:
                self._print_summary(summary)
        self._exit(summary, bool(options["fail_on_error"] and options["burst"]))

    def _import_code(self, aliases: list[str]) -> dict[str, Handler]:
        """Import tasks and handlers now: a broken deploy must not make dead letters."""
        if _has_tasks():
            try:
                autodiscover_modules("tasks")
            except Exception as error:
                raise ImproperlyConfigured(
                    f"The tasks module of an installed app can't be imported: {error!r}."
                ) from error
        handlers = {}
        for alias in aliases:
            path = queues.settings(alias).handler
            if path is None:
                continue
            try:
                handlers[alias] = import_string(path)
            except ImportError as error:
                raise ImproperlyConfigured(
                    f"LOCALQUEUE[{alias!r}]['HANDLER'] is {path!r}, which can't be imported:"
                    f" {error}."
                ) from error
        return handlers

    def _print_banner(self, worker: Worker, aliases: list[str]) -> None:
        how = "in turns" if worker.round_robin else "the first before the next"
        lines = [
            f"django-localqueue {_version()}, Django {django.get_version()}",
            f"worker   {worker.name}, pid {os.getpid()}",
            f"queues   {', '.join(aliases)}" + (f" ({how})" if len(aliases) > 1 else ""),
        ]
        for queue in {queue.store_key: queue for queue in worker.queues}.values():
            durability = getattr(queue, "durability", None)
            kept = f", durability {durability}" if durability else ""
            lines.append(f"store    {type(queue).__name__} in {queue.store_key}{kept}")
        ends = "until the queues are empty" if worker.burst else "until TERM or INT"
        lines.append(f"threads  {worker.threads}, {ends}")
        self.stdout.write("\n".join(lines))
        self.stdout.flush()

    def _print_summary(self, summary: Summary) -> None:
        counts = (
            f"{summary.done} done, {summary.failed} failed, {summary.retried} retried,"
            f" {summary.seconds:.1f} s"
        )
        if summary.released:
            counts += f"; {summary.released} given back unfinished"
        if summary.lost:
            counts += f"; {summary.lost} lost their lease"
        self.stdout.write(counts)
        self.stdout.flush()

    def _exit(self, summary: Summary, fail_on_error: bool) -> None:
        if summary.forced:
            # Jobs still run in threads, which can't be ended: the process must.
            self.stdout.flush()
            self.stderr.flush()
            logging.shutdown()
            os._exit(FORCED)
        code = summary.exit_code or (JOBS_FAILED if fail_on_error and summary.failed else 0)
        if code:
            sys.exit(code)


def choose_queues(wanted: list[str], excluded: list[str]) -> tuple[list[str], bool]:
    """Return the aliases to serve, and whether in turns instead of in this order.

    Raises:
        CommandError: an alias is not one of LOCALQUEUE, or none is left.
    """
    known = list(queues)
    for alias in (*wanted, *excluded):
        if alias not in known and alias != "*":
            raise CommandError(
                f"There is no queue {alias!r} in LOCALQUEUE; it has {', '.join(known)}.",
                returncode=USAGE,
            )
    all_of_them = not wanted or "*" in wanted
    chosen = [
        alias
        for alias in (known if all_of_them else dict.fromkeys(wanted))
        if alias not in excluded
    ]
    if not chosen:
        raise CommandError("No queue is left to serve; exclude fewer.", returncode=USAGE)
    return chosen, all_of_them


def _with_environment(options: dict[str, Any]) -> dict[str, Any]:
    """Fill in from the environment what was not given as an option."""
    kinds: Mapping[str, Callable[[str], Any]] = {
        "queue": lambda value: [value],
        "exclude_queue": lambda value: [value],
        "threads": threads_from,
        "burst": _truth,
        "fail_on_error": _truth,
        "lease": seconds_from,
        "shutdown_timeout": seconds_from,
        "name": str,
    }
    filled = dict(options)
    for option, kind in kinds.items():
        name = PREFIX + option.upper()
        value = os.environ.get(name)
        if filled.get(option) is None and value is not None:
            try:
                filled[option] = kind(value)
            except argparse.ArgumentTypeError as error:
                raise CommandError(f"{name}: {error}", returncode=USAGE) from None
    return filled


def _truth(value: str) -> bool:
    if value.lower() not in TRUE + FALSE:
        raise argparse.ArgumentTypeError(f"{value!r} is neither 1 nor 0")
    return value.lower() in TRUE


def _names(values: list[str] | None) -> list[str]:
    return [name.strip() for value in values or () for name in value.split(",") if name.strip()]


def _by_store(handlers: Mapping[str, Handler]) -> dict[tuple[str, str], Handler]:
    stored: dict[str, BaseQueue] = {alias: queues[alias] for alias in handlers}
    return {(stored[a].store_key, stored[a].name): handler for a, handler in handlers.items()}


def _has_tasks() -> bool:
    return find_spec("django.tasks") is not None or find_spec("django_tasks") is not None


def _task_runner() -> TaskRunner | None:
    if not _has_tasks():
        return None
    from django_localqueue.tasks import run_task

    return run_task


def _version() -> str:
    try:
        return version("django-localqueue")
    except PackageNotFoundError:
        return "(not installed)"


@contextmanager
def _logging(verbosity: int) -> Iterator[None]:
    """Show the log where the project has not set up logging for it."""
    logger = logging.getLogger("django_localqueue")
    if logger.hasHandlers():
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(LEVELS.get(verbosity, logging.DEBUG))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
