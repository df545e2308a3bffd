from __future__ import annotations

import sys

from benchmarks.queues import main

sys.exit(main())
