"""CPU cost of reading and writing one sample: six messages, one tool call, two metrics.

Three ways on the same data in the same run: assay's types, plain pydantic models of
eval-protocol's shape, and the standard library's `json` without any types. The rounds are
interleaved and the best of each is kept, so that a machine that changes its speed changes all
of them: read the ratios.

    python benchmarks/models.py [--rounds 60] [--json]
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict

from assay.types import Sample

BUDGET_US = {"load": 30.0, "dump": 15.0}
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "You are the clerk of an order desk. Look orders up first."},
    {"role": "user", "content": "Where is order 66? I have been waiting for it since Monday."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "lookup", "arguments": '{"order":"66"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": '{"place":"Hamburg","since":"Tue"}'},
    {"role": "assistant", "content": "Order 66 has been in Hamburg since Tuesday."},
    {"role": "user", "content": "Thank you, that is all I wanted to know."},
]
ROW: dict[str, Any] = {
    "messages": MESSAGES,
    "ground_truth": "Hamburg",
    "evaluation_result": {
        "score": 0.9,
        "is_score_valid": True,
        "reason": "names the place",
        "metrics": {
            "correct": {"is_score_valid": True, "score": 1.0, "reason": "Hamburg"},
            "brief": {"is_score_valid": True, "score": 0.8, "reason": "11 words"},
        },
    },
    "input_metadata": {"row_id": "orders-66", "dataset_info": {"name": "orders"}},
}


class PlainFunction(BaseModel):
    name: str
    arguments: str


class PlainToolCall(BaseModel):
    id: str
    type: str = "function"
    function: PlainFunction


class PlainMessage(BaseModel):
    role: str
    content: str | list[dict[str, Any]] | None = None
    reasoning_content: str | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[PlainToolCall] | None = None
    function_call: PlainFunction | None = None
    control_plane_step: dict[str, Any] | None = None
    weight: int | None = None


class PlainMetric(BaseModel):
    is_score_valid: bool = True
    score: float
    reason: str
    data: dict[str, Any] = {}


class PlainStep(BaseModel):
    step_index: int | str
    base_reward: float
    terminated: bool = False
    control_plane_info: dict[str, Any] | None = None
    metrics: dict[str, Any] = {}
    reason: str | None = None


class PlainResult(BaseModel):
    score: float
    is_score_valid: bool = True
    reason: str | None = None
    metrics: dict[str, PlainMetric] = {}
    step_outputs: list[PlainStep] | None = None
    error: str | None = None
    trajectory_info: dict[str, Any] | None = None
    final_control_plane_info: dict[str, Any] | None = None
    agg_score: float | None = None
    standard_error: float | None = None


class PlainRow(BaseModel):
    """The shape of eval-protocol's row, as a plain model without its validators."""

    model_config = ConfigDict(extra="allow")

    messages: list[PlainMessage]
    tools: list[dict[str, Any]] | None = None
    input_metadata: dict[str, Any] = {}
    ground_truth: Any = None
    evaluation_result: PlainResult | None = None
    created_at: str | None = None
    pid: int | None = None


def contenders() -> dict[str, Callable[[], object]]:
    foreign = json.dumps(ROW)
    ours = Sample.from_json(foreign)
    written = ours.to_json()
    plain = PlainRow.model_validate_json(foreign)
    plain_written = plain.model_dump_json()
    own_dict = json.loads(written)
    return {
        "load, assay, its own form": lambda: Sample.from_json(written),
        "load, assay, a foreign row": lambda: Sample.from_json(foreign),
        "load, plain pydantic": lambda: PlainRow.model_validate_json(plain_written),
        "load, json.loads": lambda: json.loads(written),
        "dump, assay": ours.to_json,
        "dump, plain pydantic": plain.model_dump_json,
        "dump, json.dumps": lambda: json.dumps(own_dict),
    }


def measure(rounds: int, repeats: int = 200) -> dict[str, float]:
    """Best CPU microseconds of each contender."""
    timed = contenders()
    best = dict.fromkeys(timed, float("inf"))
    for _ in range(rounds):
        for name, work in timed.items():
            started = time.process_time_ns()
            for _ in range(repeats):
                work()
            best[name] = min(best[name], (time.process_time_ns() - started) / repeats / 1000)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    best = measure(args.rounds)
    if args.json:
        print(json.dumps({"us_per_sample": best, "budget_us": BUDGET_US}))
        return
    print(f"{'CPU per sample':28} {'µs':>7} {'budget':>7} {'against json':>13}")
    for name, us in best.items():
        kind = name.partition(",")[0]
        budget = f"{BUDGET_US[kind]:.0f}" if "assay" in name and "foreign" not in name else ""
        base = best[f"{kind}, json.{kind}s"]
        print(f"{name:28} {us:7.1f} {budget:>7} {us / base:12.2f}x")


if __name__ == "__main__":
    main()
