"""What a job may be told beside its arguments: by ``@job_options``, or ``job_options=`` at a call.

@task
@job_options(retries=5, backoff=exponential(), retry_on=(ConnectionError,))
def fetch(url): ...

fetch.enqueue(url, job_options={"unique_key": url, "expires": 600})
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar, cast

from django.utils.module_loading import import_string

from django_localqueue import conf
from django_localqueue.backends.arguments import seconds, text, whole
from django_localqueue.exceptions import InvalidInput
from django_localqueue.tasks.backoff import Backoff, delay_of, described

Function = TypeVar("Function", bound=Callable[..., Any])

ATTRIBUTE = "_localqueue_options"
ORIGINAL = "_localqueue_function"
#: The keyword of a call that is for the queue, not for the task.
KEYWORD = "job_options"

Exceptions = tuple[type[BaseException] | str, ...]


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options of a task's jobs; None: not said, so what is said elsewhere holds.

    Args:
        retries: how often the task is run again after it raised. Default 0. An attempt
            that was lost with its worker counts as one.
        backoff: seconds before a retry; or ``exponential(...)``; or a function that takes
            the number of the attempt that raised, and the exception, and returns seconds.
            Default: ``exponential()``.
        retry_on: exception classes, or their dotted paths, that are retried. Default: Exception.
        no_retry_on: classes that are not, though they are in ``retry_on``.
        timeout: seconds that an attempt may take.
        group: jobs of one group run one at a time, in the order of their puts.
        unique_key: while a job of this key waits or runs in its queue, another enqueue
            stores nothing and returns that job's result. On a task it may hold the names
            of its arguments: ``"invoice-{number}"``.
        unique_seconds: how long after its enqueue the job holds its key at least.
        expires: seconds until the job must have begun, or it becomes a dead letter.
        retention: seconds that the result is kept once the task was successful.
        enqueue_on_commit: put the job when the database transaction is committed.
        outbox: write the job in the database transaction; a worker moves it to its queue.
        database: the alias of the database whose transaction is meant.
    """

    retries: int | None = None
    backoff: Backoff | None = None
    retry_on: Exceptions | None = None
    no_retry_on: Exceptions | None = None
    timeout: float | None = None
    group: str | None = None
    unique_key: str | None = None
    unique_seconds: float | None = None
    expires: float | None = None
    retention: float | None = None
    enqueue_on_commit: bool | None = None
    outbox: bool | None = None
    database: str | None = None

    def __post_init__(self) -> None:
        if self.retries is not None:
            whole(self.retries, "retries", 0, 1_000_000)
        if self.backoff is not None:
            described(self.backoff)
        for name in ("retry_on", "no_retry_on"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _exceptions(value, name))
        for name in ("timeout", "expires"):
            value = getattr(self, name)
            if value is not None:
                seconds(value, name, positive=True)
        for name in ("unique_seconds", "retention"):
            value = getattr(self, name)
            if value is not None:
                seconds(value, name)
        for name in ("group", "unique_key", "database"):
            value = getattr(self, name)
            if value is not None:
                text(value, name)
        for name in ("enqueue_on_commit", "outbox"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, bool):
                raise InvalidInput(f"{name} must be True or False, and it is {value!r}.")

    def or_else(self, other: JobOptions) -> JobOptions:
        """Return these options, and where they say nothing the other ones."""
        if self is NOTHING:
            return other
        if other is NOTHING:
            return self
        changes = {name: getattr(other, name) for name in NAMES if getattr(self, name) is None}
        return replace(self, **changes)

    def of_the_run(self) -> dict[str, Any]:
        """Return as JSON what the worker must know of the options of a call."""
        said: dict[str, Any] = {}
        if self.retries is not None:
            said["retries"] = self.retries
        if self.backoff is not None:
            said["backoff"] = described(self.backoff)
        for name in ("retry_on", "no_retry_on"):
            value = getattr(self, name)
            if value is not None:
                said[name] = [_path(kind) for kind in value]
        return said

    def delay_before_retry(self, attempt: int, error: BaseException) -> float | None:
        """Return the seconds to wait before a task that raised runs again; None: it fails.

        Args:
            attempt: which attempt raised, from 1.
            error: what it raised.
        """
        if attempt > (self.retries or 0):
            return None
        if not isinstance(error, _classes(self.retry_on, (Exception,))):
            return None
        if isinstance(error, _classes(self.no_retry_on, ())):
            return None
        return delay_of(self.backoff, attempt, error)


