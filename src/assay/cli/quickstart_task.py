"""The task of `assay quickstart`: arithmetic, first without tools, then with a calculator."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.environments import BasicEnvironment, CalculatorEnvironment, Step
from assay.runner import EvalConfig
from assay.types import Endpoint, EvaluateResult, Message, Sample

DATASET = Path(__file__).with_name("quickstart.jsonl")
MODEL = "smollm2-135m"
EXAMPLES = (
    ("What is 7 + 5?", "7 + 5"),
    ("Ann had 29 stamps and lost 4. How many are left?", "29 - 4"),
    ("There are 13 bags with 6 nuts each. How many nuts are there?", "13 * 6"),
    ("A hall has 35 seats and gets 20 more. How many seats does it have?", "35 + 20"),
)
"""Examples of the same kinds as the tasks; none of them is a task."""

# Thousands separators are removed before the match.
_TASK_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


class OneCalculation(CalculatorEnvironment):
    """The calculator, where the first answer or calculation ends the episode."""

    async def step(self, action: Message) -> Step:
        step = await super().step(action)
        # The result of the first call is the answer, so no second turn is needed.
        return replace(step, terminated=True, ended_by_agent=True)


def score_fn(sample: Sample) -> EvaluateResult:
    """Score whether the last number, by the agent or its calculator, is the answer."""
    numbers = _TASK_NUMBER.findall(sample.messages[-1].text.replace(",", ""))
    if not numbers:
        return EvaluateResult(score=0.0, reason="no number in the last message")
    right = float(numbers[-1]) == float(sample.ground_truth)
    return EvaluateResult(
        score=float(right), reason=f"answered {numbers[-1]}, the answer is {sample.ground_truth}"
    )


def build_plain_config() -> EvalConfig:
    """Configure the evaluation of the bare question."""
    return EvalConfig(
        name="quickstart-head",
        endpoint=_build_local_endpoint(),
        score_fn=score_fn,
        prepare_messages=lambda sample: [_build_task_question(sample)],
        environment_factory=lambda sample: BasicEnvironment(),
        concurrency=1,
        seed=0,
    )


def build_tool_config() -> EvalConfig:
    """Configure the evaluation with examples and output restricted to tool calls."""
    shown = (
        f'{question} -> {{"name": "calculate", "arguments": {{"expression": "{expression}"}}}}'
        for question, expression in EXAMPLES
    )
    text = "\n".join(["Write the calculation that answers the question.", *shown])
    instructions = Message(role="system", content=text)
    return EvalConfig(
        name="quickstart-tool",
        endpoint=_build_local_endpoint(tool_calls="schema"),
        score_fn=score_fn,
        prepare_messages=lambda sample: [instructions, _build_task_question(sample)],
        environment_factory=lambda sample: OneCalculation(),
        concurrency=1,
        seed=0,
    )


def _build_local_endpoint(**extra_params: Any) -> Endpoint:
    return Endpoint(
        provider="local",
        model=MODEL,
        temperature=0.0,
        max_tokens=64,
        extra_params=extra_params,
    )


def _build_task_question(sample: Sample) -> Message:
    return Message(role="user", content=sample["question"])
