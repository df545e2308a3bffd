"""TASKS[alias]["OPTIONS"] of this package's backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from django.db import DEFAULT_DB_ALIAS

from django_localqueue import conf
from django_localqueue.exceptions import InvalidInput
from django_localqueue.tasks.options import NOTHING, JobOptions, options_from

KEYS = ("enqueue_on_commit", "outbox", "databases", "job_options", "moved_tasks", "tracing")


@dataclass(frozen=True, slots=True)
class BackendSettings:
    """What OPTIONS say, with what they leave out filled in."""

    enqueue_on_commit: bool = False
    outbox: bool = False
    databases: tuple[str, ...] = (DEFAULT_DB_ALIAS,)
    job_options: JobOptions = NOTHING
    moved_tasks: Mapping[str, str] = field(default_factory=dict)
    tracing: bool = False
    #: The databases have an outbox: asked for by ``outbox``, or by naming them.
    has_outbox: bool = False


def parsed(alias: str, params: Mapping[str, Any]) -> tuple[BackendSettings, list[conf.Problem]]:
    """Return the settings of a backend, and what is wrong with them; never raises."""
    where = f"TASKS[{alias!r}]['OPTIONS']"
    given = params.get("OPTIONS") or {}
    if not isinstance(given, Mapping):
        return BackendSettings(), [_problem(f"{where} is {given!r}.", "Make it a dict.")]
    problems = [
        _problem(f"{where} has the unknown key {key!r}.", conf.suggestion(key, KEYS))
        for key in given
        if key not in KEYS
    ]
    values: dict[str, Any] = {"has_outbox": "databases" in given or given.get("outbox") is True}
    for key in ("enqueue_on_commit", "outbox", "tracing"):
        value = given.get(key, False)
        if isinstance(value, bool):
            values[key] = value
        else:
            problems.append(_problem(f"{where}[{key!r}] is {value!r}.", "Make it True or False."))
    if values.get("tracing") and find_spec("opentelemetry") is None:
        problems.append(
            _problem(
                f"{where}['tracing'] needs OpenTelemetry's API, which is not installed.",
                "Install it: pip install 'django-localqueue[opentelemetry]'.",
            )
        )
    databases = given.get("databases", [DEFAULT_DB_ALIAS])
    if isinstance(databases, (list, tuple)) and databases and all(map(_is_text, databases)):
        values["databases"] = tuple(databases)
    else:
        problems.append(
            _problem(
                f"{where}['databases'] is {databases!r}.", "Make it a list of aliases of DATABASES."
            )
        )
    moved = given.get("moved_tasks", {})
    if isinstance(moved, Mapping) and all(map(_is_text, (*moved, *moved.values()))):
        values["moved_tasks"] = moved
    else:
        problems.append(
            _problem(
                f"{where}['moved_tasks'] is {moved!r}.",
                "Make it a dict from the old dotted path of a task to its new one.",
            )
        )
    try:
        values["job_options"] = options_from(given.get("job_options", NOTHING), "job_options")
    except InvalidInput as error:
        problems.append(_problem(f"{where}: {error}", "Correct it, or leave it out."))
    return BackendSettings(**values), problems


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _problem(message: str, hint: str) -> conf.Problem:
    return conf.Problem("E020", message, hint)
