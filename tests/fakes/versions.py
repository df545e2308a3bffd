"""In what the versions of rqlite differ, as far as a client can see it.

Each field names where it was found: "facts" is the collection of what rqlite 8.43.4, 9.4.5 and
10.2.7 were seen to answer, by section; summarised in docs/rqlite.md.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Version:
    """One version's guise. What all three have in common is in ``database`` and ``rqlite``."""

    header: str
    no_leader: tuple[int, str]  # facts 0.9: on /db/* without ?redirect, 8.40.0 to 9.4.0 said 500
    names_itself: bool  # facts 1, headers: X-RQLITE-SERVED-BY also when local, from 9.4.1
    prefixes_forwarded: bool  # facts 1: "node failed to process ..." up to 9.4.0
    returning_rolls_back: bool  # facts 0.5: not from 8.23.0 to 9.4.1
    sends_twice: bool  # facts 0.3: since 10.0.0 a follower sends a failed forward again
    asks_for_login: bool  # facts 1, 401: WWW-Authenticate only in 10
    associative_writes: bool  # facts 2: ?associative on /db/execute from 9.2.0
    readyz_reads: bool  # facts 5: the line "db ok" from 10.0.0


V8 = Version(
    header="8.43.4",
    no_leader=(500, "leader address: leader not found"),
    names_itself=False,
    prefixes_forwarded=True,
    returning_rolls_back=False,
    sends_twice=False,
    asks_for_login=False,
    associative_writes=False,
    readyz_reads=False,
)
V9 = Version(
    header="9.4.5",
    no_leader=(503, "leader not found"),
    names_itself=True,
    prefixes_forwarded=False,
    returning_rolls_back=True,
    sends_twice=False,
    asks_for_login=False,
    associative_writes=True,
    readyz_reads=False,
)
V10 = Version(
    header="10.2.7",
    no_leader=(503, "leader not found"),
    names_itself=True,
    prefixes_forwarded=False,
    returning_rolls_back=True,
    sends_twice=True,
    asks_for_login=True,
    associative_writes=True,
    readyz_reads=True,
)
VERSIONS = {"v8": V8, "v9": V9, "v10": V10}
