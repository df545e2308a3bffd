"""Named by a test case that is left out."""

from __future__ import annotations


class DBTaskResultAdmin:
    """The admin of the other package's model."""