NAMES = tuple(field.name for field in fields(JobOptions))
NOTHING = JobOptions()


def job_options(**options: Any) -> Callable[[Function], Function]:
    """Give the jobs of a task options; to be put beneath ``@task``.

    The task may then be called with ``job_options=`` under every backend: one that isn't of
    this package, as Django's own, leaves the options out of account.

    Raises:
        InvalidInput: an option is unknown, of the wrong type or out of range.
    """
    made = options_from(options, "@job_options")

    def decorate(function: Function) -> Function:
        if not inspect.isfunction(function):
            raise InvalidInput(
                f"@job_options belongs beneath @task, on the function; here it is on {function!r}."
            )
        wrapper: Any
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def wrapper(*args: Any, job_options: Any = None, **kwargs: Any) -> Any:
                return await function(*args, **kwargs)
        else:

            @functools.wraps(function)
            def wrapper(*args: Any, job_options: Any = None, **kwargs: Any) -> Any:
                return function(*args, **kwargs)

        setattr(wrapper, ATTRIBUTE, made)
        setattr(wrapper, ORIGINAL, function)
        return cast("Function", wrapper)

    return decorate


def options_from(given: Any, where: str) -> JobOptions:
    """Return options that were given as a dict, or as they are.

    Raises:
        InvalidInput: an option is unknown, of the wrong type or out of range.
    """
    if isinstance(given, JobOptions):
        return given
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{where} must be a dict of options or JobOptions, not {given!r}.")
    for name in given:
        if name not in NAMES:
            raise InvalidInput(
                f"{where} has the unknown option {name!r}. {conf.suggestion(name, NAMES)}"
            )
    try:
        return JobOptions(**given)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from None


def of_function(function: Callable[..., Any]) -> JobOptions:
    """Return the options that ``@job_options`` gave to a task's function."""
    found: JobOptions = getattr(function, ATTRIBUTE, NOTHING)
    return found


def key_for(template: str, function: Callable[..., Any], args: Any, kwargs: Any) -> str:
    """Return a task's unique key with the arguments of a call in it.

    Raises:
        InvalidInput: it names something that is no argument of the task.
    """
    if "{" not in template:
        return template
    try:
        bound = _signature(getattr(function, ORIGINAL, function)).bind_partial(*args, **kwargs)
        bound.apply_defaults()
        return template.format(**bound.arguments)
    except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"The unique key {template!r} of {function.__qualname__} can't be made from its"
            f" arguments: {error!r}."
        ) from None


_signature = functools.lru_cache(inspect.signature)


def _exceptions(value: Any, name: str) -> Exceptions:
    kinds = (value,) if isinstance(value, (type, str)) else value
    if not isinstance(kinds, Iterable):
        raise InvalidInput(f"{name} must be exception classes, and it is {value!r}.")
    kinds = tuple(kinds)
    for kind in kinds:
        if isinstance(kind, str) and kind:
            continue
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise InvalidInput(f"{name} must be exception classes, and {kind!r} is none.")
    return kinds


@functools.cache
def _classes(
    kinds: Exceptions | None, default: tuple[type[BaseException], ...]
) -> tuple[type[BaseException], ...]:
    if kinds is None:
        return default
    return tuple(_class(kind) for kind in kinds)


def _class(kind: type[BaseException] | str) -> type[BaseException]:
    if isinstance(kind, type):
        return kind
    found = import_string(kind if "." in kind else f"builtins.{kind}")
    if not (isinstance(found, type) and issubclass(found, BaseException)):
        raise InvalidInput(f"{kind!r} in retry_on or no_retry_on is no exception class.")
    return found


def _path(kind: type[BaseException] | str) -> str:
    return kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"


def put_arguments(options: JobOptions, function: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return what the options say to ``put`` of a call: group, key, expiry and retention."""
    arguments: dict[str, Any] = {}
    if options.group is not None:
        arguments["group_id"] = options.group
    if options.unique_key is not None:
        key = key_for(options.unique_key, function, args, kwargs)
        arguments["unique_key"] = text(key, "unique_key")
        arguments["unique_seconds"] = options.unique_seconds or 0
    if options.expires is not None:
        arguments["expires"] = options.expires
    if options.retention is not None:
        arguments["retention"] = options.retention
    return arguments
