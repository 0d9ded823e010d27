"""Sessions that continue others: forks, reverts, chains of both, and history that is not there."""

from pathlib import Path
from typing import Any

import pytest

from assay.sessions import SampleOptions, SessionStream
from assay.sessions.codex import read_codex
from assay.types import Sample
from codex_sessions import compress, write_rollout


def read(path: Path, *, keep_reverted: bool = False) -> tuple[dict[str, Sample], SessionStream]:
    stream = read_codex(path, options=SampleOptions(keep_reverted=keep_reverted))
    samples = list(stream)
    assert len({sample.id for sample in samples}) == len(samples)
    return {sample.id: sample for sample in samples}, stream


def asked(sample: Sample) -> list[str]:
    """The questions; each has its answer."""
    texts = [message.text for message in sample.messages]
    assert texts[1::2] == [text.upper() for text in texts[::2]]
    assert sample.trajectory is not None
    assert [call.message_index for call in sample.trajectory.calls] == [*range(1, len(texts), 2)]
    return texts[::2]


def undone(sample: Sample) -> list[str]:
    messages: list[dict[str, Any]] = sample.metadata.get("reverted_messages", [])
    return [message["content"] for message in messages if message["role"] == "user"]


def test_a_fork_holds_what_it_inherits_and_its_own_turns(tmp_path: Path) -> None:
    origin = write_rollout(tmp_path, "a", "one", "two", "three")
    write_rollout(tmp_path, "b", "other", base=origin.end(2), forked_from_id="a", second=1)

    samples, stream = read(tmp_path)

    assert asked(samples["a"]) == ["one", "two", "three"]
    assert asked(samples["b"]) == ["one", "two", "other"]
    assert "forked_from" not in samples["a"].metadata
    assert samples["b"].metadata["forked_from"] == {
        "session_id": "a",
        "inherited_messages": 4,
        "inherited_turns": 2,
        "complete": True,
    }
    assert samples["b"].messages[:4] == samples["a"].messages[:4]
    assert stream.reading.damaged == []


def test_a_fork_is_dated_by_its_own_turns(tmp_path: Path) -> None:
    origin = write_rollout(tmp_path, "a", "one")
    write_rollout(tmp_path, "b", "other", base=origin.end(), second=90)

    fork = read(tmp_path)[0]["b"]

    assert fork.input["created"] == fork.input["updated"] == "2026-11-16T12:01:30.5Z"


def test_a_fork_of_a_fork_names_the_fork_it_was_made_from(tmp_path: Path) -> None:
    origin = write_rollout(tmp_path, "a", "one", "two")
    fork = write_rollout(tmp_path, "b", "three", "four", base=origin.end(1), second=1)
    write_rollout(tmp_path, "c", "five", base=fork.end(1), second=2)

    samples, _ = read(tmp_path)

    assert asked(samples["b"]) == ["one", "three", "four"]
    assert asked(samples["c"]) == ["one", "three", "five"]
    assert samples["c"].metadata["forked_from"]["session_id"] == "b"
    assert samples["c"].metadata["forked_from"]["inherited_turns"] == 2


def test_a_revert_is_one_session_with_the_later_file_as_its_continuation(tmp_path: Path) -> None:
    first = write_rollout(tmp_path, "a", "one", "two", "three")
    write_rollout(tmp_path, "a", "instead", rollout="x", base=first.end(1), second=9)

    samples, stream = read(tmp_path)

    assert list(samples) == ["a"]
    assert asked(samples["a"]) == ["one", "instead"]
    assert undone(samples["a"]) == ["two", "three"]
    assert "forked_from" not in samples["a"].metadata
    assert samples["a"].input["created"] == "2026-11-16T12:00:00.5Z"
    assert samples["a"].input["updated"] == "2026-11-16T12:00:09.5Z"
    assert (stream.reading.read, stream.reading.damaged) == (1, [])


def test_undone_turns_are_kept_in_place_on_request(tmp_path: Path) -> None:
    first = write_rollout(tmp_path, "a", "one", "two")
    write_rollout(tmp_path, "a", "three", rollout="x", base=first.end(1), second=1)
    write_rollout(tmp_path, "a", "four", rollout="y", base=first.end(0), second=2)

    sample = read(tmp_path, keep_reverted=True)[0]["a"]

    assert asked(sample) == ["one", "two", "three", "four"]
    assert undone(sample) == []


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_revert_of_a_revert_undoes_what_it_does_not_inherit(tmp_path: Path, kept: int) -> None:
    first = write_rollout(tmp_path, "a", "one", "two")
    second = write_rollout(tmp_path, "a", "x1", "x2", rollout="x", base=first.end(1), second=1)
    write_rollout(tmp_path, "a", "y1", rollout="y", base=second.end(kept), second=2)

    sample = read(tmp_path)[0]["a"]

    assert asked(sample) == ["one", *["x1", "x2"][:kept], "y1"]
    assert undone(sample) == ["two", *["x1", "x2"][kept:]]


