"""What samples in flight cost: memory and CPU of one process with many calls that wait.

A process evaluates twice as many samples as it has in flight, over HTTP with one call each, and
records them. The server runs in a second process, answers after some seconds and counts what it has
in flight. Each number is measured in a process of its own.

    python benchmarks/in_flight.py [--in-flight 100,1000,10000] [--latency 10] [--json]
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

from harness import Server, ask_with_assay, numbers, running_server
from peak_memory import peak_bytes


@dataclass(frozen=True)
class InFlight:
    """One process with so many samples in flight."""

    wanted: int
    most: int
    """In flight at once, as the server saw it."""

    peak_bytes: int
    cpu_ms: float
    """For each sample."""

    whole_s: float


def measure(wanted: int, latency_s: float) -> InFlight:
    with running_server(latency_s) as server:
        server.figures()
        child = [sys.executable, __file__, "--port", str(server.port), "--in-flight", str(wanted)]
        done = subprocess.run(child, stdout=subprocess.PIPE, text=True, check=True)
        seen = server.figures()
    assert seen["requests"] == 2 * wanted, seen
    return InFlight(wanted, seen["most_in_flight"], **json.loads(done.stdout))


def evaluate_here(port: int, wanted: int) -> None:
    """Evaluate in this process, and print what it took."""
    started, cpu = time.perf_counter(), time.process_time()
    asyncio.run(ask_with_assay(Server(port).api_base, 2 * wanted, wanted))
    took = {
        "peak_bytes": peak_bytes(),
        "cpu_ms": (time.process_time() - cpu) / (2 * wanted) * 1000,
        "whole_s": time.perf_counter() - started,
    }
    print(json.dumps(took))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--in-flight", type=numbers, default="100,1000,10000", help="%(default)s")
    parser.add_argument("--latency", type=float, default=10.0, help="seconds of an answer")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.port is not None:
        evaluate_here(args.port, args.in_flight[0])
        return
    found = [measure(wanted, args.latency) for wanted in args.in_flight]
    if args.json:
        print(json.dumps({"in_flight": [asdict(each) for each in found]}))
        return
    for each in found:
        print(
            f"{each.wanted:6} wanted, {each.most:6} in flight at most: "
            f"{each.peak_bytes / 1e6:6.0f} MB, {each.cpu_ms:.3f} ms CPU a sample, "
            f"{each.whole_s:.0f} s"
        )


if __name__ == "__main__":
    main()
