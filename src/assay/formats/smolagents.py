"""Reads the result of a smolagents run: its memory steps and its final answer."""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.errors import WireError
from assay.types import ContentBlock, Message

from .conversion import Dropped
from .foreign_content import (
    build_message,
    build_text,
    build_tool_call,
    describe_outcome,
    drop_fields,
    drop_unreadable,
    write_answer_text,
)

_STEP_FIELDS = frozenset(
    {
        *("task", "system_prompt", "plan", "step_number", "tool_calls", "error", "observations"),
        *("model_output", "token_usage", "timing", "is_final_answer"),
        # They repeat the messages before the step, its output and its result.
        *("model_input_messages", "model_output_message", "code_action", "action_output"),
    }
)


def is_smolagents_result(value: Mapping[str, Any]) -> bool:
    """Whether `value` has the fields of a `RunResult`."""
    return "output" in value and "state" in value and isinstance(value.get("steps"), list)


def is_smolagents_step(value: Mapping[str, Any]) -> bool:
    """Whether `value` is an action in the memory of an agent."""
    return type(value.get("step_number")) is int and "timing" in value


def read_smolagents_steps(steps: Sequence[object], dropped: list[Dropped]) -> list[Message]:
    """Read the task, plans and actions of a run."""
    read: list[Message] = []
    for index, step in enumerate(steps):
        where = f"steps[{index}]"
        if not isinstance(step, Mapping):
            dropped.append(Dropped(where, f"a value of type {type(step).__name__}; left out"))
            continue
        drop_fields(step, _STEP_FIELDS, where, dropped)
        try:
            read += _read_memory_step(step, where, dropped)
        except WireError as error:
            drop_unreadable(error, where, dropped)
    return read


def _read_memory_step(step: Mapping[str, Any], where: str, dropped: list[Dropped]) -> list[Message]:
    for key, role in (("system_prompt", "system"), ("task", "user"), ("plan", "assistant")):
        if isinstance(step.get(key), str):
            return [build_message(role, [build_text(step[key])])]
    if "step_number" not in step:
        dropped.append(Dropped(where, "a step of unknown kind; left out"))
        return []
    calls = []
    listed = step.get("tool_calls")
    for call in listed if isinstance(listed, list) else ():
        if not isinstance(call, Mapping):
            raise WireError("a tool call is not an object")
        # Objects of the library have no `function` around name and arguments.
        function = call.get("function")
        inner = function if isinstance(function, Mapping) else call
        calls.append(build_tool_call(call.get("id"), inner.get("name"), inner.get("arguments")))
    output = step.get("model_output")
    written: list[Any] = output if isinstance(output, list) else [{"text": output}]
    said: list[ContentBlock] = [
        build_text(part["text"])
        for part in written
        if isinstance(part, Mapping) and isinstance(part.get("text"), str)
    ]
    messages = [build_message("assistant", said, tool_calls=tuple(calls) or None)]
    messages += _read_observations(step, [(call.id, call.name) for call in calls])
    given = (step.get("action_output"), step.get("observations"))
    answer = next((value for value in given if value is not None), None)
    if step.get("is_final_answer") is True and answer is not None:
        messages.append(build_message("assistant", [build_text(write_answer_text(answer))]))
    return messages


def _read_observations(
    step: Mapping[str, Any], calls: list[tuple[str | None, str]]
) -> list[Message]:
    error, seen = step.get("error"), step.get("observations")
    if error is None and seen is None and not calls:
        return []
    texts = [seen] if isinstance(seen, str) else []
    if error is not None:
        text = error.get("message") if isinstance(error, Mapping) else error
        texts.append(write_answer_text(text))
    blocks: list[ContentBlock] = [build_text("\n".join(texts))] if texts else []
    if not calls:
        # The model's output could not be parsed as a call: the error is all that it is told.
        return [build_message("user", blocks)]
    # One text observes all calls of a step: it answers the first one.
    details = describe_outcome(failed=error is not None)
    return [
        build_message(
            "tool", blocks if not number else [], tool_call_id=call_id, name=name, details=details
        )
        for number, (call_id, name) in enumerate(calls)
    ]
