"""From samples to tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

VERBS = {"put": "put", "get_ack": "get+ack", "exchange": "exchange"}


def per_operation(answers: list[dict[str, Any]]) -> dict[str, float]:
    """Return the medians over the rounds, in microseconds an operation."""
    done = [answer for answer in answers if answer["ops"]]
    if not done:
        return {"us": float("nan"), "cpu_us": float("nan"), "rounds": 0}
    return {
        "us": statistics.median(answer["wall"] / answer["ops"] * 1e6 for answer in done),
        "cpu_us": statistics.median(answer["cpu"] / answer["ops"] * 1e6 for answer in done),
        "rounds": len(done),
    }


def spread(answers: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Return p50, p99 and the greatest of all latencies, in milliseconds."""
    latencies = sorted(one for answer in answers for one in answer.get("latencies", ()))
    if not latencies:
        return {"p50": float("nan"), "p99": float("nan"), "max": float("nan")}
    last = len(latencies) - 1
    points = {"p50": last // 2, "p99": last * 99 // 100, "max": last}
    return {name: latencies[index] / 1e3 for name, index in points.items()}


def together(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the median throughput of repeated runs, and the latencies of all."""
    rates = [answer["ops"] / answer["wall"] for answer in answers]
    return {"jobs_per_second": statistics.median(rates), "put": spread(answers)}


def tables(results: dict[str, Any]) -> str:
    """Return all that was measured as Markdown."""
    machine = results["machine"]
    parts = [
        f"Command: `{results['command']}`",
        f"Machine: {machine['cores']} cores ({machine['processor']}), {machine['system']},"
        f" CPython {machine['python']}, SQLite {machine['sqlite']} in the engine.",
    ]
    rows = results["rows"]
    for durability in dict.fromkeys(row["durability"] for row in rows):
        part = [row for row in rows if row["durability"] == durability]
        parts.append(_one_process(durability, [r for r in part if r["section"] == "one process"]))
        parts.append(_threads(durability, [r for r in part if r["section"] == "threads"]))
        parts.append(_processes(durability, [r for r in part if r["section"] == "processes"]))
    parts.append(_flatness(rows))
    parts.append("\n".join(f"- {note}" for note in results["notes"]))
    return "\n\n".join(part for part in parts if part)


def _one_process(durability: str, rows: list[dict[str, Any]]) -> str:
    cells = {(r["scenario"], r["contestant"], r["verb"]): r for r in rows}
    lines = [["scenario", "queue"]]
    for title in VERBS.values():
        lines[0] += [f"{title} us", "x ours"]
    places = {r["scenario"]: None for r in rows}
    pairs = [(place, name) for place in places for name in {r["contestant"]: None for r in rows}]
    for scenario, name in pairs:
        if (scenario, name, "put") not in cells:
            continue
        line = [scenario, name]
        for verb in VERBS:
            cell, own = cells.get((scenario, name, verb)), cells.get((scenario, "ours", verb))
            line += _cell(cell, own)
        lines.append(line)
    return _table(f"One process, `{durability}`", lines) if rows else ""


def _cell(cell: dict[str, Any] | None, own: dict[str, Any] | None) -> list[str]:
    if cell is None:
        return ["", ""]
    ratio = f"{cell['us'] / own['us']:.2f}" if own else ""
    return [f"{cell['us']:,.1f} ({cell['cpu_us']:,.1f})", ratio]


def _threads(durability: str, rows: list[dict[str, Any]]) -> str:
    lines = [["threads", "queue", "put/s", "p50/p99/max ms"]]
    for row in rows:
        name = row["contestant"]
        rate = f"{row['jobs_per_second']:,.0f}"
        lines.append([row["scenario"].split()[0], name, rate, _spread(row["put"])])
    return _table(f"Puts from threads of one process, `{durability}`", lines) if rows else ""


def _processes(durability: str, rows: list[dict[str, Any]]) -> str:
    lines = [
        [
            "producers:consumers",
            "queue",
            "jobs/s",
            "put p50/p99/max ms",
            "get p50/p99/max ms",
            "jobs a consumer",
        ]
    ]
    for row in rows:
        name = row["contestant"] + (" (exchange)" if row["verb"] == "exchange" else "")
        line = [row["scenario"], name, f"{row['jobs_per_second']:,.0f}"]
        line += [_spread(row["put"]), _spread(row["get"]), f"{row['least']} to {row['most']}"]
        lines.append(line)
    return _table(f"Several processes, `{durability}`", lines) if rows else ""


def _flatness(rows: list[dict[str, Any]]) -> str:
    """How much dearer than with the fewest jobs each full store is, ours and the bare loop."""
    cells = {
        (row["scenario"], row["contestant"], row["verb"]): row["us"]
        for row in rows
        if row["section"] == "one process" and row["durability"] == "normal"
    }
    names = list(dict.fromkeys(scenario for scenario, _, _ in cells))
    lines = [["scenario", "verb", "ours", "bare", "ours / bare"]]
    for scenario in names[1:]:
        for verb, title in VERBS.items():
            times = [
                cells.get((place, name, verb))
                for name in ("ours", "bare")
                for place in (scenario, names[0])
            ]
            if None in times:
                continue
            full_ours, few_ours, full_bare, few_bare = times
            ours, bare = full_ours / few_ours, full_bare / few_bare  # type: ignore[operator]
            lines.append([scenario, title, f"{ours:.2f}", f"{bare:.2f}", f"{ours / bare:.2f}"])
    return _table(f"Cost against that with {names[0]}", lines) if len(lines) > 1 else ""


def _spread(points: dict[str, float]) -> str:
    return " / ".join(f"{points[name]:.2f}" for name in ("p50", "p99", "max"))


def _table(title: str, lines: list[list[str]]) -> str:
    head, *body = ["| " + " | ".join(line) + " |" for line in lines]
    rule = "|" + " --- |" * len(lines[0])
    return "\n".join([f"### {title}", "", head, rule, *body])
