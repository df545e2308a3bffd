"""The options of ``runqueueworker``: one table for its flags, the environment and the settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django_localqueue.backends.arguments import seconds, text, whole
from django_localqueue.exceptions import InvalidInput

PREFIX = "LOCALQUEUE_"
TRUE = ("1", "true", "yes", "on")
FALSE = ("", "0", "false", "no", "off")


class Kind(ABC):
    """What values an option takes."""

    @abstractmethod
    def parse(self, given: str) -> Any:
        """Return the value that a text means; raises ``ValueError``."""

    @abstractmethod
    def check(self, value: Any) -> Any:
        """Return a value if it can be one; raises ``InvalidInput``."""


class Names(Kind):
    """Names, with commas between."""

    def parse(self, given: str) -> list[str]:
        return [name.strip() for name in given.split(",") if name.strip()]

    def check(self, value: Any) -> list[str]:
        if not isinstance(value, (list, tuple)) or not all(isinstance(x, str) for x in value):
            raise InvalidInput(f"it must be a list of names, and it is {value!r}.")
        return list(value)


@dataclass(frozen=True)
class Whole(Kind):
    """A whole number."""

    low: int
    high: int = 1_000_000_000

    def parse(self, given: str) -> int:
        try:
            number = int(given)
        except ValueError:
            raise ValueError("it must be a whole number") from None
        return self.check(number)

    def check(self, value: Any) -> int:
        return whole(value, "it", self.low, self.high)


@dataclass(frozen=True)
class Number(Kind):
    """A number, finite and not negative; mostly of seconds."""

    positive: bool = False

    def parse(self, given: str) -> float:
        try:
            number = float(given)
        except ValueError:
            raise ValueError("it must be a number, of seconds where they are meant") from None
        return self.check(number)

    def check(self, value: Any) -> float:
        return seconds(value, "it", positive=self.positive)


class Truth(Kind):
    """Yes or no."""

    def parse(self, given: str) -> bool:
        if given.lower() not in TRUE + FALSE:
            raise ValueError("it is neither 1 nor 0")
        return given.lower() in TRUE

    def check(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise InvalidInput(f"it must be True or False, and it is {value!r}.")
        return value


@dataclass(frozen=True)
class Text(Kind):
    """Some text."""

    limit: int = 255

    def parse(self, given: str) -> str:
        return self.check(given)

    def check(self, value: Any) -> str:
        return text(str(value), "it", limit=self.limit)


@dataclass(frozen=True)
class Choice(Kind):
    """One of some words."""

    words: tuple[str, ...]

    def parse(self, given: str) -> str:
        return self.check(given)

    def check(self, value: Any) -> str:
        if value not in self.words:
            raise InvalidInput(f"it must be {' or '.join(self.words)}, and it is {value!r}.")
        return str(value)


@dataclass(frozen=True)
class Option:
    """One option; ``negatable`` ones have a flag with ``--no-`` too, ``repeatable`` ones add up."""

    name: str
    kind: Kind
    default: Any
    help: str
    metavar: str = "N"
    negatable: bool = False
    repeatable: bool = False

    @property
    def flag(self) -> str:
        """The flag of the command."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The variable of the environment."""
        return PREFIX + self.name.upper()

    @property
    def key(self) -> str:
        """The key of LOCALQUEUE_WORKER."""
        plural = {"queue": "QUEUES", "exclude_queue": "EXCLUDE_QUEUES"}
        return plural.get(self.name, self.name.upper())


