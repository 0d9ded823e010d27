"""Parts of an answer as events of another API: whatever a server sends, the stream is valid."""

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from assay.errors import WireError
from assay.formats import (
    AnswerPart,
    EventReader,
    GeminiStream,
    ModelAnswer,
    read_gemini_parts,
)
from assay.gateway.dialects import DIALECTS, Dialect
from assay.types import Message, ToolCall, Usage
from line_counts import count_lines
from streamed_answers import WRITERS, event

SHAPE_ERRORS = (WireError, AttributeError, IndexError, KeyError, TypeError, ValueError)
READERS: dict[str, tuple[Any, Callable[[], Any]]] = {
    "gemini": (read_gemini_parts, GeminiStream),
    **{each.protocol: (each.read_parts, each.make_stream) for each in DIALECTS},
}
# As text, so that each use is a value of its own.
VALUES = (
    "null",
    "0",
    "-3",
    "true",
    '"x"',
    '""',
    '"\\ud800"',
    "[]",
    "{}",
    "[1]",
    "[{}]",
    '{"a": 1}',
    '"{"',
    '"{\\"a\\":"',
)


def list_places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every object or list in a value, with each of its keys."""
    keys = value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    for key in keys:
        yield value, key
        yield from list_places(value[key])


def damage(stream: list[bytes], random: Random) -> list[bytes]:
    """Change one event: values of other types, missing keys, the event twice, or half of it."""
    number = random.randrange(len(stream))
    (found,) = EventReader().feed(stream[number])
    try:
        data = json.loads(found.data)
    except ValueError:
        return stream  # the mark of the end
    for _ in range(random.randint(1, 3)):
        holder, key = random.choice(list(list_places(data)) or [({"": 0}, "")])
        if isinstance(holder, dict) and random.random() < 0.2:
            del holder[key]
        else:
            holder[key] = json.loads(random.choice(VALUES))
    changed = event(data, found.name)
    changed = changed if random.random() < 0.9 else changed[:-5]
    return [*stream[:number], changed, *stream[number + random.randint(0, 1) :]]


def build_answer(calls: int, **fields: Any) -> ModelAnswer:
    made = tuple(ToolCall(id=f"c{n}", name=f"tool_{n}", arguments={}) for n in range(calls))
    message = Message(role="assistant", content="c d", reasoning="ab", tool_calls=made)
    known = {"message": message, "finish_reason": "stop", "model": "m", "id": "1", "created": 1}
    usage = Usage(input_tokens=1, output_tokens=1)
    free = frozenset({"tool_2"})
    return ModelAnswer(**{**known, "usage": usage, "free_text_tools": free, **fields})


@pytest.mark.parametrize("provider", WRITERS)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.name)
def test_damaged_streams_are_refused_or_written_as_valid_ones(
    dialect: Dialect, provider: str
) -> None:
    random = Random(f"{dialect.name} {provider}")
    read_parts, make_stream = READERS[provider]
    written = 0
    for _ in range(150):
        calls = [['{"city"', ': "Ulm"}'], [], ['{"input": "B"}']][: random.randint(0, 3)]
        texts = ["c ", "d"][: random.randint(0, 2)]
        stream = damage(list(WRITERS[provider](["a", "b"], texts, calls)), random)
        writer, received = dialect.make_writer(build_answer(0)), make_stream()
        try:
            for each in EventReader().feed(b"".join(stream)):
                received.add(each)
                for part in read_parts(each):
                    writer.add(part)
            if not received.is_complete:
                continue
        except SHAPE_ERRORS:
            continue

        writer.finish(build_answer(len(calls)))

        copy = dialect.make_stream()
        for each in EventReader().feed(writer.written):
            copy.add(each)
        assert copy.is_complete
        assert copy.error is None
        assert copy.build_answer()
        written += 1
    assert written > 20


def write_parts(dialect: Dialect, parts: list[AnswerPart], calls: int) -> Any:
    """The answer as an agent reads it."""
    writer = dialect.make_writer(build_answer(0))
    for part in parts:
        writer.add(part)
    writer.finish(build_answer(calls, message=build_message(calls)))
    stream = dialect.make_stream()
    for each in EventReader().feed(writer.written):
        stream.add(each)
    return stream.build_answer()


def build_message(calls: int) -> Message:
    made = tuple(ToolCall(id=f"c{n}", name=f"tool_{n}", arguments={"a": n}) for n in range(calls))
    return Message(role="assistant", content="", tool_calls=made)


@pytest.mark.parametrize(
    "repeated", [AnswerPart("call", " "), AnswerPart("call", " ", 0, "c0", "tool_0")]
)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.name)
def test_a_late_piece_of_a_written_call_is_no_second_call(
    dialect: Dialect, repeated: AnswerPart
) -> None:
    parts = [
        AnswerPart("call", '{"a": 0}', 0, "c0", "tool_0"),
        AnswerPart("call", '{"a"', 1, "c1", "tool_1"),
        repeated,
        AnswerPart("call", ": 1}", 1),
        repeated,
    ]

    answer = json.dumps(write_parts(dialect, parts, 2))

    assert (answer.count('"tool_0"'), answer.count('"tool_1"')) == (1, 1)
    assert '"name": ""' not in answer
    assert "c0" in answer
    assert "c1" in answer


def test_calls_of_one_place_that_wait_are_kept() -> None:
    parts = [
        AnswerPart("call", "{}", 0, "c0", "tool_0"),
        AnswerPart("call", '{"a"', 1, "c1", "tool_1"),
        AnswerPart("call", '{"b"', 0, "c2", "tool_3"),
        AnswerPart("call", ": 2}", 0),
        AnswerPart("call", ": 1}", 1),
    ]

    answer = write_parts(DIALECTS[0], parts, 3)

    calls = answer["choices"][0]["message"]["tool_calls"]
    assert [each["function"]["arguments"] for each in calls] == ["{}", '{"a": 1}', '{"b": 2}']


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.name)
def test_many_sections_and_pieces_are_written_with_linear_work(dialect: Dialect) -> None:
    count = 200
    steps = [0, 0]
    for number, size in enumerate((count, 2 * count)):
        parts = [AnswerPart("reasoning", "r", place) for place in range(size)]
        parts += [AnswerPart("call", "{}", place, None, "f") for place in range(size)]
        parts += [
            AnswerPart("call", '{"a', size, None, "f"),
            *[AnswerPart("call", "b", size)] * size,
        ]
        parts += [AnswerPart("text", "t", size + place) for place in range(size)]
        parts += [AnswerPart("text", "t", size + p, is_whole=True) for p in range(size)]
        writer = dialect.make_writer(build_answer(0))

        with count_lines() as lines:
            for part in parts:
                writer.add(part)
            writer.finish(build_answer(0))
        steps[number] = lines()

    assert steps[1] < 2.2 * steps[0]
