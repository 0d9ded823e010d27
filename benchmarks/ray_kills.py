"""Seeded runs on two Ray nodes, with a worker, a node or the driver killed by kill -9 at random.

    python benchmarks/ray_kills.py [--runs 20] [--samples 10000] [--seed 0]

After each run every sample must be recorded exactly once. Repeated model calls are counted and
printed, of each run and in total. Exits with status 1 if a sample is missing or recorded twice.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from scale import start_postgresql, start_server

from assay.store import Store
from ray_nodes import RayNodes, run_ray_nodes

_EVALUATION = """
from assay.runner import EvalConfig

config = EvalConfig(endpoint="mock:echo", score_fn="exact_answer", name="kills", concurrency=100)
dataset = "questions.jsonl"
"""


@dataclass(frozen=True)
class Outcome:
    """One run, after something was killed and it was resumed where needed."""

    killed: str
    status: int
    resumes: int
    recorded: int
    missing: int
    twice: int
    repeated_calls: int


def start_driver(folder: Path, nodes: RayNodes, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "assay", "eval", "evaluation.py", "--quiet"]
    command += ["--engine", "ray", "--ray-address", nodes.address, *words]
    environment = {**os.environ, **nodes.environment, "OPENAI_API_KEY": "sk-benchmark"}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def wait_for_share(store: Store, runs: int, count: int, driver: subprocess.Popen[bytes]) -> str:
    """Wait until the newest run has this many results. Returns its id."""
    while driver.poll() is None:
        rows = store.runs()
        if len(rows) > runs and rows[0].totals.recorded >= count:
            return rows[0].spec.id
        time.sleep(0.05)
    return store.runs()[0].spec.id


def execute_once(
    folder: Path, nodes: RayNodes, url: str, server: str, rng: random.Random
) -> Outcome:
    """Run the evaluation with one kill, and compare what was recorded with the dataset."""
    names = [json.loads(line)["id"] for line in (folder / "questions.jsonl").open()]
    options = ["--workers", "2", "--store", url, "--model", f"openai:any@{server}/v1"]
    victim = rng.choice(["worker", "worker", "node", "driver"])
    with Store.open(url) as store:
        runs = len(store.runs())
        driver = start_driver(folder, nodes, *options)
        run_id = wait_for_share(store, runs, rng.randrange(len(names) * 9 // 10), driver)
        workers = nodes.find_workers()
        if driver.poll() is not None or not workers:
            victim = "nothing: the run had ended"
        elif victim == "driver":
            driver.kill()
        elif victim == "worker":
            os.kill(rng.choice(workers), signal.SIGKILL)
        else:
            nodes.stop(nodes.last)
            nodes.start(cpus=2)
        status = driver.wait()
        resumes = 0
        while status != 0 and resumes < 3:
            resumes += 1
            status = start_driver(folder, nodes, *options, "--resume", run_id).wait()
        recorded = Counter(str(sample.id) for sample in store.run(run_id).samples())
    with urllib.request.urlopen(f"{server}/figures") as answer:
        calls = json.load(answer)["requests"]
    return Outcome(
        killed=victim,
        status=status,
        resumes=resumes,
        recorded=sum(recorded.values()),
        missing=len(set(names) - set(recorded)),
        twice=sum(1 for count in recorded.values() if count > 1),
        repeated_calls=calls - len(names),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill workers, nodes and drivers of Ray runs.")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "project"
        folder.mkdir()
        (folder / "evaluation.py").write_text(_EVALUATION)
        rows = ({"id": f"s{n}", "prompt": f"Q {n}", "answer": "42"} for n in range(args.samples))
        (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
        with (
            start_server(0.05) as server,
            start_postgresql(Path(temporary)) as url,
            run_ray_nodes(Path(temporary)) as nodes,
        ):
            nodes.start(cpus=2)
            nodes.start(cpus=2)
            for number in range(args.runs):
                rng = random.Random(args.seed + number)
                outcome = execute_once(folder, nodes, url, server, rng)
                outcomes.append(outcome)
                print(json.dumps({"seed": args.seed + number, **asdict(outcome)}), flush=True)
    repeated = [each.repeated_calls for each in outcomes]
    summary = {
        "killed": Counter(each.killed for each in outcomes),
        "samples": args.runs * args.samples,
        "missing": sum(each.missing for each in outcomes),
        "twice": sum(each.twice for each in outcomes),
        "repeated_calls": sum(repeated),
        "most_repeated_in_a_run": max(repeated, default=0),
    }
    print(json.dumps(summary))
    return 1 if any(each.missing or each.twice or each.status for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
