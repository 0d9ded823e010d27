"""How fast a store takes results from several processes that record into one run.

Each process joins the run as a worker does and commits batches of results of about 3 kB. Printed
are results and commits per second, the mean time of a commit, and client CPU for each result. The
PostgreSQL server is that of the test suite, on this machine; it waits for the disk at each commit.

    python benchmarks/store_writes.py [--processes 1,2,4] [--batch 100] [--batches 50] [--json]
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from view import open_places

from assay.store import InsertRow, RunSpec, Store, build_result_row, sample_key
from assay.types import EvaluateResult, Message, Sample, Status, Trajectory

SPEC = RunSpec(
    id="writes",
    name="writes",
    config={},
    config_fingerprint="benchmark",
    dataset="none",
    dataset_fingerprint=None,
    total=None,
    repeats=1,
)
_ANSWER = "The answer follows from the numbers in the question. " * 25


@dataclass(frozen=True)
class Writes:
    """What some processes recorded at once."""

    store: str
    processes: int
    batch: int
    results_per_s: float
    commits_per_s: float
    commit_ms: float
    client_cpu_us: float
    """For each result."""


def build_row(number: int) -> InsertRow:
    sample = Sample(
        id=f"s{number}",
        index=number,
        input={"question": f"{number}?", "answer": str(number)},
        prompt=[Message(role="user", content=_ANSWER)],
        trajectory=Trajectory(messages=[Message(role="assistant", content=f"{number} {_ANSWER}")]),
        score=EvaluateResult(score=float(number % 2)),
        status=Status.COMPLETED,
    )
    return build_result_row(sample_key(SPEC.id, sample.id, 0, "benchmark"), sample, 0)


async def write_batches(where: str, part: str, batches: int, size: int) -> None:
    """Commit batches when a line arrives on stdin, and print the seconds that they took."""
    first = int(part.partition("/")[0]) * 10**6
    rows = [build_row(first + number) for number in range(batches * size)]
    with Store.open(where, create=False) as store:
        run = store.join_run(SPEC, shard=part)
        async with run.writer() as writer:
            print("ready", flush=True)
            sys.stdin.readline()
            started, cpu = time.perf_counter(), time.process_time()
            for start in range(0, len(rows), size):
                writer.submit(rows[start : start + size], _raise_error)
                await writer.flush()
            took = time.perf_counter() - started, time.process_time() - cpu
        run.finish("completed")
    print(json.dumps(took))


def _raise_error(outcome: list[bool] | Exception) -> None:
    if isinstance(outcome, Exception):
        raise outcome


def measure(where: str, processes: int, batches: int, size: int) -> Writes:
    """Let processes write at once."""
    with Store.open(where) as store:
        store.start_run(SPEC).finish("interrupted")

    def start(number: int) -> subprocess.Popen[str]:
        part = f"{number}/{processes}"
        words = [sys.executable, __file__, "--part", part, "--store", where]
        return subprocess.Popen(
            [*words, "--batches", str(batches), "--batch", str(size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    writers = [start(number) for number in range(1, processes + 1)]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    before = time.perf_counter()
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    took = [json.loads(writer.communicate()[0]) for writer in writers]
    wall_s = time.perf_counter() - before
    commits, results = processes * batches, processes * batches * size
    with Store.open(where) as store:
        assert store.run(SPEC.id).totals.recorded == results
        store.delete_run(SPEC.id)
        name = store.where.partition(":")[0] if "://" in where else "sqlite"
    return Writes(
        store=name,
        processes=processes,
        batch=size,
        results_per_s=results / wall_s,
        commits_per_s=commits / wall_s,
        commit_ms=1e3 * sum(wall for wall, _ in took) / commits,
        client_cpu_us=1e6 * sum(cpu for _, cpu in took) / results,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--processes", default="1,2,4", help="numbers of processes")
    parser.add_argument("--batch", type=int, default=100, help="results in one commit")
    parser.add_argument("--batches", type=int, default=50, help="commits of each process")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part is not None:
        asyncio.run(write_batches(args.store, args.part, args.batches, args.batch))
        return
    with tempfile.TemporaryDirectory() as folder:
        # The server runs as another user, who must be able to enter the folder.
        Path(folder).chmod(0o755)
        with open_places(Path(folder), postgresql=True) as places:
            found = [
                measure(where, int(count), args.batches, args.batch)
                for where in places
                for count in args.processes.split(",")
            ]
    if args.json:
        print(json.dumps({"writes": [asdict(each) for each in found]}))
        return
    print("store       processes  results/s  commits/s  ms a commit  client CPU us a result")
    for each in found:
        print(
            f"{each.store:<10}  {each.processes:9}  {each.results_per_s:9,.0f}  "
            f"{each.commits_per_s:9,.1f}  {each.commit_ms:11.1f}  {each.client_cpu_us:22.0f}"
        )


if __name__ == "__main__":
    main()
