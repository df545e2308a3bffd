"""Bars as SVG, for the pages that show results."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

_WIDTH, _BAR, _GAP, _LEFT, _RIGHT = 760, 18, 6, 190, 130
_OURS, _OTHERS = "#0b6e4f", "#9aa5b1"
_VERBS = {"put": "put", "get_ack": "get and ack", "exchange": "ack and get in one"}


def of(results: dict[str, Any]) -> dict[str, str]:
    """Return the plots of a run, by a word for the name of the file."""
    rows = results["rows"]
    found = {}
    for durability in ("normal", "full"):
        part = [
            row
            for row in rows
            if (row["section"], row["durability"]) == ("one process", durability)
        ]
        if part:
            first = part[0]["scenario"]
            few = [row for row in part if row["scenario"] == first]
            title = f"Microseconds an operation, {first}, durability {durability}"
            found[durability] = bars(title, _by_verb(few))
    depths = [
        row
        for row in rows
        if (row["section"], row["contestant"]) == ("one process", "ours")
        and row["durability"] == "normal"
    ]
    if depths:
        groups: dict[str, list[tuple[str, float, bool]]] = {}
        for row in depths:
            bar = (row["scenario"], row["us"], True)
            groups.setdefault(_VERBS[row["verb"]], []).append(bar)
        found["depth"] = bars("Microseconds an operation, whatever is stored", groups)
    return found


def _by_verb(rows: list[dict[str, Any]]) -> dict[str, list[tuple[str, float, bool]]]:
    groups: dict[str, list[tuple[str, float, bool]]] = {}
    for row in rows:
        name = row["contestant"]
        groups.setdefault(_VERBS[row["verb"]], []).append((name, row["us"], name == "ours"))
    return groups


def bars(title: str, groups: dict[str, list[tuple[str, float, bool]]]) -> str:
    """Return a plot: groups of bars, each with its name, its value and whether it is ours."""
    parts, y = [], 34
    for group, members in groups.items():
        greatest = max(value for _, value, _ in members)
        parts.append(_text(0, y + 12, group, "bold"))
        y += 22
        for name, value, ours in members:
            width = max(1.0, (_WIDTH - _LEFT - _RIGHT) * value / greatest)
            colour = _OURS if ours else _OTHERS
            parts.append(_text(12, y + 13, name))
            parts.append(
                f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{colour}"/>'
            )
            parts.append(_text(_LEFT + width + 6, y + 13, f"{value:,.1f}"))
            y += _BAR + _GAP
        y += 10
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" role="img"'
        f' aria-label="{escape(title)}" font-family="sans-serif" font-size="13">'
    )
    paper = f'<rect width="{_WIDTH}" height="{y}" fill="white"/>'
    return "\n".join([head, paper, _text(0, 16, title, "bold"), *parts, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-weight="{weight}">{escape(text)}</text>'
