"""Where the project is, and the folder that everything it writes is in: ``.demo`` unless the
environment's ``DEMO_STATE`` names another."""

from __future__ import annotations

import os
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parents[1]
STATE = Path(os.environ.get("DEMO_STATE") or BASE_DIR / ".demo").resolve()
STATE.mkdir(mode=0o700, parents=True, exist_ok=True)
