"""Addresses, a reader of pages, and what the tests of the console do again and again."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from django.contrib.admin.utils import quote
from django.test import Client
from django.urls import reverse

from django_localqueue import queues
from django_localqueue.console.keys import make_key, to_form

key = to_form

LIST = "/admin/django_localqueue/job/"
ACT = "/admin/django_localqueue/job/act/"
OVERVIEW = "/admin/django_localqueue/queue/"
VIEWER = ("view_queue", "view_job")
OPERATOR = (
    *VIEWER,
    *("view_job_payload", "retry_job", "purge_queue", "discard_job", "pause_queue"),
    *("run_job_now", "move_job", "export_job"),
)


class Page(HTMLParser):
    """What tests ask of a page: its forms' fields, links, and what a strict CSP forbids."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.fields: dict[str, list[str]] = {}
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.forbidden: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.elements.append((tag, values))
        self.tags.add(tag)
        if tag in ("input", "button") and values.get("name"):
            self.fields.setdefault(str(values["name"]), []).append(values.get("value") or "")
        if tag == "a" and values.get("href"):
            self.links.append(str(values["href"]))
        if tag == "style" or (tag == "script" and not values.get("src")):
            self.forbidden.append(tag)
        for name, value in attrs:
            if name == "style" or name.startswith("on"):
                self.forbidden.append(f"{tag} {name}")
            is_address = name in ("href", "src", "action", "formaction")
            if is_address and (value or "").strip().lower().startswith("javascript:"):
                self.forbidden.append(f"{tag} {name}={value}")

    def handle_data(self, data: str) -> None:
        self.text += data

    def field(self, name: str) -> str:
        return self.fields[name][0]


def confirm(client: Client, response: Any) -> Any:
    """Send the confirmation page's form as a browser would, the asked-for word typed."""
    assert response.status_code == 200
    fields = Page(response.content.decode()).fields
    fields.pop("csrfmiddlewaretoken", None)
    if "word" in fields:
        fields["word"] = ["purge"]
    return client.post(ACT, fields, follow=True)


def job_url(alias: str, id: str, name: str = "job_change", site: str = "admin") -> str:
    """Return the address of a job's page, or of another view of the job."""
    address = f"admin:django_localqueue_{name}"
    return reverse(address, args=[quote(make_key(alias, id))], current_app=site)


def states(alias: str = "default") -> tuple[int, int, int]:
    """Return the number of ready, failed and acked jobs."""
    stats = queues[alias].stats()
    return stats.ready, stats.failed, stats.acked


def messages(response: Any) -> str:
    """Return what the page told the user."""
    return " ".join(str(message) for message in response.context["messages"])
