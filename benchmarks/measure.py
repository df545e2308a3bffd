"""The process that holds one contestant and does what it is told, one command a line.

usage: python -m benchmarks.measure NAME FOLDER DURABILITY GROUPS

Commands on standard input, each answered by one line of JSON with ``ops``, ``wall``
and ``cpu`` seconds (``native_engine/benches/bare.rs`` answers the first three too):

    put N LIMIT         N single puts, or as many as fit into LIMIT seconds
    get_ack N LIMIT     N times a get and an ack
    exchange N LIMIT    N times the ack of one job and the get of the next in one step
    fill N LIMIT        N jobs by the fastest way there is
    threads N T         N puts from T threads
    produce N LIMIT     as put, with latencies
    consume STOP VERB   get and ack, or exchange, until the file STOP is there and nothing is left
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.contestants import CONTESTANTS, Contestant

NAP = 0.0005  # what a queue that can't wait sleeps when it is empty
FILL_STEP = 10_000


class Meter:
    """Measures wall and processor time between its making and ``report``."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._wall = time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self._wall

    def report(self, ops: int) -> dict[str, Any]:
        return {"ops": ops, "wall": self.seconds(), "cpu": time.process_time() - self._cpu}


def micros(latencies: list[float]) -> list[int]:
    return [round(latency * 1e6) for latency in latencies]


def put(queue: Contestant, count: int, limit: float) -> dict[str, Any]:
    meter, done = Meter(), 0
    while done < count and meter.seconds() < limit:
        queue.put()
        done += 1
    return meter.report(done)


def get_ack(queue: Contestant, count: int, limit: float) -> dict[str, Any]:
    meter, done = Meter(), 0
    while done < count and meter.seconds() < limit:
        job = queue.get()
        if job is None:
            break
        queue.ack(job)
        done += 1
    return meter.report(done)


def exchange(queue: Contestant, count: int, limit: float) -> dict[str, Any]:
    meter, done, job = Meter(), 0, None
    while done < count and meter.seconds() < limit:
        job = queue.exchange(job)
        if job is None:
            break
        done += 1
    report = meter.report(done)
    if job is not None:
        queue.ack(job)
    return report


def fill(queue: Contestant, count: int, limit: float) -> dict[str, Any]:
    meter, done = Meter(), 0
    while done < count and meter.seconds() < limit:
        step = min(FILL_STEP, count - done)
        queue.fill(step)
        done += step
    return meter.report(done)


def from_threads(queue: Contestant, count: int, threads: int) -> dict[str, Any]:
    def run(latencies: list[float]) -> None:
        for _ in range(count // threads):
            start = time.perf_counter()
            queue.put()
            latencies.append(time.perf_counter() - start)

    results: list[list[float]] = [[] for _ in range(threads)]
    workers = [threading.Thread(target=run, args=(result,)) for result in results]
    meter = Meter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    report = meter.report(0)
    latencies = [one for result in results for one in result]
    return {**report, "ops": len(latencies), "latencies": micros(latencies)}


def produce(queue: Contestant, count: int, limit: float) -> dict[str, Any]:
    meter = Meter()
    latencies: list[float] = []
    while len(latencies) < count and meter.seconds() < limit:
        start = time.perf_counter()
        queue.put()
        latencies.append(time.perf_counter() - start)
    return {**meter.report(len(latencies)), "latencies": micros(latencies)}


def consume(queue: Contestant, stop: str, verb: str) -> dict[str, Any]:
    meter, job, done = Meter(), None, 0
    latencies: list[float] = []
    while True:
        last = os.path.exists(stop)  # before the get: what was put before it is then found
        start = time.perf_counter()
        if verb == "exchange":
            job = queue.exchange(job)
        else:
            job = queue.get()
            if job is not None:
                queue.ack(job)
        if job is not None:
            latencies.append(time.perf_counter() - start)
        elif last:
            return {**meter.report(done), "latencies": micros(latencies)}
        else:
            job = queue.wait()
            if job is None:
                time.sleep(NAP)
                continue
            if verb != "exchange":
                queue.ack(job)
        done += 1


COMMANDS: dict[str, Callable[[Contestant, str, str], dict[str, Any]]] = {
    "put": lambda queue, count, limit: put(queue, int(count), float(limit)),
    "get_ack": lambda queue, count, limit: get_ack(queue, int(count), float(limit)),
    "exchange": lambda queue, count, limit: exchange(queue, int(count), float(limit)),
    "fill": lambda queue, count, limit: fill(queue, int(count), float(limit)),
    "threads": lambda queue, count, threads: from_threads(queue, int(count), int(threads)),
    "produce": lambda queue, count, limit: produce(queue, int(count), float(limit)),
    "consume": consume,
}


def main() -> None:
    name, folder, durability, groups = sys.argv[1:]
    queue = CONTESTANTS[name](Path(folder), durability, int(groups))
    print(json.dumps({"ready": name}), flush=True)
    for line in sys.stdin:
        verb, *arguments = line.split()
        try:
            answer = COMMANDS[verb](queue, *arguments)
        except Exception as error:  # a peer may fail under load: a result, not the end
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    queue.close()


if __name__ == "__main__":
    main()
