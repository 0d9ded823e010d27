"""OpenAI Agents SDK: assay eval questions.jsonl --agent openai_agents.py:answer ..."""

from agents import Agent, Runner, function_tool, set_tracing_disabled

from assay.types import Sample

set_tracing_disabled(True)


@function_tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


agent = Agent(name="calculator", model="gpt-5-mini", tools=[multiply])


async def answer(sample: Sample) -> object:
    return await Runner.run(agent, sample["question"])