def test_a_second_revert_may_go_further_back_than_the_first(tmp_path: Path) -> None:
    first = write_rollout(tmp_path, "a", "one", "two", "three")
    write_rollout(tmp_path, "a", "x1", rollout="x", base=first.end(2), second=1)
    write_rollout(tmp_path, "a", "y1", rollout="y", base=first.end(1), second=2)

    sample = read(tmp_path)[0]["a"]

    assert asked(sample) == ["one", "y1"]
    assert undone(sample) == ["three", "two", "x1"]


def test_a_revert_to_the_beginning_inherits_nothing(tmp_path: Path) -> None:
    write_rollout(tmp_path, "a", "one", "two")
    write_rollout(tmp_path, "a", "afresh", rollout="x", second=1)

    sample = read(tmp_path)[0]["a"]

    assert asked(sample) == ["afresh"]
    assert undone(sample) == ["one", "two"]


def test_a_revert_of_a_fork_stays_a_fork(tmp_path: Path) -> None:
    origin = write_rollout(tmp_path, "a", "one", "two")
    fork = write_rollout(tmp_path, "b", "b1", "b2", base=origin.end(), forked_from_id="a", second=1)
    more: dict[str, Any] = {"rollout": "x", "forked_from_id": "a"}
    write_rollout(tmp_path, "b", "x1", base=fork.end(1), second=2, **more)

    sample = read(tmp_path)[0]["b"]

    assert asked(sample) == ["one", "two", "b1", "x1"]
    assert undone(sample) == ["b2"]
    assert sample.metadata["forked_from"]["inherited_turns"] == 2


def test_a_revert_of_a_fork_may_undo_what_the_fork_inherited(tmp_path: Path) -> None:
    origin = write_rollout(tmp_path, "a", "one", "two")
    write_rollout(tmp_path, "b", "b1", base=origin.end(), forked_from_id="a", second=1)
    more: dict[str, Any] = {"rollout": "x", "forked_from_id": "a"}
    write_rollout(tmp_path, "b", "x1", base=origin.end(1), second=2, **more)

    samples, _ = read(tmp_path)

    assert asked(samples["b"]) == ["one", "x1"]
    assert undone(samples["b"]) == ["two", "b1"]
    assert samples["b"].metadata["forked_from"]["inherited_turns"] == 1
    assert asked(samples["a"]) == ["one", "two"]


def test_a_fork_of_a_reverted_session_inherits_from_the_file_it_names(tmp_path: Path) -> None:
    first = write_rollout(tmp_path, "a", "one", "two")
    second = write_rollout(tmp_path, "a", "x1", "x2", rollout="x", base=first.end(1), second=1)
    write_rollout(tmp_path, "b", "b1", base=second.end(1), forked_from_id="a", second=2)
    write_rollout(tmp_path, "c", "c1", base=first.end(2), second=3)

    samples, _ = read(tmp_path)

    assert asked(samples["b"]) == ["one", "x1", "b1"]
    assert asked(samples["c"]) == ["one", "two", "c1"]
    for fork, turns in (("b", 2), ("c", 2)):
        assert samples[fork].metadata["forked_from"]["session_id"] == "a"
        assert samples[fork].metadata["forked_from"]["inherited_turns"] == turns


def test_tokens_after_a_revert_are_counted_though_the_total_is_the_same(tmp_path: Path) -> None:
    def count(total: int) -> str:
        info = f'"total_token_usage": {{"t": {total}}}, "last_token_usage": {{"input_tokens": 5}}'
        payload = f'{{"type": "token_count", "info": {{{info}}}}}'
        return f'{{"type": "event_msg", "payload": {payload}}}\n'

    first = write_rollout(tmp_path, "a", "one", "two")
    lines = first.path.read_text().splitlines(keepends=True)
    first.path.write_text("".join([*lines[:4], count(5), *lines[4:], count(10)]))
    second = write_rollout(tmp_path, "a", "again", rollout="x", base=first.end(1), second=1)
    with second.path.open("a") as file:
        file.write(count(10))

    sample = read(tmp_path)[0]["a"]

    assert sample.trajectory is not None
    assert [call.usage and call.usage.input_tokens for call in sample.trajectory.calls] == [5, 5]


