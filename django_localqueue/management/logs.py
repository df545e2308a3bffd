"""How the worker command logs: as the project set it up, else as text, or as JSON lines."""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
from collections.abc import Iterator
from typing import Any

LEVELS = {0: logging.WARNING, 1: logging.INFO}
#: Fields of a log record that the JSON has, where a record has them.
FIELDS = ("job_id", "queue", "task", "attempt", "worker", "outcome", "seconds")
JOBS = "django_localqueue.jobs"
LOGGERS = ("django_localqueue", "django.tasks", "django_tasks")


class JSONFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, process, and what the record adds."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line: dict[str, Any] = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
        }
        line |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


@contextlib.contextmanager
def logging_to_stderr(verbosity: int, form: str | None) -> Iterator[None]:
    """Show the log while the block runs.

    Without a form only where the project has not set up logging for it; with one, in that form
    instead of as the project's LOGGING says.
    """
    logger = logging.getLogger("django_localqueue")
    if form is None and logger.hasHandlers():
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(
        JSONFormatter()
        if form == "json"
        else logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    )
    if form is None and verbosity < 2:
        # Django logs each task too; one line more a job is for who asks for it.
        logging.getLogger(JOBS).setLevel(logging.WARNING)
    names = LOGGERS if form is not None else LOGGERS[:1]
    loggers = [logging.getLogger(name) for name in names]
    before = [(one, list(one.handlers), one.level, one.propagate) for one in loggers]
    for one in loggers:
        if form is not None:
            one.handlers = []
            one.propagate = False
        one.addHandler(handler)
        one.setLevel(LEVELS.get(verbosity, logging.DEBUG))
    try:
        yield
    finally:
        logging.getLogger(JOBS).setLevel(logging.NOTSET)
        for one, handlers, level, propagate in before:
            one.handlers = handlers
            one.setLevel(level)
            one.propagate = propagate
