"""Arithmetic for a small model: first without tools, then with a calculator.

`assay quickstart` runs both evaluations and compares them. One at a time:

    assay eval examples/quickstart/arithmetic.py:plain
    assay eval examples/quickstart/arithmetic.py:with_tool
"""

import re
from dataclasses import replace

from assay.environments import BasicEnvironment, CalculatorEnvironment, Step
from assay.runner import EvalConfig
from assay.types import Endpoint, EvaluateResult, Message, Sample

dataset = "arithmetic.jsonl"

MODEL = Endpoint(provider="local", model="smollm2-135m", temperature=0.0, max_tokens=64)
EXAMPLES = {
    "What is 7 + 5?": "7 + 5",
    "Ann had 29 stamps and lost 4. How many are left?": "29 - 4",
    "There are 13 bags with 6 nuts each. How many nuts are there?": "13 * 6",
    "A hall has 35 seats and gets 20 more. How many seats does it have?": "35 + 20",
}
"""Examples of the same kinds as the tasks; none of them is a task."""

INSTRUCTIONS = "\n".join(
    [
        "Write the calculation that answers the question.",
        *(
            f'{question} -> {{"name": "calculate", "arguments": {{"expression": "{expression}"}}}}'
            for question, expression in EXAMPLES.items()
        ),
    ]
)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def score_fn(sample: Sample) -> EvaluateResult:
    """Score whether the last number, by the agent or its calculator, is the answer."""
    # Thousands separators are removed before the match.
    numbers = NUMBER.findall(sample.messages[-1].text.replace(",", ""))
    if not numbers:
        return EvaluateResult(score=0.0, reason="no number in the last message")
    right = float(numbers[-1]) == float(sample.ground_truth)
    return EvaluateResult(
        score=float(right), reason=f"answered {numbers[-1]}, the answer is {sample.ground_truth}"
    )


def ask(sample: Sample) -> Message:
    return Message(role="user", content=sample["question"])


class OneCalculation(CalculatorEnvironment):
    """The calculator, where the first answer or calculation ends the episode."""

    async def step(self, action: Message) -> Step:
        step = await super().step(action)
        # The result of the first call is the answer, so no second turn is needed.
        return replace(step, terminated=True, ended_by_agent=True)


plain = EvalConfig(
    name="quickstart-head",
    endpoint=MODEL,
    score_fn=score_fn,
    prepare_messages=lambda sample: [ask(sample)],
    environment=BasicEnvironment,
    concurrency=1,
    seed=0,
)
with_tool = EvalConfig(
    name="quickstart-tool",
    # Decoding is restricted to valid tool calls: a model this small makes up others.
    endpoint=MODEL.model_copy(update={"extra_params": {"tool_calls": "schema"}}),
    score_fn=score_fn,
    prepare_messages=lambda sample: [Message(role="system", content=INSTRUCTIONS), ask(sample)],
    environment=OneCalculation,
    concurrency=1,
    seed=0,
)
