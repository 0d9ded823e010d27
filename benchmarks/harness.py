"""What evaluation itself costs: throughput beside a bare loop, worker processes, CPU, memory.

Throughput: `evaluate()` with recording on against a bare asyncio and aiohttp loop that sends the
same requests at the same concurrency to the same server, which answers after 50 ms and runs in a
second process. Workers, also a part of throughput: `assay eval --workers 2` against `--workers 1`,
both with the same number of requests in flight, once with a scorer that computes for about a
millisecond and once with one that returns at once. CPU: a model in the process that answers at
once, so that all of it is ours. Memory: one process for each size of dataset. Rounds are
interleaved and the best of each is kept, so that a machine that changes its speed changes all of
them: read the ratios.

    python benchmarks/harness.py [throughput] [workers] [cpu] [memory] [--json]
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import urlopen

import aiohttp
from peak_memory import peak_bytes

from assay.providers import ClientSettings
from assay.runner import EvalConfig, evaluate
from assay.types import Endpoint, Sample

PARTS = ("throughput", "workers", "cpu", "memory")
RATIO_BUDGET = {10: 0.95, 100: 0.95, 500: 0.85}
"""Least part of the bare loop's requests a second, by concurrency."""

WORKERS_BUDGET = 1.7
"""Least requests a second of two worker processes against one, with a scorer that computes."""

SCORER_STEPS = 100_000
"""About a millisecond. One process that computes nothing is already near the most that a server
of 50 ms allows, and this server needs a core as well: two processes could not show what they gain.
"""

CPU_BUDGET_MS = 0.15
AGENT_BUDGET = 1.3
AGENT_SAMPLES = 5000
FLAT_BUDGET = 1.2
"""Most that a sample of the largest size may cost, against one of the smallest."""

MEMORY_BUDGET = 1.2
LATENCY_S = 0.05
KEY = "benchmark-key"


def question(number: int) -> str:
    return f"What is {number} plus {number}? Give the number and nothing else."


def score(sample: Sample) -> float:
    return float(sample.response == sample.ground_truth)


def write_dataset(path: Path, rows: int) -> Path:
    """A JSON Lines file of short questions."""
    with path.open("w") as file:
        for n in range(rows):
            row = {"id": f"sum-{n}", "question": question(n), "answer": str(2 * n)}
            file.write(f"{json.dumps(row)}\n")
    return path


# Throughput


