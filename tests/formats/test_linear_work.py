"""Every writer of conversations: twice the messages are at most about twice the work."""

from collections.abc import Callable
from typing import Any

import pytest

from assay import formats
from assay.types import EvaluateResult, Message, Sample, ToolCall, Trajectory
from line_counts import count_lines

Conversation = Callable[[int], list[Message]]
MESSAGE_WRITERS = (
    *("to_openai_chat", "to_anthropic", "to_gemini", "to_bedrock", "to_huggingface"),
    *("to_openai_responses", "convert_agent_output"),
)
SAMPLE_WRITERS = (
    *("to_atif", "to_eval_record", "to_openai_sft", "to_sharegpt", "to_trl_sft", "to_verl_sft"),
    "to_vertex",
)


def call(number: int, call_id: str | None) -> ToolCall:
    return ToolCall(id=call_id, name="f", arguments={"n": number})


def ask(message: Message | None = None) -> list[Message]:
    return [Message(role="user", content="q"), *([] if message is None else [message])]


def take_turns(count: int) -> list[Message]:
    said = []
    for n in range(count):
        made = Message(role="assistant", content="a", tool_calls=(call(n, f"c{n}"),))
        said += [made, Message(role="tool", content="r", tool_call_id=f"c{n}")]
    return [*ask(), *said, Message(role="assistant", content="end")]


def call_at_once(count: int) -> list[Message]:
    made = tuple(call(n, f"c{n}") for n in range(count))
    # Backwards: the worst order for a search from the first call on.
    results = [
        Message(role="tool", content="r", tool_call_id=f"c{n}") for n in reversed(range(count))
    ]
    return [*ask(Message(role="assistant", content="", tool_calls=made)), *results]


def call_without_ids(count: int) -> list[Message]:
    made = tuple(call(n, None) for n in range(count))
    results = [Message(role="tool", content="r") for _ in range(count)]
    return [*ask(Message(role="assistant", content="", tool_calls=made)), *results]


def write_blocks(count: int) -> list[Message]:
    blocks: Any = [{"type": "text", "text": "x"}] * count
    return [
        Message(role="user", content=blocks),
        Message(role="assistant", content=blocks),
    ]


def count_steps(writer: str, messages: list[Message]) -> int:
    given: Any = messages
    if writer in SAMPLE_WRITERS:
        score = EvaluateResult(score=1.0)
        trajectory = Trajectory(messages=messages)
        given = Sample(id="1", prompt="q", trajectory=trajectory, score=score)
    write = getattr(formats, writer)
    with count_lines() as lines:
        write(given)
    return lines()


@pytest.mark.parametrize("writer", [*MESSAGE_WRITERS, *SAMPLE_WRITERS])
@pytest.mark.parametrize("build", [take_turns, call_at_once, call_without_ids, write_blocks])
def test_work_grows_with_the_conversation(writer: str, build: Conversation) -> None:
    # The first call fills caches.
    count_steps(writer, build(2))

    small, large = (count_steps(writer, build(count)) for count in (100, 300))

    assert large < 3.5 * small
