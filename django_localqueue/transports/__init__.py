"""What carries statements to rqlite, and the seed's queue on it. Knows nothing of Django."""

from __future__ import annotations

from django_localqueue.transports.cluster import Timeouts
from django_localqueue.transports.messages import Lease
from django_localqueue.transports.nodes import NodeFacts
from django_localqueue.transports.rqlite import RqliteTransport
from django_localqueue.transports.rqlite_async import AsyncRqliteTransport
from django_localqueue.transports.tls import Tls

__all__ = [
    "AsyncRqliteTransport",
    "Lease",
    "NodeFacts",
    "RqliteTransport",
    "Timeouts",
    "Tls",
]
