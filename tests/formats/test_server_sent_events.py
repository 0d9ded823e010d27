"""Server-sent events: read in any chunks, written so that they are read back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import WireError
from assay.formats import KEEP_ALIVE, EventReader, StreamEvent, write_event
from assay.formats.server_sent_events import parse_event_json

STREAM = (
    b'data: {"a": 1}\n\n'
    b": keep-alive\n\n"
    b"event: named\r\ndata: one\r\ndata: two\r\n\r\n"
    b'id: 7\nevent: last\ndata: {"b":"\xc3\xa9"}\n\n'
    b"data: [DONE]\n\n"
)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_events_do_not_depend_on_the_chunks_they_arrive_in(sizes: list[int]) -> None:
    reader, start = EventReader(), 0
    found: list[StreamEvent] = []
    for size in [*sizes, len(STREAM)]:
        found += reader.feed(STREAM[start : start + size])
        start += size

    assert [(event.name, event.data) for event in found] == [
        (None, b'{"a": 1}'),
        (None, b""),
        ("named", b"one\ntwo"),
        ("last", b'{"b":"\xc3\xa9"}'),
        (None, b"[DONE]"),
    ]
    assert b"".join(event.raw for event in found) == STREAM
    assert reader.rest == b""


def test_an_incomplete_event_is_kept_as_the_rest() -> None:
    reader = EventReader()

    assert list(reader.feed(b"data: half")) == []
    assert reader.rest == b"data: half"


def test_events_are_read_back_as_written() -> None:
    data = write_event({"text": "a\nb"}, name="x") + KEEP_ALIVE + write_event("[DONE]")

    first, comment, last = EventReader().feed(data)

    assert (first.name, json.loads(first.data)) == ("x", {"text": "a\nb"})
    assert comment.data == b""
    assert last.data == b"[DONE]"


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b'"x"', b"[" * 10_000])
def test_an_event_that_is_not_an_object_is_refused(data: bytes) -> None:
    with pytest.raises(WireError, match="an event of the stream is not"):
        parse_event_json(data)


def test_a_lone_surrogate_in_an_event_is_replaced() -> None:
    assert parse_event_json(b'{"a": "\\ud83d"}') == {"a": "\ufffd"}


def test_an_endless_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.formats.server_sent_events._MAX_EVENT_BYTES", 100)
    reader = EventReader()

    with pytest.raises(WireError, match="more than 100 bytes"):
        list(reader.feed(b"data: " + b"x" * 200))


def test_a_large_event_in_many_pieces_is_read_in_one_pass() -> None:
    reader, piece = EventReader(), b"x" * 1000
    # Copied with each piece, it would be 1,800 GB: this test would not end.
    reader.feed(b"data: ")
    for _ in range(60_000):
        assert reader.feed(piece) == []
    (event,) = reader.feed(b"\n\nda")

    assert len(event.data) == 60_000_000
    assert reader.rest == b"da"


def test_every_line_end_of_the_standard_ends_an_event() -> None:
    lines = ["data: 1", "", "data: 2", "", ": x", "", "event: e", "data: 3", "data: 4", "", ""]
    for end in ("\n", "\r\n", "\r"):
        stream = end.join(lines).encode()
        for size in (1, 2, 3, 5, 1000):
            reader = EventReader()
            found = [
                event
                for at in range(0, len(stream), size)
                for event in reader.feed(stream[at : at + size])
            ]

            assert b"".join(event.raw for event in found) + reader.rest == stream
            known = [(event.name, event.data) for event in found if event.data]
            assert known == [(None, b"1"), (None, b"2"), ("e", b"3\n4")]


def test_a_large_incomplete_event_after_a_carriage_return_is_read_in_one_pass() -> None:
    reader = EventReader()

    # Searched again from each of its bytes, it would take hours.
    (event,) = reader.feed(b"data: 1\r\n\r\ndata: " + b"x" * 10_000_000)

    assert event.data == b"1"
    assert len(reader.feed(b"\r\n\r\n")[0].data) == 10_000_000


def test_the_lines_of_a_large_event_are_read_in_one_pass() -> None:
    reader, line = EventReader(), b"data: " + b"x" * 1000 + b"\n"
    # Joined with each line, it would be 3 TB: this test would not end.
    for _ in range(60_000):
        assert reader.feed(line) == []
    (event,) = reader.feed(b"\n")

    assert len(event.data) == 60_000 * 1001 - 1


def test_a_stream_that_does_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.formats.server_sent_events._MAX_STREAM_BYTES", 100)
    reader = EventReader()
    for _ in range(10):
        assert len(reader.feed(b"data: xx\n\n")) == 1

    with pytest.raises(WireError, match="the stream has more than 100 bytes"):
        reader.feed(b"data: xx\n\n")