SECONDS = "SECONDS"
OPTIONS: tuple[Option, ...] = (
    Option(
        "queue",
        Names(),
        (),
        "A queue to serve; may be repeated or a list with commas. An earlier one is emptied before"
        " a later one is looked at. '*', or none, serves every queue of LOCALQUEUE, in turns.",
        "ALIAS",
        repeatable=True,
    ),
    Option(
        "exclude_queue",
        Names(),
        (),
        "A queue not to serve; may be repeated or a list with commas.",
        "ALIAS",
        repeatable=True,
    ),
    Option(
        "processes",
        Whole(1, 1_000),
        1,
        "How many worker processes. From 2 on, or with --job-timeout, this one only supervises.",
    ),
    Option("threads", Whole(1, 1_000), 4, "How many jobs of one store run at a time, a process."),
    Option("burst", Truth(), False, "End when no job is ready or running in these queues."),
    Option(
        "fail_on_error",
        Truth(),
        False,
        "With --burst: exit code 4 if a job became a dead letter.",
    ),
    Option(
        "max_idle", Number(), 0, "End when there was nothing to do for so long; 0: never.", SECONDS
    ),
    Option("max_jobs", Whole(0), 0, "End, or renew a process, after so many jobs; 0: never."),
    Option("max_jobs_jitter", Whole(0), 0, "Up to so many jobs more, by chance."),
    Option(
        "max_memory",
        Number(),
        0,
        "End, or renew a process, when it has so much memory; 0: never.",
        "MIB",
    ),
    Option(
        "max_lifetime", Number(), 0, "End, or renew a process, after so long; 0: never.", SECONDS
    ),
    Option(
        "poll_interval",
        Number(positive=True),
        1,
        "How long a put may stay unnoticed where nothing tells of it, as on rqlite.",
        SECONDS,
    ),
    Option(
        "lease",
        Number(positive=True),
        None,
        "How long a job belongs to its worker unless renewed, which it does. Default: the"
        " queue's lease_seconds.",
        SECONDS,
    ),
    Option(
        "job_timeout",
        Number(),
        0,
        "How long a job may run that has no timeout of its own; then its process is ended and"
        " the job fails with JobTimeout. 0: for ever.",
        SECONDS,
    ),
    Option(
        "shutdown_timeout",
        Number(),
        30,
        "How long running jobs have to finish after TERM or INT; then they are given back.",
        SECONDS,
    ),
    Option(
        "name",
        Text(),
        None,
        "The worker's name, kept with each attempt. Default: host:pid:random.",
        "NAME",
    ),
    Option(
        "health_file",
        Text(4_096),
        None,
        "A file that is touched every five seconds as long as the worker lives.",
        "PATH",
    ),
    Option(
        "health_port",
        Whole(0, 65_535),
        None,
        "Answer /live and /ready on this port of 127.0.0.1; 0 takes a free one.",
        "PORT",
    ),
    Option(
        "pidfile",
        Text(4_096),
        None,
        "A file for the process id; held, so that a second worker with it does not start.",
        "PATH",
    ),
    Option(
        "reload",
        Truth(),
        None,
        "Start anew when code changes. Default: as DEBUG, and never with --burst.",
        negatable=True,
    ),
    Option(
        "log_format",
        Choice(("text", "json")),
        None,
        "Log to stderr in this format. Default: as the project's LOGGING says, else text.",
        "FORMAT",
    ),
)


def resolve(
    flags: Mapping[str, Any], environment: Mapping[str, str], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return each option's value: the flag's, else the environment's, else the settings'.

    Raises ``InvalidInput`` naming the variable or key whose value can't be.
    """
    values = {}
    for option in OPTIONS:
        value = flags.get(option.name)
        if option.repeatable and value is not None:
            # From the command line a list a flag; from ``call_command`` texts, or one text.
            parts = [value] if isinstance(value, str) else value
            value = [
                name
                for part in parts
                for name in (option.kind.parse(part) if isinstance(part, str) else part)
            ]
        if value is None and option.variable in environment:
            value = _checked(option.variable, option.kind.parse, environment[option.variable])
        if value is None and settings.get(option.key) is not None:
            where = f"LOCALQUEUE_WORKER[{option.key!r}]"
            value = _checked(where, option.kind.check, settings[option.key])
        values[option.name] = option.default if value is None else value
    return values


def _checked(where: str, check: Any, value: Any) -> Any:
    try:
        return check(value)
    except ValueError as error:
        raise InvalidInput(f"{where} is {value!r}: {error}") from None