def test_bases_may_be_compressed_and_in_folders_of_other_days(tmp_path: Path) -> None:
    day = tmp_path / "sessions/2026/11"
    origin = write_rollout(day / "15", "a", "one", "two")
    fork = write_rollout(tmp_path / "archived_sessions", "b", "b1", base=origin.end(1), second=1)
    last = write_rollout(day / "16", "c", "c1", base=fork.end(), second=2)
    compress(origin.path)

    for path in (tmp_path, tmp_path / "sessions", day / "16", last.path):
        samples, stream = read(path)

        assert asked(samples["c"]) == ["one", "b1", "c1"]
        assert stream.reading.damaged == []
        assert samples["c"].metadata["forked_from"]["session_id"] == "b"


def test_the_continuation_is_found_when_an_earlier_file_or_its_folder_is_named(
    tmp_path: Path,
) -> None:
    days = tmp_path / "sessions/2026/11"
    first = write_rollout(days / "15", "a", "one", "two")
    second = write_rollout(days / "16", "a", "x1", rollout="x", base=first.end(1), second=1)

    for path in (first.path, second.path, first.path.parent, second.path.parent):
        assert asked(read(path)[0]["a"]) == ["one", "x1"]


def test_positions_are_bytes_where_records_have_no_ordinals(tmp_path: Path) -> None:
    origin = write_rollout(tmp_path, "a", "one", "two")
    shorter = origin.path.read_bytes()
    for ordinal in range(10):
        shorter = shorter.replace(b'"ordinal": %d, ' % ordinal, b"")
    origin.path.write_bytes(shorter)
    lines = shorter.splitlines(keepends=True)
    base = {"thread_id": "a", "end_byte_offset": sum(map(len, lines[:4]))}
    write_rollout(tmp_path, "b", "b1", base=base, second=1)

    samples, stream = read(tmp_path)

    assert asked(samples["b"]) == ["one", "b1"]
    assert stream.reading.damaged == []


