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
    parts = [heading(results)]
    for title, part in sections(results["rows"]).items():
        parts.append(f"### {title}\n\n{part}")
    parts.append("\n".join(f"- {note}" for note in results["notes"]))
    return "\n\n".join(part for part in parts if part)


def heading(results: dict[str, Any]) -> str:
    """Return the command and the machine of a run."""
    machine = results["machine"]
    return (
        f"Command: `{results['command']}`\n\n"
        f"Machine: {machine['cores']} cores ({machine['processor']}), {machine['system']},"
        f" CPython {machine['python']}, SQLite {machine['sqlite']} in the engine."
    )


def sections(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return the tables by their titles, as Markdown; only those that have rows."""
    makers = {
        "One process": ("one process", _one_process),
        "Puts from threads of one process": ("threads", _threads),
        "Several processes": ("processes", _processes),
    }
    found = {}
    for title, (section, make) in makers.items():
        for durability in ("normal", "full"):
            part = [r for r in rows if (r["section"], r["durability"]) == (section, durability)]
            if part:
                found[f"{title}, `{durability}`"] = _table(make(part))
    flat = _flatness(rows)
    if len(flat) > 1:
        found["Cost against that with the fewest jobs"] = _table(flat)
    alone = {
        "A store full of jobs in every state": ("at depth", _at_depth),
        "Waking a process that waits": ("waking", _waking),
        "Steady use": ("steady", _steady),
        "Django tasks": ("tasks", _tasks),
    }
    for title, (section, make) in alone.items():
        part = [row for row in rows if row["section"] == section]
        if part:
            found[title] = _table(make(part))
    return found


def _at_depth(rows: list[dict[str, Any]]) -> list[list[str]]:
    lines = [["operation, us", *(row["scenario"] for row in rows)]]
    for verb in rows[0]["us"]:
        lines.append([verb, *(f"{row['us'][verb]:,.1f}" for row in rows)])
    return lines


def _waking(rows: list[dict[str, Any]]) -> list[list[str]]:
    lines = [["", "from put to job p50/p99/max ms", "processor while it waits"]]
    for row in rows:
        lines.append([row["scenario"], _spread(row["get"]), f"{row['idle_percent']:.2f} %"])
    return lines


def _steady(rows: list[dict[str, Any]]) -> list[list[str]]:
    lines = [["round", "file MB", "longest log MB", "memory MB"]]
    for row in rows:
        for number, sizes in enumerate(row["rounds"], 1):
            sizes_mb = [f"{sizes[what] / 1e6:.1f}" for what in ("file", "log", "memory")]
            lines.append([f"{number}", *sizes_mb])
    return lines


def _tasks(rows: list[dict[str, Any]]) -> list[list[str]]:
    lines = [
        [
            "system",
            "enqueues/s",
            "no-op tasks/s",
            "ours is x",
            "one ORM write tasks/s",
            "ours is x",
            "wake-up median / worst ms",
            "idle % of a core",
            "RSS MiB",
            "killed worker's task again",
        ]
    ]
    for row in rows:
        line = [row["contestant"], _number(row, "enqueues")]
        for figure in ("noop", "write"):
            line += [_number(row, figure), _number(row, f"{figure}_ratio", 1)]
        line.append(f"{_number(row, 'wake_median_ms', 2)} / {_number(row, 'wake_worst_ms', 2)}")
        line += [_number(row, "idle_percent", 2), _number(row, "rss_mib", 1), _again(row)]
        lines.append(line)
    return lines


def _number(row: dict[str, Any], figure: str, digits: int = 0) -> str:
    return f"{row[figure]:,.{digits}f}" if figure in row else ""


def _again(row: dict[str, Any]) -> str:
    if "again_seconds" not in row:
        return ""
    seconds = row["again_seconds"]
    return "no" if seconds is None else f"after {seconds:.0f} s"


def _one_process(rows: list[dict[str, Any]]) -> list[list[str]]:
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
    return lines


def _cell(cell: dict[str, Any] | None, own: dict[str, Any] | None) -> list[str]:
    if cell is None:
        return ["", ""]
    ratio = f"{cell['us'] / own['us']:.2f}" if own else ""
    return [f"{cell['us']:,.1f} ({cell['cpu_us']:,.1f})", ratio]


def _threads(rows: list[dict[str, Any]]) -> list[list[str]]:
    lines = [["threads", "queue", "put/s", "p50/p99/max ms"]]
    for row in rows:
        name = row["contestant"]
        rate = f"{row['jobs_per_second']:,.0f}"
        lines.append([row["scenario"].split()[0], name, rate, _spread(row["put"])])
    return lines


def _processes(rows: list[dict[str, Any]]) -> list[list[str]]:
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
    return lines


def _flatness(rows: list[dict[str, Any]]) -> list[list[str]]:
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
    return lines


def _spread(points: dict[str, float]) -> str:
    return " / ".join(f"{points[name]:.2f}" for name in ("p50", "p99", "max"))


def _table(lines: list[list[str]]) -> str:
    head, *body = ["| " + " | ".join(line) + " |" for line in lines]
    rule = "|" + " --- |" * len(lines[0])
    return "\n".join([head, rule, *body])
