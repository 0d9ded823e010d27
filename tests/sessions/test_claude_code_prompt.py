"""The system prompt and the tools of a session, from the records that hold them."""

from typing import Any

from assay.sessions.claude_code_prompt import PromptRecords

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}


def shape(name: str, system: Any, *tools: str) -> dict[str, Any]:
    told = [{"name": tool, "description": "d", "input_schema": SCHEMA} for tool in tools]
    shape = {"system": system, "tools": told}
    return {"type": "api-request-shape", "shapeHash": name, "shape": shape}


def request(name: str, shape: str) -> dict[str, Any]:
    return {"type": "api-request", "id": name, "shapeHash": shape}


def snapshot(**told: Any) -> dict[str, Any]:
    return {"type": "attachment", "attachment": {"type": "prompt_snapshot", **told}}


def read(*records: dict[str, Any], requests: tuple[str, ...] = ()) -> tuple[str | None, list[str]]:
    prompt = PromptRecords()
    for record in records:
        prompt.take(record)
    system, tools = prompt.read(requests)
    return system, [tool["name"] for tool in tools]


def blocks(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def test_the_requests_of_the_answers_say_what_the_model_was_told() -> None:
    title = shape("t", blocks("Write a title."), "Title")
    first = shape("a", blocks("You are an agent.", "Be brief."), "Read")
    later = shape("b", blocks("You are another."), "Read", "Write")
    requests = [request("r0", "t"), request("r1", "a"), request("r2", "b")]

    told = read(title, first, later, *requests, requests=("r1", "r1", "r2"))

    assert told == ("You are an agent.\n\nBe brief.", ["Read", "Write"])


def test_without_requests_the_snapshots_say_it() -> None:
    tool = {"name": "Read", "schema": {"name": "Read", "input_schema": SCHEMA}}
    early = snapshot(systemPrompt=["Be brief.", "Be kind."])
    late = snapshot(systemPrompt=["Be brief."], tools=[tool], cliPrefix="You are an agent.")

    assert read(early, late) == ("You are an agent.\n\nBe brief.\n\nBe kind.", ["Read"])


def test_a_tool_is_written_as_exporters_read_it() -> None:
    prompt = PromptRecords()
    prompt.take(shape("a", "Be brief.", "Read"))

    assert prompt.read([]) == (
        "Be brief.",
        [{"name": "Read", "description": "d", "parameters": SCHEMA}],
    )


def test_what_is_not_recorded_is_unknown() -> None:
    assert read() == (None, [])
    assert read(shape("a", []), snapshot(), requests=("r1",)) == (None, [])
    odd = {"type": "api-request-shape", "shape": {"system": [7], "tools": [None, {"name": 7}]}}
    assert read(odd, {"type": "api-request-shape"}) == (None, [])
