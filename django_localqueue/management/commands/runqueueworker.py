"""``manage.py runqueueworker``: gets jobs from the queues and runs them.

Exit codes: 0 after a clean end; 1 where running jobs were given back unfinished; 2 for
a fault of usage or configuration; 3 where a store can't be used; 4 with --burst
--fail-on-error where a job became a dead letter.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import logging
import os
import sys
import threading
from pathlib import Path
from typing import Any

import django
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser
from django.utils.module_loading import autodiscover_modules

from django_localqueue import conf
from django_localqueue.exceptions import InvalidInput, LocalQueueError
from django_localqueue.management.arguments import argument_type
from django_localqueue.management.base import STORE, USAGE, QueueCommand
from django_localqueue.management.code import choose_queues, import_code, unknown_tasks
from django_localqueue.management.logs import logging_to_stderr
from django_localqueue.management.run import Plan, run
from django_localqueue.queues import queues
from django_localqueue.worker import Summary
from django_localqueue.worker.limits import Limits
from django_localqueue.worker.names import package_version
from django_localqueue.worker.options import OPTIONS, Option, resolve

logger = logging.getLogger("django_localqueue.worker")

FORCED, JOBS_FAILED = 1, 4


class Command(QueueCommand):
    """See the module."""

    help = (
        "Gets jobs from the queues of LOCALQUEUE and runs them: tasks, and plain jobs with their"
        " queue's HANDLER. The first TERM or INT claims no more jobs and finishes those that run;"
        " a second one, a second or more later, or QUIT, gives them back to be run elsewhere."
        " TSTP or USR2: claim no more, and stay; CONT: go on. USR1: show all stacks."
        " Every option but --check and --verbosity may also stand in the environment, as"
        " LOCALQUEUE_ and its name in capitals (LOCALQUEUE_THREADS=8), and in LOCALQUEUE_WORKER"
        " of the settings. An option comes before the environment, and that before settings."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        for option in OPTIONS:
            _add(parser, option)
        parser.add_argument(
            "--check",
            action="store_true",
            help="Check settings, code and stores, and end: 0, 2 or 3.",
        )

    #: Whether this process is the command's, and was not lent by ``call_command``.
    _is_process = False

    def run_from_argv(self, argv: list[str]) -> None:
        self._is_process = True
        super().run_from_argv(argv)

    def handle(self, *args: Any, **options: Any) -> None:
        plan = self._plan(options)
        verbosity = options["verbosity"]
        if options["check"]:
            for warning in plan.warnings:
                self.stderr.write(warning)
            self.stdout.write("The worker can start: settings, code and stores are in order.")
            return
        with contextlib.ExitStack() as stack:
            stack.enter_context(logging_to_stderr(verbosity, plan.values["log_format"]))
            path = plan.values["pidfile"]
            try:
                if path is not None:
                    from django_localqueue.management.pidfile import pidfile

                    stack.enter_context(pidfile(Path(path)))
                for warning in plan.warnings:
                    logger.warning("%s", warning)
                end = run(plan, lambda: self._print_banner(plan) if verbosity else None)
            except (OSError, InvalidInput) as error:
                raise CommandError(str(error), returncode=USAGE) from error
            if verbosity:
                self._print_summary(end.summary)
            if end.starts_anew:
                from django_localqueue.management.reload import start_anew

                start_anew()
            if end.summary.forced:
                stack.close()  # what still runs in threads can't be ended: the process must
                self._exit_now(FORCED)
        fail = plan.values["fail_on_error"] and plan.values["burst"] and end.summary.failed
        code = end.summary.exit_code or (JOBS_FAILED if fail else 0)
        if self._is_process and (left := _threads_left()):
            logger.warning("Jobs left threads that still run: %s.", ", ".join(left))
            self._exit_now(code)
        if code:
            sys.exit(code)

    def _plan(self, options: dict[str, Any]) -> Plan:
        settings = conf.worker()
        keys = {field.name.upper(): field.name for field in dataclasses.fields(settings)}
        given = {key: getattr(settings, name) for key, name in keys.items()}
        try:
            values = resolve(options, os.environ, given)
            aliases, in_turns = choose_queues(list(values["queue"]), list(values["exclude_queue"]))
            values["reload"] = _reloads(values)
            limits = Limits(
                max_jobs=values["max_jobs"] or None,
                max_jobs_jitter=values["max_jobs_jitter"],
                max_memory=values["max_memory"] or None,
                max_lifetime=values["max_lifetime"] or None,
                max_idle=values["max_idle"] or None,
            )
            executor = import_code(aliases, autodiscover_modules)
            served = [queues[alias] for alias in aliases]
            for queue in served:
                queue.poll_interval = values["poll_interval"]
                queue.workers()  # the store is there and can be read
            return Plan(
                *(values, aliases, served, in_turns, executor, limits),
                heartbeat_interval=settings.heartbeat_interval,
                warnings=unknown_tasks(served),
            )
        except (ImproperlyConfigured, InvalidInput) as error:
            raise CommandError(str(error), returncode=USAGE) from error
        except LocalQueueError as error:
            raise CommandError(f"A store can't be used: {error}", returncode=STORE) from error

    def _print_banner(self, plan: Plan) -> None:
        values, aliases = plan.values, plan.aliases
        how = "in turns" if plan.in_turns else "the first before the next"
        version = package_version() or "(not installed)"
        lines = [
            f"django-localqueue {version}, Django {django.get_version()}",
            f"worker   {plan.name}, pid {os.getpid()}",
            f"queues   {', '.join(aliases)}" + (f" ({how})" if len(aliases) > 1 else ""),
        ]
        for queue in plan.stores:
            durability = getattr(queue, "durability", None)
            kept = f", durability {durability}" if durability else ""
            lines.append(f"store    {type(queue).__name__} in {queue.store_key}{kept}")
        ends = "until the queues are empty" if values["burst"] else "until TERM or INT"
        processes = f" in each of {values['processes']} processes" if plan.supervised else ""
        lines.append(f"threads  {values['threads']}{processes}, {ends}")
        if plan.health_port is not None:
            lines.append(f"health   http://127.0.0.1:{plan.health_port}/live and /ready")
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
        if summary.limit:
            counts += f"; {summary.limit} was reached"
        self.stdout.write(counts)
        self.stdout.flush()

    def _exit_now(self, code: int) -> None:
        self.stdout.flush()
        self.stderr.flush()
        logging.shutdown()
        os._exit(code)


def _add(parser: CommandParser, option: Option) -> None:
    parse = argument_type(option.kind)
    default = option.default
    told = option.help
    if default not in (None, False, 0, ()):
        told += f" Default: {default}."
    if option.negatable:
        parser.add_argument(option.flag, action=argparse.BooleanOptionalAction, help=told)
    elif option.default is False:
        parser.add_argument(option.flag, action="store_true", default=None, help=told)
    elif option.repeatable:
        parser.add_argument(
            option.flag, action="append", type=parse, metavar=option.metavar, help=told
        )
    else:
        parser.add_argument(option.flag, type=parse, metavar=option.metavar, help=told)


def _threads_left() -> list[str]:
    """Return the names of threads that Python would wait for at its end."""
    return [
        thread.name
        for thread in threading.enumerate()
        if not thread.daemon and thread is not threading.main_thread()
    ]


def _reloads(values: dict[str, Any]) -> bool:
    if values["burst"]:
        return False
    if values["reload"] is None:
        return bool(conf.setting("DEBUG"))
    return bool(values["reload"])
