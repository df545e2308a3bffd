"""Reading the settings, and what is wrong in their shape.

Nothing is read before it is asked for, and ``override_settings`` is followed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from django.conf import global_settings, settings
from django.core.signals import setting_changed

from django_localqueue.conf.keys import (
    IN_MEMORY,
    OPTION_TYPES,
    OPTIONS,
    OPTIONS_OF_BACKEND,
    QUEUE_KEYS,
    RQLITE_BACKEND,
    SCHEDULE_KEYS,
    SECRET_OPTIONS,
    SECTION_TYPES,
    SQLITE_BACKEND,
    STORE_OPTIONS,
    TEST_KEYS,
    ConsoleSettings,
    Problem,
    QueueSettings,
    WorkerSettings,
)
from django_localqueue.conf.locations import store_key


@cache
def queue_settings() -> dict[str, QueueSettings]:
    """Return every alias of LOCALQUEUE; unset, it is one alias "default".

    Never raises for what is in the setting: the faults are in ``problems``.
    """
    raw = getattr(settings, "LOCALQUEUE", None)
    if raw is None:
        raw = {"default": {}}
    if not isinstance(raw, Mapping):
        problem = _wrong_type("LOCALQUEUE", raw, "a dict of aliases, as CACHES is")
        return {"default": QueueSettings("default", problems=(problem,))}
    default = _parse("default", raw.get("default", {}), None)
    parsed = {
        str(alias): default if alias == "default" else _parse(alias, entry, default)
        for alias, entry in raw.items()
    }
    return _with_the_options_of_their_stores(parsed)


def worker() -> WorkerSettings:
    """Return LOCALQUEUE_WORKER; a key of the wrong type counts as left out."""
    return WorkerSettings(**_section("LOCALQUEUE_WORKER", WorkerSettings)[0])


def console() -> ConsoleSettings:
    """Return LOCALQUEUE_CONSOLE; a key of the wrong type counts as left out."""
    return ConsoleSettings(**_section("LOCALQUEUE_CONSOLE", ConsoleSettings)[0])


def schedules() -> tuple[dict[str, Mapping[str, Any]], list[tuple[str, str]]]:
    """Return LOCALQUEUE_SCHEDULES by name, and what is wrong in its shape: messages and hints."""
    raw = getattr(settings, "LOCALQUEUE_SCHEDULES", None)
    if raw is None:
        return {}, []
    if not isinstance(raw, Mapping):
        return {}, [
            (f"LOCALQUEUE_SCHEDULES is {raw!r}.", "It must be a dict of schedules by name.")
        ]
    found: dict[str, Mapping[str, Any]] = {}
    problems = []
    for name, entry in raw.items():
        where = f"LOCALQUEUE_SCHEDULES[{name!r}]"
        if not isinstance(name, str) or not isinstance(entry, Mapping):
            problems.append((f"{where} is {entry!r}.", "It must be a dict, its name text."))
            continue
        wrong = [
            (f"{where}[{key!r}] is {entry[key]!r}.", f"It must be {_names(types)}.")
            for key, types in SCHEDULE_KEYS.items()
            if key in entry and not _is_a(entry[key], types)
        ]
        problems += wrong
        problems += [(p.message, p.hint) for p in _unknown(where, entry, SCHEDULE_KEYS)]
        if not wrong:
            found[name] = entry
    return found, problems


def section_problems() -> list[Problem]:
    """Return what is wrong in LOCALQUEUE_WORKER and LOCALQUEUE_CONSOLE."""
    return [
        *_section("LOCALQUEUE_WORKER", WorkerSettings)[1],
        *_section("LOCALQUEUE_CONSOLE", ConsoleSettings)[1],
    ]


def setting(name: str, default: Any = None) -> Any:
    """Return one of Django's or the project's own settings."""
    return getattr(settings, name, default)


def tasks() -> dict[str, Mapping[str, Any]]:
    """Return the aliases of TASKS with what is a dict; unset: none."""
    raw = getattr(settings, "TASKS", None)
    if not isinstance(raw, Mapping):
        return {}
    return {str(alias): entry for alias, entry in raw.items() if isinstance(entry, Mapping)}


def tasks_are_the_default() -> bool:
    """Whether TASKS is unset or what Django has it be."""
    raw = getattr(settings, "TASKS", None)
    return raw is None or raw == getattr(global_settings, "TASKS", None)


def suggestion(key: object, known: Iterable[str]) -> str:
    """Return a hint for an unknown key: the known one it looks like, and all of them."""
    known = list(known)
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(str(key).lower(), by_lower, n=1, cutoff=0.6)
    guess = f"Did you mean {by_lower[near[0]]!r}? " if near else ""
    return f"{guess}The keys are {', '.join(known)}."


def _parse(alias: object, entry: Any, default: QueueSettings | None) -> QueueSettings:
    where = f"LOCALQUEUE[{alias!r}]"
    if not isinstance(alias, str) or not alias:
        problem = _wrong_type(f"The alias {alias!r} of LOCALQUEUE", alias, "text, not empty")
        return QueueSettings(str(alias), problems=(problem,))
    if not isinstance(entry, Mapping):
        return QueueSettings(alias, problems=(_wrong_type(where, entry, "a dict"),))
    problems = _unknown(where, entry, QUEUE_KEYS)
    backend = entry.get("BACKEND", default.backend if default else SQLITE_BACKEND)
    if not isinstance(backend, str):
        problems.append(_wrong_type(f"{where}['BACKEND']", backend, "the dotted path of a class"))
        backend = SQLITE_BACKEND
    name = entry.get("NAME", alias)
    if not isinstance(name, str):
        problems.append(_wrong_type(f"{where}['NAME']", name, "text"))
        name = alias
    handler = entry.get("HANDLER")
    if handler is not None and not isinstance(handler, str):
        problems.append(
            _wrong_type(f"{where}['HANDLER']", handler, "the dotted path of a function")
        )
        handler = None
    options = entry.get("OPTIONS", {})
    if not isinstance(options, Mapping):
        problems.append(_wrong_type(f"{where}['OPTIONS']", options, "a dict"))
        options = {}
    problems += _unknown(f"{where}['OPTIONS']", options, OPTIONS)
    for key, types in OPTION_TYPES.items():
        if key in options and not _is_a(options[key], types):
            given = options[key]
            if key in SECRET_OPTIONS and not isinstance(given, int):
                given = type(given)  # a message must not show a password
            problems.append(_wrong_type(f"{where}['OPTIONS']['{key}']", given, _names(types)))
    test = entry.get("TEST", {})
    if not isinstance(test, Mapping):
        problems.append(_wrong_type(f"{where}['TEST']", test, "a dict"))
        test = {}
    problems += _unknown(f"{where}['TEST']", test, TEST_KEYS)
    test_location = test.get("LOCATION")
    location = entry.get("LOCATION")
    unset_location = False
    if location is None and default is not None and backend == default.backend:
        location = default.location
        test_location = default.test_location if test_location is None else test_location
    elif location is None and backend == SQLITE_BACKEND:
        location = _default_location()
        unset_location = location is not None
    if location is None:
        problems.append(
            Problem(
                "E006",
                f"{where} has no LOCATION, and there is no default for it.",
                "Set LOCATION to the URLs of the nodes, for instance ['http://10.0.0.1:4001']."
                if backend == RQLITE_BACKEND
                else "Set LOCATION to the folder of the queue, for instance"
                " BASE_DIR / 'localqueue'.",
            )
        )
    return QueueSettings(
        alias,
        backend,
        location,
        name,
        handler,
        {key: options[key] for key in options if _has_effect(key, backend)},
        test_location,
        tuple(problems),
        unset_location,
        tuple(key for key in options if key in OPTIONS and not _has_effect(key, backend)),
    )


def _has_effect(option: str, backend: str) -> bool:
    owners = [owner for owner, options in OPTIONS_OF_BACKEND.items() if option in options]
    if owners and backend in OPTIONS_OF_BACKEND:
        return backend in owners
    return option in OPTIONS


def _with_the_options_of_their_stores(
    parsed: dict[str, QueueSettings],
) -> dict[str, QueueSettings]:
    """Give aliases of one store the options of it that one asks for; two may not differ."""
    result = dict(parsed)
    for option in STORE_OPTIONS:
        asked: dict[str, QueueSettings] = {}
        for alias, queue in result.items():
            if option not in queue.options or queue.location == IN_MEMORY:
                continue
            first = asked.setdefault(store_key(queue.location), queue)
            if first.options[option] != queue.options[option]:
                # URLs may hold a password.
                shown = f" {str(queue.location)!r}" if queue.backend == SQLITE_BACKEND else ""
                problem = Problem(
                    "E003",
                    f"LOCALQUEUE[{alias!r}] and LOCALQUEUE[{first.alias!r}] share the"
                    f" LOCATION{shown} and ask for different {option}.",
                    f"A store has one {option}: give both the same, or another LOCATION to one.",
                )
                result[alias] = replace(queue, problems=(*queue.problems, problem))
        for alias, queue in result.items():
            found = asked.get(store_key(queue.location))
            if found is not None and option not in queue.options:
                options = {**queue.options, option: found.options[option]}
                result[alias] = replace(queue, options=options)
    return result


def _default_location() -> Path | None:
    base = getattr(settings, "BASE_DIR", None)
    return None if base is None else Path(base) / "localqueue"


def _section(
    name: str, section: type[WorkerSettings] | type[ConsoleSettings]
) -> tuple[dict[str, Any], list[Problem]]:
    raw = getattr(settings, name, None)
    if raw is None:
        return {}, []
    if not isinstance(raw, Mapping):
        return {}, [_wrong_type(name, raw, "a dict")]
    known = {entry.name.upper(): entry.name for entry in fields(section)}
    problems = _unknown(name, raw, known)
    values = {}
    for key, attribute in known.items():
        if key not in raw:
            continue
        types = SECTION_TYPES[attribute]
        if _is_a(raw[key], types):
            values[attribute] = tuple(raw[key]) if list in types else raw[key]
        else:
            problems.append(_wrong_type(f"{name}['{key}']", raw[key], _names(types)))
    return values, problems


def _unknown(where: str, given: Mapping[Any, Any], known: Iterable[str]) -> list[Problem]:
    known = list(known)
    return [
        Problem("E002", f"{where} has the unknown key {key!r}.", suggestion(key, known))
        for key in given
        if key not in known
    ]


def _is_a(value: Any, types: tuple[type, ...]) -> bool:
    if isinstance(value, bool):
        return bool in types
    return isinstance(value, types)


def _names(types: tuple[type, ...]) -> str:
    return " or ".join(kind.__name__ for kind in types)


def _wrong_type(what: str, value: Any, wanted: str) -> Problem:
    return Problem("E006", f"{what} is {value!r}.", f"It must be {wanted}.")


def _follow(*, setting: str, **_: Any) -> None:
    if setting in ("LOCALQUEUE", "BASE_DIR"):
        queue_settings.cache_clear()


setting_changed.connect(_follow, dispatch_uid="django_localqueue.conf")
