"""Parts of an answer as events of another API: whatever a server sends, the stream is valid."""

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from assay.errors import WireError
from assay.formats import EventReader, GeminiStream, ModelAnswer, read_gemini_parts
from assay.gateway.dialects import DIALECTS, Dialect
from assay.types import Message, ToolCall, Usage
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
