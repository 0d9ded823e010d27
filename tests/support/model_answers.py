"""Answers of models that every API has to write and read."""

from assay.formats import ModelAnswer
from assay.types import Message, ToolCall, Usage

USAGE = Usage(input_tokens=12, output_tokens=3, cached_tokens=4, reasoning_tokens=2)
CALL = ToolCall(id="call_1", name="look", arguments={"at": "é", "deep": {"x": [1, None]}})


def build_answer(
    message: Message, finish: str = "stop", usage: Usage | None = USAGE, **fields: object
) -> ModelAnswer:
    return ModelAnswer(message, finish, usage, "m", "abc", 1, **fields)  # type: ignore[arg-type]  # of a test


ANSWERS = {
    "text": build_answer(Message(role="assistant", content="Hello,\nworld")),
    "empty": build_answer(Message(role="assistant", content="")),
    "cut": build_answer(Message(role="assistant", content="Hel"), "length"),
    "refused": build_answer(Message(role="assistant", content="No."), "content_filter"),
    "no usage": build_answer(Message(role="assistant", content="x"), usage=None),
    "call": build_answer(
        Message(role="assistant", reasoning="I look.", tool_calls=(CALL,)), "tool_calls"
    ),
    "text and calls": build_answer(
        Message(
            role="assistant",
            content="Let me see.",
            tool_calls=(CALL, CALL.model_copy(update={"id": "call_2"})),
        ),
        "tool_calls",
    ),
}
