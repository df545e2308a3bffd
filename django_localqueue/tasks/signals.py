"""Signals beside Django's three (``task_enqueued``, ``task_started``, ``task_finished``).

The sender is the class of the backend, as with Django's. Receivers get ``job``, the
``Job`` that ran, and ``task_result``; they are called with ``send_robust``: one that raises
changes nothing. A job that is lost with its worker is told of by no signal, for nobody was
there: the console and the metrics show it.
"""

from __future__ import annotations

from django.dispatch import Signal

#: A task raised, and is to run again: also ``delay``, in seconds, and ``error``, the exception.
job_retried = Signal()
#: A job became a dead letter: also ``error``, the exception, and ``reason``. ``task_result`` is
#: None where the job was no call of a task that could be found.
job_dead_lettered = Signal()
