"""Kills producers and workers at any moment, then audits; exit code 1: not clean.

usage: python -m tests.crash [--kills 2000] [--seed N] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import random
import secrets
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from tests.chaos.command import conclude, folder_of
from tests.crash import build


def main() -> int:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash")
    parser.add_argument("--kills", type=int, default=2_000, help="how many processes are killed")
    parser.add_argument("--seed", type=int, help="of what is done and when; default: new")
    parser.add_argument("--keep", type=Path, help="leave ledgers and stores in this folder")
    given = parser.parse_args()
    seed = secrets.randbelow(10**9) if given.seed is None else given.seed
    print(f"seed {seed}, {given.kills} kills", flush=True)
    try:
        build.use(build.build())
    except build.CannotBuild as error:
        print(f"The engine with failpoints can't be built: {error}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with folder_of(parser, given.keep) as folder:
        problems, deaths = _rounds(folder, given.kills, random.Random(seed), given.keep is not None)
    by_failpoint = {name: count for name, count in sorted(deaths.items()) if name != "outside"}
    print(f"killed from outside: {deaths['outside']}; by failpoint:")
    print("  " + (", ".join(f"{name} {count}" for name, count in by_failpoint.items()) or "none"))
    never = [point for point in build.failpoints() if not deaths[point]]
    print(f"never died of: {', '.join(never) or 'none'}")
    return conclude(f"seed {seed}, {deaths.total()} kills", problems)


def _rounds(
    folder: Path, kills: int, rng: random.Random, keep: bool
) -> tuple[list[str], Counter[str]]:
    from tests.crash.run import KILLS_A_ROUND, Round  # the engine is chosen before

    began = time.monotonic()
    problems: list[str] = []
    deaths: Counter[str] = Counter()
    number = 0
    while deaths.total() < kills:
        number += 1
        place = folder / f"round{number}"
        place.mkdir()
        this = Round(place, random.Random(rng.random()), deaths)
        summary = this.run(min(KILLS_A_ROUND, kills - deaths.total()))
        deaths += this.deaths
        problems += [f"round {number}: {problem}" for problem in this.problems]
        print(f"{time.monotonic() - began:7.1f}  {deaths.total()} kills; {summary}", flush=True)
        if not keep and not this.problems:
            shutil.rmtree(place)
    return problems, deaths


if __name__ == "__main__":
    sys.exit(main())
