"""How the console names a job in URLs, forms and the admin's log.

A key is the alias, a slash, and the public id, whatever characters those have; a
slash in the alias is escaped (as in JSON pointers), so that the first slash parts
the two. URLs carry the key in the admin's own quoting, as the links of ``LogEntry``
do; forms carry it percent-encoded, since browsers change line ends in form values.
"""

from __future__ import annotations

from urllib.parse import quote as percent_quote
from urllib.parse import unquote as percent_unquote

from django.contrib.admin.utils import unquote as admin_unquote
from django.http import Http404
from django.utils.translation import gettext as _


def make_key(alias: str, id: str) -> str:
    """Return the key of the job ``id`` of the queue ``alias``."""
    return f"{alias.replace('~', '~0').replace('/', '~1')}/{id}"


def split_key(key: str) -> tuple[str, str]:
    """Return alias and id; raises ``Http404`` for what ``make_key`` never made."""
    alias, slash, id = key.partition("/")
    if not slash:
        raise Http404(_("This is not the address of a job."))
    return alias.replace("~1", "/").replace("~0", "~"), id


def from_url(quoted: str) -> tuple[str, str]:
    """Return alias and id from a URL's part."""
    return split_key(admin_unquote(quoted))


def to_form(alias: str, id: str) -> str:
    """Return the key as a form's value."""
    return percent_quote(make_key(alias, id), safe="")


def from_form(value: str) -> tuple[str, str]:
    """Return alias and id from a form's value."""
    return split_key(percent_unquote(value))
