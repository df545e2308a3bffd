"""Signals of the console."""

from __future__ import annotations

from django.dispatch import Signal

#: Sent after every act of an operator. ``sender`` is the model class (Job, Queue, Worker or
#: Schedule); ``action`` a key of ``audit``'s tables, "retry" or "pause_schedule" for instance;
#: ``user``; ``queues`` the aliases; ``ids`` the list of (alias, id) of an act on chosen jobs,
#: else None; ``filter`` the description of an act on all that match, else ""; ``counts`` is
#: {alias: Applied}, empty for what isn't done to jobs; ``name`` that of the worker or schedule,
#: else "". What a receiver raises is logged.
job_action = Signal()