@dataclass(frozen=True)
class Server:
    """The server of `servers.py`, in a process of its own."""

    port: int

    @property
    def api_base(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def figures(self) -> dict[str, Any]:
        """What it saw since this was last asked for."""
        with urlopen(f"http://127.0.0.1:{self.port}/figures") as answer:
            figures: dict[str, Any] = json.load(answer)
        return figures


@contextmanager
def running_server(latency_s: float) -> Iterator[Server]:
    script = Path(__file__).with_name("servers.py")
    with subprocess.Popen(
        [sys.executable, str(script), "--latency", str(latency_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield Server(int(process.stdout.readline()))
        finally:
            process.communicate()


async def ask_bare(api_base: str, requests: int, concurrency: int) -> None:
    """The loop to beat: what one would write by hand, without retries, records or scores."""
    numbers = iter(range(requests))

    async def work(session: aiohttp.ClientSession) -> None:
        for number in numbers:
            messages = [{"role": "user", "content": question(number)}]
            body = {"model": "benchmark", "messages": messages}
            async with session.post(f"{api_base}/chat/completions", json=body) as response:
                answer = await response.json()
                assert answer["choices"][0]["message"]["content"]

    connector = aiohttp.TCPConnector(limit=concurrency)
    headers = {"Authorization": f"Bearer {KEY}"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        await asyncio.gather(*(work(session) for _ in range(concurrency)))


async def ask_with_assay(api_base: str, requests: int, concurrency: int) -> None:
    config = EvalConfig(
        endpoint=Endpoint(provider="openai", model="benchmark", api_base=api_base, api_key=KEY),
        score_fn=score,
        concurrency=concurrency,
        client=ClientSettings(concurrency=concurrency),
    )
    with tempfile.TemporaryDirectory() as folder:
        dataset = write_dataset(Path(folder) / "sums.jsonl", requests)
        report = await evaluate(dataset, config, store=Path(folder) / "assay.db")
    assert report.summary.results == requests


@dataclass(frozen=True)
class Pace:
    """One contender's way through one load."""

    requests_per_s: float
    """From the first request to the last answer, as the server saw it."""

    cpu_ms: float
    """Of the client's process, for each request, from the call to its return."""

    whole_s: float
    most_in_flight: int
    connections: int


def paced(ask: Callable[..., Any], server: Server, requests: int, concurrency: int) -> Pace:
    server.figures()
    began, cpu = time.perf_counter(), time.process_time()
    asyncio.run(ask(server.api_base, requests, concurrency))
    whole_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    seen = server.figures()
    assert seen["requests"] == requests, seen
    return Pace(
        requests_per_s=requests / (seen["last_s"] - seen["first_s"]),
        cpu_ms=cpu_s / requests * 1000,
        whole_s=whole_s,
        most_in_flight=seen["most_in_flight"],
        connections=seen["connections"],
    )


def measure_throughput(loads: Sequence[tuple[int, int]], rounds: int) -> list[dict[str, Any]]:
    """For each (concurrency, requests): the best pace of both, and the ratio."""
    contenders = {"assay": ask_with_assay, "bare": ask_bare}
    paces: dict[tuple[str, int], list[Pace]] = {}
    with running_server(LATENCY_S) as server:
        for ask in contenders.values():
            paced(ask, server, 20, 10)
        for _ in range(rounds):
            for concurrency, requests in loads:
                for name, ask in contenders.items():
                    pace = paced(ask, server, requests, concurrency)
                    paces.setdefault((name, concurrency), []).append(pace)
    return [
        compared(paces["bare", concurrency], paces["assay", concurrency], concurrency, requests)
        for concurrency, requests in loads
    ]


def compared(
    bare: list[Pace], assay: list[Pace], concurrency: int, requests: int
) -> dict[str, Any]:
    best = {
        name: max(paces, key=lambda pace: pace.requests_per_s)
        for name, paces in (("bare", bare), ("assay", assay))
    }
    return {
        "concurrency": concurrency,
        "requests": requests,
        **{name: vars(pace) for name, pace in best.items()},
        "ratio": best["assay"].requests_per_s / best["bare"].requests_per_s,
        "budget": RATIO_BUDGET.get(concurrency),
    }


EVALUATION = """
from assay.providers import ClientSettings
from assay.runner import EvalConfig
from assay.types import Endpoint


def score(sample):
    return float(sum(range({steps})) >= 0)


config = EvalConfig(
    endpoint=Endpoint(provider="openai", model="benchmark", api_base={api_base!r}, api_key={key!r}),
    score_fn=score,
    concurrency={concurrency},
    client=ClientSettings(concurrency={concurrency}),
)
dataset = "sums.jsonl"
"""


def pace_workers(
    server: Server, load: tuple[int, int], workers: int, scorer_steps: int
) -> dict[str, Any]:
    """Run the command with so many worker processes: requests a second, as the server saw them."""
    concurrency, requests = load
    with tempfile.TemporaryDirectory() as folder:
        write_dataset(Path(folder) / "sums.jsonl", requests)
        text = EVALUATION.format(
            api_base=server.api_base, key=KEY, concurrency=concurrency, steps=scorer_steps
        )
        (Path(folder) / "evaluation.py").write_text(text)
        server.figures()
        words = ("-m", "assay", "eval", "evaluation.py", "--workers", str(workers), "--quiet")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], cwd=folder, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seen = server.figures()
    assert seen["requests"] == requests, seen
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "requests_per_s": requests / (seen["last_s"] - seen["first_s"]),
        "cpu_ms": cpu_s / requests * 1000,
        "most_in_flight": seen["most_in_flight"],
    }


def measure_workers(load: tuple[int, int], rounds: int) -> dict[str, Any]:
    """Compare two worker processes with one, and give the load of the machine beside it."""
    found: dict[str, Any] = {"concurrency": load[0], "budget": WORKERS_BUDGET}
    with running_server(LATENCY_S) as server:
        for name, steps in (("computing", SCORER_STEPS), ("instant", 0)):
            paces: dict[int, list[dict[str, Any]]] = {1: [], 2: []}
            for _ in range(rounds):
                for workers, each in paces.items():
                    each.append(pace_workers(server, load, workers, steps))
            best = {
                workers: max(each, key=lambda pace: float(pace["requests_per_s"]))
                for workers, each in paces.items()
            }
            ratio = best[2]["requests_per_s"] / best[1]["requests_per_s"]
            found[name] = {"workers": best, "ratio": ratio}
    return found | {"cores": os.cpu_count(), "load": os.getloadavg()[0]}


# CPU


def answer(sample: Sample) -> str:
    return "42"


async def answer_async(sample: Sample) -> str:
    return "42"


AGENTS: dict[str, Any] = {
    "model": Endpoint(provider="mock", model="fixed", extra_params={"text": "42"}),
    "function": answer,
    "async function": answer_async,
}


def evaluate_without_latency(rows: int, agent: str = "model") -> float:
    """CPU seconds of one evaluation of an agent that answers at once, all threads together."""
    config = EvalConfig(agent=AGENTS[agent], score_fn=score)
    with tempfile.TemporaryDirectory() as folder:
        dataset = write_dataset(Path(folder) / "sums.jsonl", rows)
        began = time.process_time()
        report = asyncio.run(evaluate(dataset, config, store=Path(folder) / "assay.db"))
        spent = time.process_time() - began
    assert report.summary.results == rows
    return spent


def yardstick_ns() -> float:
    """CPU of one turn of a fixed loop: how fast this machine is at the moment."""
    began = time.process_time_ns()
    total = 0
    for n in range(300_000):
        total += n & 7
    return (time.process_time_ns() - began) / 300_000


def measure_cpu(sizes: Sequence[int], rounds: int) -> dict[str, Any]:
    """Best CPU milliseconds a sample, by size. A first run, not counted, pays for imports."""
    evaluate_without_latency(50)
    best = dict.fromkeys(sizes, float("inf"))
    turns: dict[int, list[float]] = {size: [] for size in sizes}
    yardsticks: list[float] = []
    for _ in range(rounds):
        for size in sizes:
            before = yardstick_ns()
            ms = evaluate_without_latency(size) / size * 1000
            beside = (before + yardstick_ns()) / 2
            yardsticks.append(beside)
            best[size] = min(best[size], ms)
            turns[size].append(ms * 1e6 / beside)
    usual = {size: median(each) for size, each in turns.items()}
    return {
        "agents_against_model": measure_agents(min(max(sizes), AGENT_SAMPLES), rounds),
        "agent_budget": AGENT_BUDGET,
        "cpu_ms_per_sample": {str(size): ms for size, ms in best.items()},
        "turns_per_sample": {str(size): each for size, each in usual.items()},
        "budget_ms": CPU_BUDGET_MS,
        # In turns: the machine may change its speed while the largest size goes on.
        "largest_against_smallest": usual[max(sizes)] / usual[min(sizes)],
        "flat_budget": FLAT_BUDGET,
        "yardstick_ns": {"best": min(yardsticks), "worst": max(yardsticks)},
    }


def measure_agents(size: int, rounds: int) -> dict[str, float]:
    """Median CPU of each kind of agent against a model, in alternating runs."""
    spent: dict[str, list[float]] = {name: [] for name in AGENTS}
    for name in AGENTS:
        evaluate_without_latency(50, name)
    for _ in range(max(rounds, 3)):
        for name, seconds in spent.items():
            seconds.append(evaluate_without_latency(size, name))
    base = median(spent["model"])
    return {name: median(seconds) / base for name, seconds in spent.items() if name != "model"}


# Memory


def measure_memory(sizes: Sequence[int]) -> dict[str, Any]:
    """Peak bytes of a process that evaluates so many samples, by their number."""
    peaks: dict[int, int] = {}
    for size in sizes:
        child = [sys.executable, str(Path(__file__)), "--peak-of", str(size)]
        done = subprocess.run(child, stdout=subprocess.PIPE, text=True, check=True)
        peaks[size] = int(done.stdout)
    return {
        "peak_bytes": {str(size): peak for size, peak in peaks.items()},
        "ratio": peaks[max(sizes)] / peaks[min(sizes)],
        "budget": MEMORY_BUDGET,
    }


# Command


def show(found: dict[str, Any]) -> None:
    if "throughput" in found:
        head = ("concurrency", "bare /s", "assay /s", "ratio", "budget", "bare CPU", "assay CPU")
        print(" ".join(f"{title:>11}" for title in head))
        for load in found["throughput"]:
            bare, ours, budget = load["bare"], load["assay"], load["budget"]
            print(
                f"{load['concurrency']:11} {bare['requests_per_s']:11.0f} "
                f"{ours['requests_per_s']:11.0f} {load['ratio']:11.2f} "
                f"{'' if budget is None else budget:>11} {bare['cpu_ms']:8.3f} ms "
                f"{ours['cpu_ms']:8.3f} ms"
            )
    if "workers" in found:
        both = found["workers"]
        for name in ("computing", "instant"):
            for workers, pace in both[name]["workers"].items():
                print(
                    f"{name:9} scorer, {workers} workers {pace['requests_per_s']:9.0f} requests/s, "
                    f"{pace['cpu_ms']:.3f} ms CPU each, {pace['most_in_flight']} in flight"
                )
        print(
            f"ratio {both['computing']['ratio']:.2f} with a scorer that computes, budget "
            f"{both['budget']} on idle cores; {both['instant']['ratio']:.2f} with one that does "
            f"not; {both['cores']} cores, load {both['load']:.1f}"
        )
    if "cpu" in found:
        cpu = found["cpu"]
        for size, ms in cpu["cpu_ms_per_sample"].items():
            turns = cpu["turns_per_sample"][size]
            print(
                f"{size:>9} samples {ms:8.3f} ms CPU each, budget {cpu['budget_ms']}; "
                f"{turns:5.0f} turns of the yardstick"
            )
        for name, ratio in cpu["agents_against_model"].items():
            print(f"{name:>17} {ratio:8.2f} x a model, budget {cpu['agent_budget']}")
        yardstick = cpu["yardstick_ns"]
        print(
            f"largest against smallest {cpu['largest_against_smallest']:.2f}, "
            f"budget {cpu['flat_budget']}; "
            f"yardstick {yardstick['best']:.1f} to {yardstick['worst']:.1f} ns"
        )
    if "memory" in found:
        memory = found["memory"]
        for size, peak in memory["peak_bytes"].items():
            print(f"{size:>9} rows {peak / 1e6:11.1f} MB at most")
        print(f"ratio {memory['ratio']:.2f}, budget {memory['budget']}")


def number(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def numbers(text: str) -> list[int]:
    return [number(part) for part in text.split(",")]


def loads(text: str) -> list[tuple[int, int]]:
    pairs = [part.split(":") for part in text.split(",")]
    if any(len(pair) != 2 for pair in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is not concurrency:requests")
    return [(number(concurrency), number(requests)) for concurrency, requests in pairs]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all if none")
    parser.add_argument("--rounds", type=number, default=3)
    parser.add_argument(
        "--loads",
        type=loads,
        default="10:400,100:3000,500:8000",
        help="concurrency:requests pairs (%(default)s)",
    )
    parser.add_argument("--samples", type=numbers, default="1000,10000,100000", help="%(default)s")
    parser.add_argument("--rows", type=numbers, default="10000,1000000", help="%(default)s")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peak-of", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"{', '.join(sorted(unknown))}: not among {', '.join(PARTS)}")
    return args


def main() -> None:
    args = arguments()
    if args.peak_of is not None:
        evaluate_without_latency(args.peak_of)
        print(peak_bytes())
        return
    parts = args.parts or PARTS
    found: dict[str, Any] = {}
    if "throughput" in parts:
        found["throughput"] = measure_throughput(args.loads, args.rounds)
    if {"throughput", "workers"} & set(parts):
        found["workers"] = measure_workers(args.loads[-1], args.rounds)
    if "cpu" in parts:
        found["cpu"] = measure_cpu(args.samples, args.rounds)
    if "memory" in parts:
        found["memory"] = measure_memory(args.rows)
    if args.json:
        print(json.dumps(found))
    else:
        show(found)


if __name__ == "__main__":
    main()
