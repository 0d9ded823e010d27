"""A smolagents agent: assay eval questions.jsonl --agent smolagents_agent.py:answer ..."""

import os

from smolagents import LogLevel, OpenAIModel, ToolCallingAgent, tool

from assay.types import Sample


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a * b


def answer(sample: Sample) -> object:
    model = OpenAIModel("gpt-5-mini", api_base=os.environ.get("OPENAI_BASE_URL"))
    agent = ToolCallingAgent([multiply], model, verbosity_level=LogLevel.OFF)
    return agent.run(sample["question"], return_full_result=True)
