"""The schedules that the code declares: by ``@schedule`` on a task, and LOCALQUEUE_SCHEDULES."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.core.exceptions import SuspiciousOperation

from django_localqueue import conf
from django_localqueue.backends.arguments import HEADERS, text
from django_localqueue.exceptions import InvalidInput
from django_localqueue.queues import queues
from django_localqueue.records import MISSED_POLICIES, OVERLAP_POLICIES, ScheduleRecord
from django_localqueue.schedules.cron import Timing

T = TypeVar("T")


@dataclass(frozen=True)
class Declared:
    """A schedule as the code declares it; nothing of it is checked yet.

    ``task`` is a task, or its dotted path; ``where`` names the place for messages.
    """

    name: str
    expression: str
    task: Any
    where: str
    timezone: str | None = None
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    missed: str = "once"
    overlap: str = "allow"

    def alias(self) -> str:
        """Return the alias of its queue; raises as ``record``."""
        return str(self._task().queue_name)

    def check(self) -> tuple[Any, Timing, str]:
        """Return its task, its times and its time zone; nothing is opened.

        Raises ``InvalidInput`` naming what is wrong.
        """
        timezone = self.timezone or str(conf.setting("TIME_ZONE", "UTC"))
        timing = Timing(self.expression, timezone)
        for value, known in ((self.missed, MISSED_POLICIES), (self.overlap, OVERLAP_POLICIES)):
            if value not in known:
                raise InvalidInput(f"There is no policy {value!r}; use one of {', '.join(known)}.")
        task = self._task()
        HEADERS.dumps([list(self.args), dict(self.kwargs)])
        text(self.name, "name")
        return task, timing, timezone

    def record(self, now: int) -> ScheduleRecord:
        """Return what a store keeps of it, due next after ``now``; raises as ``check``."""
        task, timing, timezone = self.check()
        return ScheduleRecord(
            name=self.name,
            expression=self.expression,
            timezone=timezone,
            task=task.module_path,
            queue=queues.settings(task.queue_name).name,
            args=tuple(self.args),
            kwargs=dict(self.kwargs),
            job=_job_options(task, self.args, self.kwargs),
            missed=self.missed,  # type: ignore[arg-type]
            overlap=self.overlap,  # type: ignore[arg-type]
            next_at=timing.after(now),
        )

    def _task(self) -> Any:
        from django_localqueue.tasks import LocalQueueBackend
        from django_localqueue.tasks.results import find_task

        if isinstance(self.task, str):
            try:
                task = find_task(self.task)
            except (ImportError, SuspiciousOperation) as error:
                raise InvalidInput(f"Its task can't be had: {error}.") from error
        else:
            task = self.task
        if not isinstance(task.get_backend(), LocalQueueBackend):
            raise InvalidInput(
                f"The task {task.module_path} has the backend {task.backend!r} of TASKS, which is"
                " not LocalQueueBackend; only that runs schedules."
            )
        return task


def schedule(
    expression: str,
    *,
    name: str | None = None,
    timezone: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    missed: str = "once",
    overlap: str = "allow",
) -> Callable[[T], T]:
    """Enqueue the task below this decorator whenever a cron expression says so.

    Args:
        expression: five fields, as ``"*/5 * * * *"``, or ``"@daily"`` and the like.
        name: of the schedule, for a task that has several; default the task's dotted path.
        timezone: such as ``"Europe/Berlin"``; default that of the settings.
        args: for the task; with ``kwargs`` what JSON carries.
        missed: what becomes of times that passed while no worker ran: ``"skip"`` (none),
            ``"once"`` (the last of them), ``"all"``.
        overlap: ``"skip"`` puts no job while the one before waits or runs.

    What is wrong in it is told by ``manage.py check``, and by the worker when it starts.
    """

    def register(task: T) -> T:
        path = getattr(task, "module_path", None)
        if path is None:
            raise InvalidInput(f"@schedule belongs above @task, and this is {task!r}.")
        declared = Declared(
            path if name is None else name,
            expression,
            task,
            f"@schedule of {path}",
            timezone,
            tuple(args),
            dict(kwargs or {}),
            missed,
            overlap,
        )
        _declared[(declared.name, path)] = declared
        return task

    return register


#: By name and task: a module that is imported anew replaces its own.
_declared: dict[tuple[str, str], Declared] = {}


def declared() -> list[Declared]:
    """Return the schedules of the modules that were imported, and of the settings."""
    return [*_declared.values(), *_of_settings()]


def problems() -> Iterator[tuple[str, str]]:
    """Return what is wrong, as message and hint, of the schedules and of LOCALQUEUE_SCHEDULES."""
    yield from conf.schedules()[1]
    seen: dict[str, Declared] = {}
    for one in declared():
        if one.name in seen:
            yield (
                f"{one.where} and {seen[one.name].where} have the same name {one.name!r}.",
                "Give one of them another name.",
            )
        seen[one.name] = one
        try:
            one.check()
        except (InvalidInput, LookupError) as error:
            yield f"{one.where}: {error}", "Correct the schedule, or remove it."


def _of_settings() -> Iterator[Declared]:
    for name, entry in conf.schedules()[0].items():
        yield Declared(
            name,
            entry.get("CRON", ""),
            entry.get("TASK", ""),
            f"LOCALQUEUE_SCHEDULES[{name!r}]",
            entry.get("TIMEZONE"),
            entry.get("ARGS", ()),
            entry.get("KWARGS", {}),
            entry.get("MISSED", "once"),
            entry.get("OVERLAP", "allow"),
        )


def _job_options(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of each job beside its payload and ids: what ``job_options`` say."""
    from django_localqueue.tasks.calls import check_name, prepare
    from django_localqueue.tasks.compat import InvalidTask

    defaults = task.get_backend().settings.job_options
    try:
        check_name(task)
        prepared = prepare(task.backend, defaults, task, tuple(args), dict(kwargs))
    except (InvalidTask, TypeError, ValueError) as error:
        raise InvalidInput(f"Its task can't be enqueued: {error}") from error
    job = dict(prepared.pending.job)
    headers = {key: value for key, value in job.pop("headers").items() if key != "enqueued_at"}
    for key in ("data", "job_id", "task"):
        del job[key]
    return {**job, "headers": headers}
