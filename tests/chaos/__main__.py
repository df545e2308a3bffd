"""Runs clients on a real cluster under faults, then audits what they saw; exit code 1: not clean.

usage: python -m tests.chaos [--seconds 600] [--seed N] [--store queue|transport] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import random
import secrets
import signal
import sys
from pathlib import Path

from tests.chaos.command import conclude, folder_of
from tests.chaos.run import Run
from tests.rqlite.nodes import find_rqlited


def main() -> int:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--seconds", type=float, default=600, help="how long faults go on")
    parser.add_argument("--seed", type=int, help="of the schedule and the clients; default: new")
    parser.add_argument("--store", choices=("queue", "transport"), default="queue")
    parser.add_argument("--keep", type=Path, help="leave ledgers, data and logs in this folder")
    given = parser.parse_args()
    if find_rqlited() is None:
        print("rqlited is neither on PATH nor named by RQLITED.", file=sys.stderr)
        return 2
    seed = secrets.randbelow(10**9) if given.seed is None else given.seed
    print(f"seed {seed}, {given.store}, {given.seconds:.0f} seconds", flush=True)
    # A run that is asked to end must end its processes, whichever way it is asked.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with folder_of(parser, given.keep) as folder:
        problems = Run(given.store, folder, random.Random(seed)).run(given.seconds)
    return conclude(f"seed {seed}, {given.store}", problems)


if __name__ == "__main__":
    sys.exit(main())
