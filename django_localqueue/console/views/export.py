"""The filtered list as a file: CSV or JSON lines, streamed, with a bound."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import Any

from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse

from django_localqueue.console import audit, permissions
from django_localqueue.console.audit import Act
from django_localqueue.console.filters import FilterForm
from django_localqueue.console.redact import redacted
from django_localqueue.console.stores import Cursor, merged_page
from django_localqueue.console.views.base import ConsoleView
from django_localqueue.types import JobFilter, JobRecord, to_datetime

#: Jobs that one file has at most.
EXPORT_LIMIT = 100_000
PAGE = 500
COLUMNS = (
    *("queue", "id", "state", "reason", "task", "attempts", "priority", "group"),
    *("created_at", "started_at", "finished_at", "due_at", "worker"),
    *("error_class", "error_message", "error_place", "payload"),
)
#: What a spreadsheet takes for the beginning of a formula.
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")


class _Line:
    """Takes what the csv module writes."""

    def write(self, text: str) -> str:
        return text


def cell(value: Any) -> str:
    """Return a value as a cell that no spreadsheet runs as a formula."""
    text = "" if value is None else str(value)
    return f"'{text}" if text.lstrip(" ").startswith(FORMULAS) else text


def row(alias: str, record: JobRecord, with_payload: bool) -> dict[str, Any]:
    """Return what a file tells of a job."""
    error = record.error

    def time(value: int | None) -> str | None:
        return None if value is None else to_datetime(value).isoformat()

    return {
        "queue": alias,
        "id": record.id,
        "state": record.state,
        "reason": record.reason,
        "task": record.task,
        "attempts": record.attempts,
        "priority": record.priority,
        "group": record.group_id,
        "created_at": time(record.created_at),
        "started_at": time(record.started_at),
        "finished_at": time(record.finished_at),
        "due_at": time(record.due_at),
        "worker": record.worker,
        "error_class": error.error_class if error else None,
        "error_message": error.message if error else None,
        "error_place": error.place if error else None,
        "payload": payload(record) if with_payload else None,
    }


def payload(record: JobRecord) -> str:
    """Return the payload as JSON without its secrets; None of it where it can't be decoded."""
    try:
        data = redacted(json.loads(record.payload.decode()), record)
        return json.dumps(data, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return ""


class ExportView(ConsoleView):
    """All that match, newest first, up to ``EXPORT_LIMIT`` jobs."""

    def get(self, request: HttpRequest) -> HttpResponseBase:
        exportable = permissions.require_some(request, "export_job")
        names = permissions.allowed(request, "view_job", exportable)
        form = FilterForm(request.GET, names)
        kind = request.GET.get("as", "csv")
        if kind not in ("csv", "jsonl") or not form.is_valid():
            raise BadRequest("The filter or the kind of file was not understood.")
        chosen = form.chosen()
        readable = set(permissions.allowed(request, "view_job_payload", chosen))
        audit.record(request, Act("export", chosen, filter="; ".join(form.describe())))
        rows = self.rows(chosen, form.job_filter(), readable)
        lines = self.csv(rows) if kind == "csv" else self.jsonl(rows)
        types = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}
        return StreamingHttpResponse(
            lines,
            content_type=types[kind],
            headers={
                "Content-Disposition": f'attachment; filename="jobs-{form.state_name()}.{kind}"',
                "X-Content-Type-Options": "nosniff",
            },
        )

    def rows(
        self, names: list[str], filter: JobFilter, readable: set[str]
    ) -> Iterator[dict[str, Any]]:
        """Read page by page while the file is sent."""
        after: Cursor | None = None
        left = EXPORT_LIMIT
        while left > 0:
            page = merged_page(names, filter, min(PAGE, left), after)
            for alias, record in page.records:
                yield row(alias, record, alias in readable)
            left -= len(page.records)
            if page.next is None:
                return
            after = page.next

    def csv(self, rows: Iterator[dict[str, Any]]) -> Iterator[str]:
        """Return the lines of a CSV file, formulas disarmed."""
        writer = csv.writer(_Line())
        yield writer.writerow(COLUMNS)
        for values in rows:
            yield writer.writerow([cell(values[name]) for name in COLUMNS])

    def jsonl(self, rows: Iterator[dict[str, Any]]) -> Iterator[str]:
        """Return a JSON object a line."""
        for values in rows:
            yield json.dumps(values, ensure_ascii=True) + "\n"
