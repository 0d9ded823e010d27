"""What starting costs: CPU seconds of the reading commands and of a first `evaluate()`.

Each figure is the CPU time (user and system) of whole processes, the least of a few rounds after
one that is not counted, which compiles and caches what it imports. Commands read a store of two
runs of a few samples. The first evaluation is a process that imports assay, evaluates one sample
with the mock model and records it, less an interpreter that does nothing.

    python benchmarks/start_up.py [--rounds N] [--json]
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

COMMAND_BUDGET_S = 0.35
EVALUATE_BUDGET_S = 0.3
SAMPLES = 20

EVALUATION = """
import asyncio, sys
from assay import EvalConfig, evaluate

right, samples, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dataset = [{"id": f"row-{n}", "question": f"Say {n}", "answer": str(n)} for n in range(samples)]
config = EvalConfig(endpoint="mock:echo", score_fn=lambda row: float(int(row.ground_truth) < right))
asyncio.run(evaluate(dataset, config, store=store))
"""

COMMANDS = {
    "runs": ["runs"],
    "show": ["show", "latest"],
    "compare": ["compare", "FIRST", "latest"],
    "gate": ["gate", "latest", "--threshold", "0.5"],
    "gate --baseline": ["gate", "latest", "--baseline", "FIRST"],
}


def measure_cpu(arguments: Sequence[str]) -> tuple[float, str]:
    """Run Python with `arguments`; return its CPU seconds and its output."""
    # Without cached bytecode every round would compile the package again.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # 1 and 3 are verdicts of a gate; anything else did not do its work.
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"{' '.join(arguments)}: {done.stdout}{done.stderr}")
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return seconds, done.stdout


def measure(folder: Path, rounds: int) -> dict[str, tuple[float, float]]:
    """The CPU seconds and the budget of each command and of the first evaluation."""
    store = str(folder / "assay.db")
    for right in (SAMPLES // 2, SAMPLES):
        measure_cpu(["-c", EVALUATION, str(right), str(SAMPLES), store])
    listed = json.loads(measure_cpu(["-m", "assay", "runs", "--json", "--store", store])[1])
    first = listed["runs"][-1]["id"]

    programs = {}
    for name, words in COMMANDS.items():
        arguments = [first if word == "FIRST" else word for word in words]
        programs[name] = ["-m", "assay", *arguments, "--store", store]
    programs["nothing"] = ["-c", "pass"]
    least = dict.fromkeys([*programs, "evaluate"], float("inf"))
    for number in range(rounds + 1):
        # A new store in every round: creating it belongs to a first evaluation.
        programs["evaluate"] = ["-c", EVALUATION, "1", "1", str(folder / f"{number}.db")]
        for name, program in programs.items():
            seconds, _ = measure_cpu(program)
            if number:
                least[name] = min(least[name], seconds)
    nothing = least.pop("nothing")
    evaluation = least.pop("evaluate") - nothing
    figures = {f"assay {name}": (seconds, COMMAND_BUDGET_S) for name, seconds in least.items()}
    return figures | {"first evaluate()": (evaluation, EVALUATE_BUDGET_S)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), args.rounds)
    if args.json:
        rows = {name: {"cpu_s": cpu, "budget_s": budget} for name, (cpu, budget) in figures.items()}
        print(json.dumps(rows, indent=2))
        return
    print(f"{'':<24}{'CPU s':>7}{'budget':>8}")
    for name, (cpu, budget) in figures.items():
        print(f"{name:<24}{cpu:>7.2f}{budget:>8.2f}{'' if cpu <= budget else '  over'}")


if __name__ == "__main__":
    main()
