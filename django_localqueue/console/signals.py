"""Signals of the console."""

from __future__ import annotations

from django.dispatch import Signal

#: Sent after every act of an operator. ``sender`` is the model class (Job or Queue);
#: ``action`` is "retry", "purge", "discard", "pause" or "resume"; ``user``; ``ids`` is the
#: list of (alias, id) of an act on chosen jobs, else None; ``filter`` is the description of
#: an act on all that match, else ""; ``counts`` is {alias: Applied}, empty for pause and
#: resume, whose ``queues`` says where. What a receiver raises is logged.
job_action = Signal()
