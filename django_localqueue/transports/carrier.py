"""What the clients over ``requests`` and over ``httpx`` have in common."""

from __future__ import annotations

from collections.abc import Sequence

from django_localqueue.transports.clock import LeaderClock
from django_localqueue.transports.cluster import Cluster, Timeouts
from django_localqueue.transports.errors import MissingExtra
from django_localqueue.transports.nodes import NodeFacts, parse_location
from django_localqueue.transports.tls import Tls, context_for


class Carrier:
    """A cluster and its clock, for a class that carries their requests.

    Raises ``InvalidInput`` for what it refuses.
    """

    def __init__(
        self,
        location: str | Sequence[str],
        auth: tuple[str, str] | None,
        tls: Tls | None,
        timeouts: Timeouts | None,
    ) -> None:
        nodes, login = parse_location(location, auth)
        self._tls = tls or Tls()
        # Made by both carriers: a bad file is told now, not by the first verb.
        self._context = context_for(tls, nodes.all[0].url)
        self.cluster = Cluster(nodes, login, timeouts)
        self.clock = LeaderClock(self.cluster)
        self._closed = False

    def __repr__(self) -> str:
        urls = ", ".join(node.url for node in self.cluster.nodes.all)
        return f"<{type(self).__name__} {urls}>"

    def nodes(self) -> list[NodeFacts]:
        """Return what is known of each node."""
        return self.cluster.nodes.facts()


def missing(user: str, library: str, extra: str) -> MissingExtra:
    """Return what to raise where the HTTP library of a carrier is not installed."""
    return MissingExtra(f"{user} needs {library}: pip install django-localqueue[{extra}]")
