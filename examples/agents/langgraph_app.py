"""A LangGraph app: assay eval questions.jsonl --agent langgraph_app.py:answer ..."""

from langchain.agents import create_agent

from assay.types import Sample


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


app = create_agent("openai:gpt-5-mini", [multiply])


def answer(sample: Sample) -> object:
    return app.invoke({"messages": [{"role": "user", "content": sample["question"]}]})
