"""Memory steps of smolagents: tasks, plans, actions, and what is reported."""

from typing import Any

import pytest

from assay.formats.conversion import Dropped
from assay.formats.smolagents import read_smolagents_steps
from assay.types import Message


def action(number: int, **fields: Any) -> dict[str, Any]:
    return {"step_number": number, "timing": {}, "token_usage": None, **fields}


def call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def read(*steps: Any) -> list[Message]:
    dropped: list[Dropped] = []
    messages = read_smolagents_steps(steps, dropped)
    assert dropped == []
    return messages


def test_prompts_tasks_and_plans_are_messages() -> None:
    messages = read({"system_prompt": "Be brief."}, {"task": "6*7?"}, {"plan": "Multiply."})

    assert [(message.role, message.text) for message in messages] == [
        ("system", "Be brief."),
        ("user", "6*7?"),
        ("assistant", "Multiply."),
    ]


def test_code_is_a_call_whose_arguments_are_text() -> None:
    step = action(1, tool_calls=[call("c", "python", "print(1)")], model_output="Run it.")

    called, answered = read({**step, "observations": "1"})

    assert (called.text, called.tool_calls[0].raw_arguments) == ("Run it.", "print(1)")
    assert (answered.role, answered.tool_call_id, answered.text) == ("tool", "c", "1")
    assert answered.details == {"status": "completed", "failed": False, "is_error": False}


def test_calls_of_the_librarys_objects_have_no_function() -> None:
    called, _ = read(action(1, tool_calls=[{"id": "a", "name": "f", "arguments": {"x": 1}}]))

    assert [(each.id, each.name, each.arguments) for each in called.tool_calls] == [
        ("a", "f", {"x": 1})
    ]


def test_one_observation_answers_the_first_of_several_calls() -> None:
    calls = [call("a", "f", {}), call("b", "g", {})]

    _, first, second = read(action(1, tool_calls=calls, observations="both"))

    assert (first.tool_call_id, first.content) == ("a", "both")
    assert (second.tool_call_id, second.content) == ("b", None)


def test_an_error_marks_the_calls_of_its_step() -> None:
    error = {"type": "AgentExecutionError", "message": "Division by zero."}

    _, answered = read(action(1, tool_calls=[call("a", "f", {})], error=error, observations="log"))

    assert answered.text == "log\nDivision by zero."
    assert answered.details == {"status": "error", "failed": True, "is_error": True}


def test_an_error_without_a_call_is_a_message_to_the_model() -> None:
    error = {"type": "AgentParsingError", "message": "No code found."}

    said, told = read(action(1, model_output=[{"type": "text", "text": "Hm."}], error=error))

    assert (said.role, said.text) == ("assistant", "Hm.")
    assert (told.role, told.text) == ("user", "No code found.")


@pytest.mark.parametrize("result", [{"action_output": 42}, {"observations": "42"}])
def test_the_final_answer_is_a_message(result: dict[str, Any]) -> None:
    step = action(1, tool_calls=[call("a", "final_answer", {})], is_final_answer=True, **result)

    messages = read(step)

    assert messages[-1] == Message(role="assistant", content="42")


def test_unknown_steps_and_fields_are_reported() -> None:
    dropped: list[Dropped] = []

    messages = read_smolagents_steps(
        [
            7,
            {"mood": "good"},
            {"task": "6*7?", "task_images": ["AAAA"]},
            action(1, tool_calls=["f()"]),
        ],
        dropped,
    )

    assert [message.text for message in messages] == ["6*7?"]
    assert dropped == [
        Dropped("steps[0]", "a value of type int; left out"),
        Dropped("steps[1].mood", "no place for `mood`; left out"),
        Dropped("steps[1]", "a step of unknown kind; left out"),
        Dropped("steps[2].task_images", "no place for `task_images`; left out"),
        Dropped("steps[3]", "unreadable: a tool call is not an object; left out"),
    ]
