"""Makes the tables and plots of docs/benchmarks.md from the results that are kept.

A region of the page is made: from ``<!-- results: FILE, TITLE -->`` to ``<!-- end -->`` stands the
table TITLE of benchmarks/results/FILE.json, or with the title ``Run`` its command and machine. The
rest of the page is written by hand.
"""

from __future__ import annotations

import json
import re
from typing import Any

from benchmarks import plots, report
from benchmarks.environment import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "benchmarks" / "results"
IMAGES = ROOT / "docs" / "images"
_REGION = re.compile(
    r"(<!-- results: (?P<file>[\w-]+), (?P<title>[^>]+?) -->\n).*?(<!-- end -->)", re.S
)


def rewrite() -> None:
    """Rewrite the made regions of the page, and the plots that stand in it."""
    text = PAGE.read_text()
    PAGE.write_text(made(text))
    IMAGES.mkdir(exist_ok=True)
    for name in sorted({match["file"] for match in _REGION.finditer(text)}):
        for plot, image in plots.of(_results(name)).items():
            (IMAGES / f"benchmarks-{name}-{plot}.svg").write_text(image)


def made(text: str) -> str:
    """Return the page with its regions made anew; raises ``SystemExit`` for one that can't be."""
    return _REGION.sub(_region, text)


def _region(match: re.Match[str]) -> str:
    name, title = match["file"], match["title"]
    results = _results(name)
    found = {"Run": report.heading(results), **report.sections(results["rows"])}
    if title not in found:
        known = "; ".join(found)
        raise SystemExit(f"{name}.json has no table {title!r}, and has: {known}.")
    return f"{match[1]}\n{found[title]}\n\n{match[4]}"


def _results(name: str) -> dict[str, Any]:
    path = RESULTS / f"{name}.json"
    if not path.exists():
        raise SystemExit(f"docs/benchmarks.md wants {path.relative_to(ROOT)}, and it isn't there.")
    results: dict[str, Any] = json.loads(path.read_text())
    return results
