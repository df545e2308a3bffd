"""Print what pyproject.toml requires, one requirement a line: the package's own and its extras'.

Usage: python requirements.py [EXTRA ...]. It needs nothing but the standard library, so
that an environment can be filled before the package itself is built.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def requirements(*extras: str) -> list[str]:
    """Return the requirements of the package and of these extras."""
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    found = list(project["dependencies"])
    for extra in extras:
        found += project["optional-dependencies"][extra]
    return found


if __name__ == "__main__":
    print("\n".join(requirements(*sys.argv[1:])))
