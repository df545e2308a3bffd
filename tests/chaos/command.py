"""What the commands of runs have in common: where a run leaves its files, and how it ends."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

SHOWN = 20


@contextlib.contextmanager
def folder_of(parser: argparse.ArgumentParser, keep: Path | None) -> Iterator[Path]:
    """Give an empty folder: ``keep``, or one that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix=f"{parser.prog.rpartition('.')[2]}-") as temporary:
        folder = keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            parser.error(f"{folder} is not empty")
        yield folder


def conclude(run: str, problems: list[str]) -> int:
    """Say what was wrong with ``run``; return the exit code."""
    for problem in problems[:SHOWN]:
        print(f"\nWRONG: {problem}")
    if len(problems) > SHOWN:
        print(f"\n... and {len(problems) - SHOWN} more")
    verdict = f"{len(problems)} problems" if problems else "clean"
    print(f"{run}: {verdict}", flush=True)
    return 1 if problems else 0
