"""System checks. Ids are fixed for ever; each names its mend in the hint.

Those that look at files carry the tag ``localqueue_files`` as well. Every process of a project
imports this package, so what few of them need, as the worker, is imported by the check itself.
"""

from __future__ import annotations

from django_localqueue.checks import settings, stores, tasks
from django_localqueue.checks.common import FILES_TAG, TAG

__all__ = ["FILES_TAG", "TAG", "settings", "stores", "tasks"]
