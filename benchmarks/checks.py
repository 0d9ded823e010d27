"""What checking costs: samples per second beside merely reading them, and peak memory.

Each sample is a conversation with ten tool calls whose outputs have 2 kB; each check file has
twelve checks. `read` is `load_samples` over the same file without a check. The rounds are
interleaved and the best of each is kept: read the ratio.

    python benchmarks/checks.py [--samples 2000] [--rounds 3] [--json]
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peak_memory import peak_bytes

from assay.datasets import load_samples
from assay.scorers import Checks, checks_from
from assay.types import Message, ModelCall, Sample, ToolCall, Trajectory, Usage

CHECKS: dict[str, Any] = {
    "checks": [
        {"matches": r"(?i)\bdone\b"},
        {"target": "response_concat", "not_matches": r"(?i)as an ai"},
        {"target": "prompt", "contains": "tests"},
        {"target": "tool.output", "not_matches": r"(a+)+\$"},
        {"target": "tool.args", "tool": "bash", "json_schema": {"required": ["command"]}},
        {"target": "tool.args", "json_path": {"path": "$.command", "not_matches": r"rm\s+-rf"}},
        {"tool_called": "bash"},
        {"tool_order": ["bash", "bash"]},
        {"tool_args_match": {"tool": "bash", "args": {"command": {"matches": "^ls"}}}},
        {"max_tools": 20},
        {"max_tokens": 100_000},
        {"no_tool_errors": True},
    ]
}


def conversation(number: int) -> Sample:
    """A session of ten steps, each with a tool call."""
    messages = [Message(role="user", content="Run the tests and fix what fails.")]
    for step in range(10):
        call = ToolCall(id=f"c{step}", name="bash", arguments={"command": f"ls -l {step}"})
        messages.append(Message(role="assistant", content="Next.", tool_calls=(call,)))
        output = "aaaa bbbb cccc dddd\n" * 100
        messages.append(
            Message(role="tool", tool_call_id=call.id, content=output, details={"failed": False})
        )
    messages.append(Message(role="assistant", content="Done: all of them pass."))
    usage = Usage(input_tokens=900, output_tokens=40, cost_usd=0.001)
    calls = [ModelCall(usage=usage) for _ in range(11)]
    trajectory = Trajectory(messages=messages, calls=calls)
    return Sample(id=f"s{number}", prompt=messages[:1], trajectory=trajectory)


def seconds(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measure(path: Path, checks: Checks, rounds: int) -> dict[str, float]:
    """The best times of reading alone, and of reading and checking."""

    def read() -> None:
        for _ in load_samples(path):
            pass

    def check() -> None:
        for sample in load_samples(path):
            assert checks(sample).score == 1.0

    best = {"read": float("inf"), "read and checked": float("inf")}
    for _ in range(rounds):
        for name, work in (("read", read), ("read and checked", check)):
            best[name] = min(best[name], seconds(work))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "samples.jsonl"
        with path.open("w") as file:
            file.writelines(f"{conversation(number).to_json()}\n" for number in range(args.samples))
        size = path.stat().st_size
        best = measure(path, checks_from(CHECKS), args.rounds)
    found = {
        "samples": args.samples,
        "megabytes": size / 1e6,
        "samples_per_s": {name: args.samples / took for name, took in best.items()},
        "us_per_sample_for_checks": (best["read and checked"] - best["read"]) / args.samples * 1e6,
        "peak_mib": peak_bytes() / 2**20,
    }
    if args.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{args.samples} samples, {size / 1e6:.1f} MB, {len(CHECKS['checks'])} checks")
    for name, pace in found["samples_per_s"].items():
        print(f"{name:<18}{pace:>8.0f} samples/s")
    print(f"{'checks alone':<18}{found['us_per_sample_for_checks']:>8.0f} us a sample")
    print(f"{'peak memory':<18}{found['peak_mib']:>8.0f} MiB")


if __name__ == "__main__":
    main()
