"""The stream of recorded sessions, whatever agent recorded them."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadRow
from assay.sessions import Children, SessionChoice
from assay.sessions.session_choice import SessionMeta, UnreadableSession
from assay.sessions.session_stream import RecordedSession, SessionStream, StreamOptions
from assay.types import Message, Sample
from make import asked, said, sample


def recorded(
    name: str, *children: RecordedSession, damage: tuple[BadRow, ...] = ()
) -> RecordedSession:
    def build() -> Sample:
        return sample(asked("Hi"), said(f"I am {name}."), id=name)

    return RecordedSession(SessionMeta(id=name), build, lambda: children, damage)


def failing(name: str, error: Exception) -> RecordedSession:
    def build() -> Sample:
        raise error

    return RecordedSession(SessionMeta(id=name), build)


def stream(
    *found: RecordedSession | UnreadableSession,
    choice: SessionChoice | None = None,
    children: Children = "inline",
) -> SessionStream:
    wanted = StreamOptions(choice or SessionChoice(), children)
    return SessionStream(Path("here"), lambda path: found, wanted)


def test_sessions_that_cannot_be_read_are_reported_and_the_rest_goes_on() -> None:
    lost = UnreadableSession("b", BadRow("is broken", where="b.jsonl:1"))
    found = stream(recorded("a"), lost, failing("c", ValueError("odd")), recorded("d"))

    assert [each.id for each in found] == ["a", "d"]
    assert [each.session_id for each in found.reading.skipped] == ["b", "c"]
    assert "the session contains invalid values: odd" in str(found.reading.skipped[1].problem)


def test_faults_of_the_program_are_not_taken_for_faults_of_the_data() -> None:
    with pytest.raises(KeyError):
        list(stream(failing("a", KeyError("bug"))))


def test_each_loop_is_a_pass_of_its_own() -> None:
    found = stream(recorded("a"), recorded("b"))

    assert len(list(found)) == len(list(found)) == 2
    assert found.reading.read == 2


def test_subagents_go_where_they_are_asked_for() -> None:
    family = recorded("a", recorded("b", recorded("c")))

    inline = next(iter(stream(family)))
    separate = [each.id for each in stream(family, children="separate")]
    dropped = stream(family, children="drop")

    inner = inline.metadata["subagents"][0]
    assert (inner["id"], inner["metadata"]["subagents"][0]["id"]) == ("b", "c")
    assert separate == ["a", "b", "c"]
    assert [each.id for each in dropped] == ["a"]


def test_a_subagent_that_cannot_be_read_is_reported_and_its_parent_is_read() -> None:
    lost = UnreadableSession("b", BadRow("is broken"))

    def children() -> list[RecordedSession | UnreadableSession]:
        return [lost, failing("c", BadRow("is broken")), recorded("d")]

    parent = RecordedSession(
        SessionMeta(id="a"), lambda: sample(asked("Hi"), said("Hi."), id="a"), children
    )
    found = stream(parent)
    (read,) = found

    assert [each["id"] for each in read.metadata["subagents"]] == ["d"]
    assert [each.session_id for each in found.reading.skipped] == ["b", "c"]
    assert [each.id for each in stream(parent, children="separate")] == ["a", "d"]


def test_a_session_that_is_its_own_subagent_ends() -> None:
    def again() -> Iterator[RecordedSession]:
        yield ring

    ring = RecordedSession(
        SessionMeta(id="ring"), lambda: sample(asked("Hi"), said("Hi."), id="ring"), again
    )

    found = stream(ring)

    assert len(list(found)) == 1
    assert "the session is nested more than 8 levels deep" in str(found.reading.skipped[0].problem)
    assert len(list(stream(ring, children="separate"))) < 20


def test_sessions_asked_for_by_name_are_found_or_missed() -> None:
    choice = SessionChoice(sessions=frozenset({"b", "z", "lost"}))
    lost = UnreadableSession("lost", BadRow("is broken"))
    other = UnreadableSession("other", BadRow("is broken"))

    found = stream(recorded("a", recorded("b")), lost, other, choice=choice)

    assert [each.id for each in found] == ["b"]
    assert found.reading.missing == ["z"]
    assert [each.session_id for each in found.reading.skipped] == ["lost"]
    assert found.reading.not_chosen == 2


def test_damaged_lines_are_named_in_the_sample_and_in_the_account() -> None:
    damage = tuple(BadRow("is not JSON", where=f"s.jsonl:{n}") for n in range(25))

    found = stream(recorded("a", damage=damage))
    read = next(iter(found))
    list(found)

    assert len(read.metadata["unreadable_lines"]) == len(found.reading.damaged) == 25
    assert found.reading.notes[0] == "s.jsonl:0: is not JSON; line skipped"
    assert found.reading.notes[-1] == "5 more damaged lines skipped"


KINDS = ("talk", "empty", "broken", "lost")
TREES: st.SearchStrategy[tuple[str, list[Any]]] = st.recursive(
    st.tuples(st.sampled_from(KINDS), st.just([])),
    lambda inner: st.tuples(st.sampled_from(KINDS), st.lists(inner, max_size=3)),
    max_leaves=8,
)


def grown(tree: tuple[str, list[Any]], names: list[str]) -> RecordedSession | UnreadableSession:
    """Sessions of these kinds with their subagents; `names` gets the name of each of them."""
    kind, inner = tree
    name = f"s{len(names)}"
    names.append(name)
    if kind == "lost":
        return UnreadableSession(name, BadRow("is broken"))
    children = [grown(each, names) for each in inner]

    def build() -> Sample:
        if kind == "broken":
            raise BadRow("is broken")
        talk = () if kind == "empty" else (asked("Hi"), said("Hi."))
        return sample(Message(role="system", content="Be brief."), *talk, id=name)

    return RecordedSession(SessionMeta(id=name, title=kind), build, lambda: children)


@given(
    trees=st.lists(TREES, max_size=3),
    children=st.sampled_from(get_args(Children)),
    chosen=st.frozensets(st.integers(0, 12), max_size=3),
    title=st.sampled_from([None, "talk"]),
)
def test_each_session_that_is_found_is_counted_once(
    trees: list[tuple[str, list[Any]]],
    children: Children,
    chosen: frozenset[int],
    title: str | None,
) -> None:
    names: list[str] = []
    found = [grown(tree, names) for tree in trees]
    choice = SessionChoice(sessions=frozenset(f"s{n}" for n in chosen), title=title)

    read = stream(*found, choice=choice, children=children)
    samples = list(read)

    told = read.reading
    accounts = (told.empty, len(told.skipped), told.not_chosen, told.inlined, told.dropped)
    assert len(samples) + sum(accounts) == len(names)
    assert len(samples) == told.read
    assert not set(told.missing) & set(names)


def test_subagents_of_a_session_that_comes_to_no_sample_are_read_apart() -> None:
    empty = RecordedSession(SessionMeta(id="e"), lambda: Sample(id="e"), lambda: [recorded("a")])
    broken = RecordedSession(
        SessionMeta(id="f"), failing("f", ValueError("odd")).sample, lambda: [recorded("b")]
    )

    found = stream(empty, broken)

    assert [each.id for each in found] == ["a", "b"]
    assert (found.reading.empty, len(found.reading.skipped)) == (1, 1)


def test_a_session_with_nothing_but_texts_of_the_program_is_empty() -> None:
    def build() -> Sample:
        skipped = [{"id": "u1", "why": "command", "parts": []}]
        system = Message(role="system", content="Be brief.")
        return sample(system, id="e").model_copy(update={"metadata": {"skipped": skipped}})

    found = stream(RecordedSession(SessionMeta(id="e"), build))

    assert list(found) == []
    assert found.reading.empty == 1


def test_empty_sessions_are_counted() -> None:
    empty = RecordedSession(SessionMeta(id="e"), lambda: Sample(id="e"))

    found = stream(empty)

    assert list(found) == []
    assert found.reading.empty == 1


def test_redaction_sees_every_sample_first() -> None:
    def redact(given: Sample) -> Sample:
        return given.model_copy(update={"id": "hidden"})

    wanted = StreamOptions(redact=redact)

    assert [s.id for s in SessionStream(Path("x"), lambda p: [recorded("a")], wanted)] == ["hidden"]


def test_a_stream_holds_one_session_at_a_time() -> None:
    def large(number: int) -> RecordedSession:
        def build() -> Sample:
            return sample(asked("x" * 100_000), said("Hi."), id=str(number))

        return RecordedSession(SessionMeta(id=str(number)), build)

    many = SessionStream(Path("x"), lambda path: map(large, range(300)), StreamOptions())
    tracemalloc.start()
    count = sum(1 for _ in many)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert count == 300
    assert peak < 5_000_000


def of_version(name: str, version: object) -> RecordedSession:
    def build() -> Sample:
        found = sample(asked("Hi"), said("Yes."), id=name)
        found.input["version"] = version
        return found

    return RecordedSession(SessionMeta(id=name), build)


def test_sessions_of_untested_versions_are_read_counted_and_noted() -> None:
    versions = {"a": "1.2.3", "b": "1.2.4", "c": "1.2.4", "d": "dev", "e": None}
    found = SessionStream(
        Path("here"),
        lambda path: [of_version(name, version) for name, version in versions.items()],
        StreamOptions(),
        newest_tested="1.2.3",
    )

    assert [each.id for each in found] == list("abcde")
    assert found.reading.untested_versions == {"1.2.4": 2, "dev": 1}
    assert found.reading.notes == [
        "2 sessions of version 1.2.4, 1 session of version dev: assay is tested with versions "
        "up to 1.2.3; these sessions were read like those of 1.2.3"
    ]


def test_a_note_names_a_few_versions_and_counts_the_others() -> None:
    found = SessionStream(
        Path("here"),
        lambda path: [of_version(str(n), f"9.0.{n}") for n in range(8)],
        StreamOptions(),
        newest_tested="1.2.3",
    )
    list(found)

    assert len(found.reading.untested_versions) == 8
    assert "1 session of version 9.0.4, 3 more: assay is tested" in found.reading.notes[0]


def test_counts_of_unknown_records_that_are_no_counts_are_ignored() -> None:
    def build() -> Sample:
        found = sample(asked("Hi"), said("Yes."), id="a")
        found.metadata["unknown_records"] = {"hologram": 2, "odd": "many"}
        return found

    def odd() -> Sample:
        found = sample(asked("Hi"), said("Yes."), id="b")
        found.metadata["unknown_records"] = 5
        return found

    found = stream(
        RecordedSession(SessionMeta(id="a"), build), RecordedSession(SessionMeta(id="b"), odd)
    )

    assert [each.id for each in found] == ["a", "b"]
    assert found.reading.unknown_kinds == {"hologram": 2}
