"""A pydantic-ai agent: assay eval questions.jsonl --agent pydantic_ai_agent.py:answer ..."""

from pydantic_ai import Agent

from assay.types import Sample

agent = Agent("openai-chat:gpt-5-mini")


@agent.tool_plain
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


async def answer(sample: Sample) -> object:
    return await agent.run(sample["question"])