BROKEN: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "missing": (
        {"thread_id": "gone", "end_ordinal_exclusive": 4},
        "inherited history is missing: rollout gone does not exist",
        ["own"],
    ),
    "beyond the end": (
        {"thread_id": "a", "end_ordinal_exclusive": 99},
        "inherited history is incomplete: `history_base` ends after the last record of rollout a",
        ["one", "two", "own"],
    ),
    "before the beginning": (
        {"thread_id": "a", "end_ordinal_exclusive": 0},
        "inherited history is incomplete: `history_base` ends before the first record of rollout a",
        ["own"],
    ),
    "no position": (
        {"thread_id": "a", "end_ordinal_exclusive": "4"},
        "inherited history is missing: `history_base` has no position",
        ["own"],
    ),
    "itself": (
        {"thread_id": "b", "end_ordinal_exclusive": 1},
        "inherited history is missing: rollout b does not exist",
        ["own"],
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_fork_without_its_history_is_read_and_says_so(tmp_path: Path, kind: str) -> None:
    base, why, turns = BROKEN[kind]
    write_rollout(tmp_path, "a", "one", "two")
    fork = write_rollout(tmp_path, "b", second=1)
    lines = fork.path.read_text().replace(
        '"0.166.0"', f'"0.166.0", "history_base": {to_json(base)}'
    )
    own = write_rollout(tmp_path / "own", "b", "own").path
    fork.path.write_text(lines + "".join(own.read_text().splitlines(keepends=True)[1:]))
    own.unlink()

    samples, stream = read(tmp_path)

    assert asked(samples["b"]) == turns
    assert [each.session_id for each in stream.reading.damaged] == ["b"]
    assert [each.problem.message for each in stream.reading.damaged] == [why]
    assert why in stream.reading.notes[0]
    assert [each["why"] for each in samples["b"].metadata["unreadable_lines"]] == [why]
    if origin := samples["b"].metadata.get("forked_from"):
        assert not origin["complete"]
    assert asked(samples["a"]) == ["one", "two"]


def to_json(base: dict[str, Any]) -> str:
    return str(base).replace("'", '"')


def test_a_revert_without_its_earlier_file_is_read_and_says_so(tmp_path: Path) -> None:
    first = write_rollout(tmp_path, "a", "one")
    write_rollout(tmp_path, "a", "x1", rollout="x", base=first.end(), second=1)
    first.path.unlink()

    samples, stream = read(tmp_path)

    assert asked(samples["a"]) == ["x1"]
    assert "forked_from" not in samples["a"].metadata
    assert len(stream.reading.damaged) == 1


def test_a_revert_at_a_wrong_position_keeps_what_there_is(tmp_path: Path) -> None:
    first = write_rollout(tmp_path, "a", "one")
    wrong = {**first.end(), "end_ordinal_exclusive": 70}
    write_rollout(tmp_path, "a", "x1", rollout="x", base=wrong, second=1)

    samples, stream = read(tmp_path)

    assert asked(samples["a"]) == ["one", "x1"]
    assert "ends after the last record of rollout a" in stream.reading.damaged[0].problem.message


def test_rollouts_that_inherit_from_each_other_are_read_and_say_so(tmp_path: Path) -> None:
    of_b = {"thread_id": "b", "end_ordinal_exclusive": 4, "end_byte_offset": 1}
    first = write_rollout(tmp_path, "a", "one", base=of_b)
    write_rollout(tmp_path, "b", "two", base=first.end(), second=1)
    write_rollout(tmp_path, "c", "three", base=first.end(), second=2)

    samples, stream = read(tmp_path)

    assert [asked(samples[each]) for each in "abc"] == [["one"], ["two"], ["one", "three"]]
    assert [each.session_id for each in stream.reading.damaged] == ["a", "b", "c"]
    assert "inherits from itself" in stream.reading.damaged[0].problem.message


def test_two_files_of_a_thread_that_inherit_from_each_other_repeat_no_turn(tmp_path: Path) -> None:
    of_x = {"thread_id": "x", "end_ordinal_exclusive": 9, "end_byte_offset": 1}
    first = write_rollout(tmp_path, "a", "one", base=of_x)
    write_rollout(tmp_path, "a", "two", rollout="x", base=first.end(), second=1)

    samples, stream = read(tmp_path)

    assert asked(samples["a"]) == ["one", "two"]
    assert len(stream.reading.damaged) == 1


def test_damage_in_what_a_session_inherits_is_named_there_and_in_the_session(
    tmp_path: Path,
) -> None:
    origin = write_rollout(tmp_path, "a", "one", "two")
    write_rollout(tmp_path, "b", "b1", base=origin.end(), second=1)
    lines = origin.path.read_text().splitlines(keepends=True)
    origin.path.write_text("".join([*lines[:4], "{broken\n", *lines[4:]]))

    samples, stream = read(tmp_path)

    assert asked(samples["b"]) == ["one", "two", "b1"]
    assert [(each.session_id, each.problem.where) for each in stream.reading.damaged] == [
        ("a", f"{origin.path}:5"),
        ("b", f"{origin.path}:5"),
    ]


def test_damage_right_before_the_position_is_reported_once(tmp_path: Path) -> None:
    origin = write_rollout(tmp_path, "a", "one", "two")
    write_rollout(tmp_path, "b", "b1", base=origin.end(1), second=1)
    lines = origin.path.read_text().splitlines(keepends=True)
    origin.path.write_text("".join([*lines[:3], "{broken\n", *lines[4:]]))

    samples, stream = read(tmp_path)

    assert asked(samples["b"]) == ["one", "b1"]
    assert [each.session_id for each in stream.reading.damaged] == ["a", "b"]


def test_a_base_that_cannot_be_opened_is_reported_with_the_reason(tmp_path: Path) -> None:
    origin = write_rollout(tmp_path, "a", "one")
    write_rollout(tmp_path, "b", "b1", base=origin.end(), second=1)
    packed = compress(origin.path)
    packed.write_bytes(b"no zstd")

    samples, stream = read(tmp_path)

    assert asked(samples["b"]) == ["b1"]
    assert [each.session_id for each in stream.reading.skipped] == ["a"]
    assert any("not valid zstd" in each.problem.message for each in stream.reading.damaged)


def test_a_subagent_tells_the_history_that_was_copied_into_it_from_its_own(tmp_path: Path) -> None:
    own: dict[str, Any] = {"forked_from_id": "a", "subagent_history_start_ordinal": 4}
    write_rollout(tmp_path, "b", "one", "b1", **own)

    sample = read(tmp_path)[0]["b"]

    assert asked(sample) == ["one", "b1"]
    assert sample.metadata["forked_from"]["inherited_messages"] == 2


def test_a_fork_of_an_older_version_repeats_its_history_in_its_own_file(tmp_path: Path) -> None:
    write_rollout(tmp_path, "b", "one", "b1", forked_from_id="a")

    samples, stream = read(tmp_path)

    assert asked(samples["b"]) == ["one", "b1"]
    assert samples["b"].metadata["forked_from"]["session_id"] == "a"
    assert samples["b"].metadata["forked_from"]["inherited_messages"] is None
    assert stream.reading.damaged == []
