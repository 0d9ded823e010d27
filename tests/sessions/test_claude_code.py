"""Transcripts of Claude Code: what is found, what becomes of it, and what is told of the rest."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError, DatasetError
from assay.sessions import SampleOptions, SessionChoice, SessionStream
from assay.sessions.claude_code import read_claude_code
from assay.types import Sample

FOLDER = Path(__file__).parents[1] / "fixtures" / "claude_code"
NEW = "5b0c1f6e-0000-4000-8000-00000000000a"
OLD = "5b0c1f6e-0000-4000-8000-00000000000b"


def by_id(stream: SessionStream) -> dict[str, Sample]:
    return {sample.id: sample for sample in stream}


def said_in(sample: Sample) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in sample.messages]


def written(folder: Path, *records: dict[str, Any] | str, name: str = "s1") -> Path:
    """A transcript of these records; a string is a line as it is."""
    path = folder / f"{name}.jsonl"
    lines = [r if isinstance(r, str) else json.dumps({"sessionId": name, **r}) for r in records]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def asks(uuid: str, text: str, parent: str | None = None) -> dict[str, Any]:
    message = {"role": "user", "content": text}
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "message": message}


def says(uuid: str, text: str, parent: str | None = None) -> dict[str, Any]:
    message = {"id": f"m{uuid}", "role": "assistant", "model": "m", "content": text}
    return {"type": "assistant", "uuid": uuid, "parentUuid": parent, "message": message}


def test_a_session_reads_as_the_user_and_the_agent_said_it() -> None:
    sample = by_id(read_claude_code(FOLDER))[NEW]

    assert said_in(sample) == [
        ("user", "Why does the cart total come out wrong?"),
        ("assistant", "I'll read both files."),
        ("tool", "     1\tdef total(items):\n     2\t    return sum(items[1:])"),
        ("tool", "Exit code 1\n1 failed"),
        ("assistant", "`total` skips the first item."),
        ("user", "Fix it, and ask a helper to review."),
        ("assistant", ""),
        ("tool", "Looks right now."),
        ("assistant", ""),
        ("user", "/review cart.py"),
        ("assistant", "cart.py is fine."),
    ]
    assert sample.status == "completed"
    assert sample.input["title"] == "Cart total"
    assert sample.messages[1].reasoning == "Look at the code first."


def test_every_sample_survives_being_written() -> None:
    for sample in read_claude_code(FOLDER, children="separate"):
        assert Sample.from_json(sample.to_json()) == sample


def test_usage_is_counted_once_for_each_answer_of_the_model() -> None:
    trajectory = by_id(read_claude_code(FOLDER))[NEW].trajectory

    assert trajectory is not None
    used = [call.usage for call in trajectory.calls]
    assert [u and (u.input_tokens, u.cached_tokens, u.output_tokens) for u in used] == [
        (124, 20, 30),
        (156, 150, 12),
        (172, 160, 20),
        None,
        (208, 200, 6),
    ]
    assert trajectory.calls[3].error == "API Error: 529 overloaded"


def test_the_cost_that_old_versions_noted_is_kept() -> None:
    trajectory = by_id(read_claude_code(FOLDER))[OLD].trajectory

    assert trajectory is not None
    assert [call.usage and call.usage.cost_usd for call in trajectory.calls] == [0.002, None]


def test_what_the_program_put_into_user_messages_is_marked_synthetic() -> None:
    skipped = by_id(read_claude_code(FOLDER))[NEW].metadata["skipped"]

    assert {each["id"]: each["why"] for each in skipped} == {
        "u0": "injected by the program",
        "u1": "command",
        "u1b": "injected by the program",
        "u4": "injected by the program",
        "c2": "compaction summary",
        "u5": "command",
        "u6": "injected by the program",
    }
    assert all(each["synthetic"] for each in skipped)


def test_injected_texts_can_be_kept_and_stay_marked() -> None:
    stream = read_claude_code(FOLDER, options=SampleOptions(synthetic=True))

    marked = [
        message.text
        for message in by_id(stream)[NEW].messages
        if (message.details or {}).get("synthetic")
    ]

    assert marked[0].startswith("Caveat:")
    assert marked[-1] == "Review the file named in the arguments."


def test_what_the_user_went_back_on_is_left_out_unless_asked_for() -> None:
    plain = by_id(read_claude_code(FOLDER))[NEW]
    kept = by_id(read_claude_code(FOLDER, options=SampleOptions(keep_reverted=True)))[NEW]

    assert plain.metadata["reverted_messages"] == ["u3", "a6"]
    assert ("user", "Rewrite it in Rust.") in said_in(kept)
    assert ("user", "Rewrite it in Rust.") not in said_in(plain)


def test_shell_commands_of_the_user_and_compactions_are_beside_the_conversation() -> None:
    metadata = by_id(read_claude_code(FOLDER))[NEW].metadata

    assert metadata["user_shell"] == [
        {"tool": "bash", "args": {"command": "git status"}, "output": "clean"}
    ]
    assert metadata["compactions"] == 1


def test_records_that_are_no_messages_are_counted_and_kept_only_if_asked_for() -> None:
    plain = by_id(read_claude_code(FOLDER))[NEW].metadata
    whole = by_id(read_claude_code(FOLDER, options=SampleOptions(raw_records=True)))[NEW].metadata

    kinds = {"file-history-snapshot", "progress", "queue-operation", "custom-title"}
    assert kinds <= set(plain["omitted_records"])
    assert "records" not in plain
    assert kinds <= {each["type"] for each in whole["records"]}


def test_records_of_unknown_kinds_are_counted_and_kept_as_they_are(tmp_path: Path) -> None:
    block = says("a1", "", "u1")
    block["message"]["content"] = [{"type": "hologram"}]
    result = asks("u2", "", "a1")
    inner = [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "smell"}]}]
    result["message"]["content"] = inner
    odd: list[dict[str, Any]] = [
        {"type": "telepathy", "thought": 1},
        {"type": "attachment", "attachment": {"type": "aura"}},
        {"type": "system", "subtype": "mood"},
        {"type": "user", "message": None},
    ]
    written(tmp_path, asks("u1", "Hi"), *odd, block, result)

    stream = read_claude_code(tmp_path)
    samples = list(stream)

    assert stream.reading.skipped == []
    (sample,) = samples
    assert stream.reading.unknown_kinds == {
        "telepathy": 1,
        "attachment/aura": 1,
        "system/mood": 1,
        "user": 1,
        "content/hologram": 1,
        "content/smell": 1,
    }
    assert [each["type"] for each in sample.metadata["records"]] == [
        "telepathy",
        "attachment",
        "system",
        "user",
    ]


def test_an_empty_file_is_an_empty_session(tmp_path: Path) -> None:
    (tmp_path / "s1.jsonl").touch()

    stream = read_claude_code(tmp_path)

    assert list(stream) == []
    assert (stream.reading.empty, stream.reading.skipped) == (1, [])


def test_subagents_of_a_file_that_cannot_be_read_are_samples_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "s1.jsonl").write_text("{\n")
    inside = tmp_path / "s1" / "subagents"
    inside.mkdir(parents=True)
    written(inside, {**asks("u1", "Count."), "isSidechain": True}, name="agent-x")

    stream = read_claude_code(tmp_path)

    assert [(each.id, each.metadata["parent_id"]) for each in stream] == [("s1/agent-x", "s1")]
    assert [each.session_id for each in stream.reading.skipped] == ["s1"]


def test_a_tool_message_says_how_its_call_ended() -> None:
    details = by_id(read_claude_code(FOLDER))[NEW].messages[3].details or {}

    assert (details["status"], details["is_error"], details["exit_code"]) == ("error", True, 1)


def test_subagents_stand_inside_their_parent_and_are_linked_to_their_call() -> None:
    samples = by_id(read_claude_code(FOLDER))

    assert set(samples) == {NEW, OLD}
    for parent, child in ((NEW, "agent-c0ffee"), (OLD, "agent-x1")):
        sample = samples[parent]
        assert sample.metadata["subagents"][0]["id"] == f"{parent}/{child}"
        links = [(m.details or {}).get("subagent") for m in sample.messages if m.name == "Task"]
        assert links == [f"{parent}/{child}"]


def test_subagents_can_be_samples_of_their_own_or_left_out() -> None:
    separate = by_id(read_claude_code(FOLDER, children="separate"))
    stream = read_claude_code(FOLDER, children="drop")
    dropped = by_id(stream)

    assert set(separate) - {NEW, OLD} == {
        f"{NEW}/agent-c0ffee",
        f"{OLD}/agent-x1",
        f"{OLD}/agent-0b5e11ed",
    }
    child = separate[f"{NEW}/agent-c0ffee"]
    assert child.metadata["parent_id"] == NEW
    assert said_in(child)[-1] == ("assistant", "Looks right now.")
    assert "subagents" not in dropped[NEW].metadata
    assert stream.reading.dropped == 3


def test_an_unknown_way_with_subagents_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="children must be one of separate, inline, drop, not 'merge'"
    ):
        read_claude_code(FOLDER, children="merge")  # type: ignore[arg-type]  # the point


def test_one_file_is_read_with_its_subagents() -> None:
    samples = list(read_claude_code(FOLDER / "-srv-shop" / f"{NEW}.jsonl"))

    assert [sample.id for sample in samples] == [NEW]
    assert len(samples[0].metadata["subagents"]) == 1


def test_a_subagent_without_its_parent_is_a_sample_of_its_own(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "-srv-shop" / "agent-0b5e11ed.jsonl", tmp_path)

    samples = list(read_claude_code(tmp_path))

    assert [(s.id, s.metadata["parent_id"]) for s in samples] == [("agent-0b5e11ed", OLD)]


def test_an_interrupted_session_is_aborted() -> None:
    sample = by_id(read_claude_code(FOLDER))[OLD]

    assert sample.status == "aborted"
    assert sample.trajectory is not None
    assert sample.trajectory.termination_reason == "interrupted"


@pytest.mark.parametrize(
    ("choice", "ids"),
    [
        (SessionChoice(title="CART"), {NEW}),
        (SessionChoice(sessions=frozenset({OLD})), {OLD}),
        (SessionChoice(project="/srv"), {NEW, OLD}),
        (SessionChoice(project="/elsewhere"), set()),
        (SessionChoice(sessions=frozenset({f"{NEW}/agent-c0ffee"})), {f"{NEW}/agent-c0ffee"}),
    ],
)
def test_sessions_are_chosen(choice: SessionChoice, ids: set[str]) -> None:
    assert set(by_id(read_claude_code(FOLDER, choice))) == ids


def test_the_program_s_own_folder_is_understood(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "projects")
    (tmp_path / "history.jsonl").write_text('{"display": "hi"}\n')

    stream = read_claude_code(tmp_path)

    assert set(by_id(stream)) == {NEW, OLD}
    assert stream.reading.skipped == []


def test_a_corrupt_line_is_named_by_file_and_line_and_the_rest_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, asks("u1", "Hi"), '{"type": "assis', says("a1", "Yes?", "gone"))

    stream = read_claude_code(tmp_path)
    sample = next(iter(by_id(stream).values()))

    assert said_in(sample) == [("user", "Hi"), ("assistant", "Yes?")]
    assert [each.problem.where for each in stream.reading.damaged] == [f"{path}:2"]
    assert stream.reading.notes[0].startswith(f"{path}:2: the text is not JSON")
    assert sample.metadata["unreadable_lines"][0]["where"] == f"{path}:2"


def test_a_last_line_that_is_cut_off_is_told_as_such(tmp_path: Path) -> None:
    path = written(tmp_path, asks("u1", "Hi"))
    path.write_bytes(path.read_bytes() + b'{"type": "assistant", "mess')

    stream = read_claude_code(path)
    list(stream)

    assert stream.reading.damaged[0].problem.message == "the last line is truncated"


def test_a_file_of_something_else_is_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    written(tmp_path, asks("u1", "Hi"))
    (tmp_path / "other.jsonl").write_text('{"prompt": "a dataset"}\n')
    (tmp_path / "broken.jsonl").write_text("{\n")

    stream = read_claude_code(tmp_path)

    assert set(by_id(stream)) == {"s1"}
    assert {each.session_id for each in stream.reading.skipped} == {"other", "broken"}


def test_values_that_make_no_sample_skip_one_session_only(tmp_path: Path) -> None:
    written(tmp_path, asks("u1", "Hi"))
    bad = asks("u1", "")
    bad["message"]["content"] = [{"type": "tool_result", "tool_use_id": 7, "content": "x"}]
    written(tmp_path, bad, name="s2")

    stream = read_claude_code(tmp_path)

    assert set(by_id(stream)) == {"s1"}
    assert stream.reading.skipped[0].session_id == "s2"
    assert "session s2" in str(stream.reading.skipped[0].problem)


def test_places_without_transcripts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="the folder contains no transcripts of Claude Code"):
        list(read_claude_code(tmp_path))
    with pytest.raises(DatasetError, match="the file or folder does not exist"):
        list(read_claude_code(tmp_path / "none"))
