"""Rollouts of Codex: what is found, what becomes of it, and what is told of the rest."""

import shutil
from pathlib import Path

import pytest

from assay.errors import DatasetError
from assay.sessions import SampleOptions, SessionChoice, SessionStream
from assay.sessions.codex import read_codex
from assay.sessions.codex_rollouts import read_parent_id
from assay.types import Sample

FOLDER = Path(__file__).parents[1] / "fixtures" / "codex"
GENUINE = FOLDER.with_name("codex_0_166_0")
"""Sessions that Codex itself wrote, with long strings cut."""

FAILED, REFUSED, PACKED, SEARCHED, BASE, FORK, REVERTED = (
    "01a1e454-6af1-78d0-822e-59f685538cc7",
    "01a1e454-6ef1-70f1-a1fe-9c9d9ab5af94",
    "01a1e454-7351-7ff3-bfc4-d7400270eafa",
    "01a1e455-c79f-7ee3-9362-876941aed2be",
    "01a1e456-d1d8-74b3-8135-6bb959c49a0b",
    "01a1e456-e57d-77c3-a840-3ab12cf5c371",
    "01a1e456-e835-7ec1-b6b1-b696033a8b28",
)
MAIN, CHILD, OLD = (f"019ca000-0000-7000-8000-00000000000{letter}" for letter in "abc")


def by_id(stream: SessionStream) -> dict[str, Sample]:
    return {sample.id: sample for sample in stream}


def said_in(sample: Sample) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in sample.messages]


def rollout(session_id: str) -> Path:
    return next(FOLDER.rglob(f"*{session_id}.jsonl"))


def test_a_session_reads_as_the_user_and_the_agent_said_it() -> None:
    sample = by_id(read_codex(FOLDER))[MAIN]

    assert [role for role, _ in said_in(sample)] == [
        *("system", "user", "assistant", "tool", "tool", "assistant"),
        *("user", "assistant", "tool", "assistant", "tool", "assistant"),
    ]
    assert said_in(sample)[-1] == ("assistant", "The helper agrees: `sum(items)`.")
    assert [call.name for message in sample.messages for call in message.tool_calls] == [
        "exec_command",
        "apply_patch",
        "spawn_agent",
        "web_search",
    ]
    assert sample.messages[2].reasoning == "**Running the test**"
    assert sample.messages[2].model == "gpt-5.2-codex"
    assert sample.status == "completed"
    assert sample.input["version"] == "0.98.0"


def test_every_sample_survives_being_written() -> None:
    for sample in read_codex(FOLDER, children="separate"):
        assert Sample.from_json(sample.to_json()) == sample


def test_tokens_are_counted_once_though_the_count_is_written_again() -> None:
    trajectory = by_id(read_codex(FOLDER))[MAIN].trajectory

    assert trajectory is not None
    used = [call.usage for call in trajectory.calls if call.usage is not None]
    assert [
        (u.input_tokens, u.cached_tokens, u.output_tokens, u.reasoning_tokens) for u in used
    ] == [
        (1000, 400, 60, 20),
        (1200, 1000, 15, 0),
        (1500, 0, 20, 0),
    ]


def test_injected_context_is_marked_synthetic_and_can_be_kept() -> None:
    skipped = by_id(read_codex(FOLDER))[MAIN].metadata["skipped"]
    kept = by_id(read_codex(FOLDER, options=SampleOptions(synthetic=True)))[MAIN]

    assert [each["why"] for each in skipped] == [
        *["injected by the program"] * 3,
        "compaction summary",
    ]
    assert all(each["synthetic"] for each in skipped)
    marked = [m for m in kept.messages if (m.details or {}).get("synthetic")]
    assert [m.role for m in marked] == ["developer", "user", "user"]


def test_turns_that_were_rolled_back_are_left_out_unless_asked_for() -> None:
    plain = by_id(read_codex(FOLDER))[MAIN]
    kept = by_id(read_codex(FOLDER, options=SampleOptions(keep_reverted=True)))[MAIN]

    assert [each["content"] for each in plain.metadata["reverted_messages"]] == [
        "Delete the test.",
        "Deleted.",
    ]
    assert ("user", "Delete the test.") in said_in(kept)


def test_shell_commands_of_the_user_and_compactions_are_beside_the_conversation() -> None:
    metadata = by_id(read_codex(FOLDER))[MAIN].metadata

    assert metadata["user_shell"] == [
        {
            "tool": "shell",
            "args": {"command": "git status"},
            "output": "Exit code: 0\nOutput:\nclean",
        }
    ]
    assert metadata["compactions"] == 1


def test_lines_of_other_types_are_kept_as_they_are_and_repetitions_counted() -> None:
    metadata = by_id(read_codex(FOLDER))[MAIN].metadata

    kinds = [(each["type"], each["payload"].get("type")) for each in metadata["records"]]
    assert ("world_state", None) in kinds
    assert ("response_item", "ghost_snapshot") in kinds
    assert metadata["repeated_events"] == 3


def test_exit_codes_are_read_from_both_ways_of_writing_them() -> None:
    tools = [m.details or {} for m in by_id(read_codex(FOLDER))[MAIN].messages if m.role == "tool"]

    assert [(each.get("exit_code"), each.get("is_error")) for each in tools[:2]] == [
        (1, True),
        (0, False),
    ]


def test_subagents_stand_inside_their_parent_and_are_linked_to_their_call() -> None:
    samples = by_id(read_codex(FOLDER))

    assert set(samples) == {MAIN, OLD}
    assert [each["id"] for each in samples[MAIN].metadata["subagents"]] == [CHILD]
    spawned = next(m for m in samples[MAIN].messages if m.name == "spawn_agent")
    assert (spawned.details or {})["subagent"] == CHILD


def test_subagents_can_be_samples_of_their_own_or_left_out() -> None:
    separate = by_id(read_codex(FOLDER, children="separate"))
    stream = read_codex(FOLDER, children="drop")
    list(stream)

    assert separate[CHILD].metadata["parent_id"] == MAIN
    assert stream.reading.dropped == 1


def test_a_subagent_is_read_when_its_file_is_named_or_its_parent_is_not_there(
    tmp_path: Path,
) -> None:
    shutil.copy(rollout(CHILD), tmp_path)

    assert [sample.id for sample in read_codex(rollout(CHILD))] == [CHILD]
    assert [sample.id for sample in read_codex(tmp_path)] == [CHILD]


def test_lines_of_old_versions_without_an_envelope_are_read() -> None:
    sample = by_id(read_codex(FOLDER))[OLD]

    assert [role for role, _ in said_in(sample)] == ["user", "assistant", "tool", "assistant"]
    assert sample.metadata["records"][0]["payload"] == {"record_type": "state"}


def test_sessions_are_chosen() -> None:
    stream = read_codex(FOLDER, SessionChoice(sessions=frozenset({OLD, "nowhere"})))

    assert set(by_id(stream)) == {OLD}
    assert stream.reading.missing == ["nowhere"]


def test_a_corrupt_line_is_named_by_file_and_line_and_the_rest_is_read(tmp_path: Path) -> None:
    lines = rollout(MAIN).read_text("utf-8").splitlines()
    path = tmp_path / "rollout-x.jsonl"
    path.write_text("\n".join([*lines[:6], "{not json", *lines[6:]]) + "\n", "utf-8")

    stream = read_codex(path)
    sample = next(iter(stream))

    assert len(sample.messages) == 12
    assert [each.problem.where for each in stream.reading.damaged] == [f"{path}:7"]


def test_a_file_of_something_else_is_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    shutil.copy(rollout(OLD), tmp_path)
    (tmp_path / "rollout-other.jsonl").write_text('{"prompt": "a dataset"}\n')
    (tmp_path / "rollout-broken.jsonl").write_text("{\n")
    (tmp_path / "rollout-empty.jsonl").write_text("")

    stream = read_codex(tmp_path)

    assert set(by_id(stream)) == {OLD}
    assert [each.session_id for each in stream.reading.skipped] == [
        "rollout-broken",
        "rollout-empty",
        "rollout-other",
    ]


def test_places_without_rollouts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="the folder contains no rollouts of Codex"):
        list(read_codex(tmp_path))


def test_only_a_spawned_session_has_a_parent() -> None:
    assert (
        read_parent_id({"source": {"subagent": {"thread_spawn": {"parent_thread_id": "p"}}}}) == "p"
    )
    assert read_parent_id({"source": {"subagent": "review"}}) is None
    assert read_parent_id({"source": "cli"}) is None


def test_genuine_sessions_have_no_records_of_unknown_kinds() -> None:
    for folder in (FOLDER, GENUINE):
        stream = read_codex(folder, children="separate")
        samples = list(stream)

        assert samples
        assert stream.reading.unknown_kinds == {}
        assert not any("unknown_records" in sample.metadata for sample in samples)


def test_genuine_failures_are_marked() -> None:
    samples = by_id(read_codex(GENUINE))

    def failures(session: str) -> list[tuple[str | None, bool]]:
        tools = [message for message in samples[session].messages if message.role == "tool"]
        return [(message.name, (message.details or {})["failed"]) for message in tools]

    assert failures(FAILED) == [("no_such_tool", True), ("exec_command", True)]
    assert failures(SEARCHED) == [
        ("tool_search", False),
        ("mcp__shop__lookup", False),
        ("mcp__shop__lookup", True),
    ]


def test_a_genuine_refused_request_aborts_its_session() -> None:
    sample = by_id(read_codex(GENUINE))[REFUSED]

    assert sample.status == "aborted"
    assert sample.trajectory is not None
    assert "context too long" in str(sample.trajectory.termination_reason)
    assert sample.trajectory.calls[-1].error == sample.trajectory.termination_reason


def test_a_genuine_compaction_leaves_no_answer_and_every_token() -> None:
    sample = by_id(read_codex(GENUINE))[BASE]

    assert [text for role, text in said_in(sample) if role == "assistant"] == [
        *("", "", "Both done, and I saw your note."),
        *["Here is the answer you asked for: 42."] * 2,
    ]
    assert sample.metadata["compactions"] == 1
    assert sample.trajectory is not None
    used = [call.usage.input_tokens for call in sample.trajectory.calls if call.usage]
    assert used == [120, 121, 122, 120, 120, 120]


def test_a_genuine_fork_holds_the_turns_it_inherits() -> None:
    samples = by_id(read_codex(GENUINE))

    origin = samples[FORK].metadata["forked_from"]
    assert origin["session_id"] == BASE
    shared = origin["inherited_messages"]
    assert samples[FORK].messages[:shared] == samples[BASE].messages[:shared]
    assert said_in(samples[FORK])[shared:] == [
        ("user", "On the fork. [S13]"),
        ("assistant", "Here is the answer you asked for: 42."),
    ]
    assert samples[BASE].messages[shared].text == "After compaction. [S13]"


def test_a_genuine_revert_is_one_session_without_the_undone_turn() -> None:
    stream = read_codex(GENUINE)
    samples = list(stream)
    reverted = by_id(read_codex(GENUINE))[REVERTED]
    kept = by_id(read_codex(GENUINE, options=SampleOptions(keep_reverted=True)))[REVERTED]

    assert [sample.id for sample in samples] == [
        *(FAILED, REFUSED, PACKED, SEARCHED, BASE, FORK, REVERTED),
    ]
    assert [text for role, text in said_in(reverted) if role == "user"] == [
        *("Keep. [S13]", "Instead. [S13]"),
    ]
    undone = reverted.metadata["reverted_messages"]
    assert [each["content"] for each in undone if each["role"] == "user"] == ["Undo me. [S1]"]
    assert [text for role, text in said_in(kept) if role == "user"] == [
        *("Keep. [S13]", "Undo me. [S1]", "Instead. [S13]"),
    ]
    assert (stream.reading.damaged, stream.reading.skipped, stream.reading.notes) == ([], [], [])


def test_a_genuine_compressed_session_is_read() -> None:
    (sample,) = read_codex(GENUINE, SessionChoice(sessions=frozenset({PACKED})))

    assert said_in(sample)[1:] == [
        ("user", "Retry. [S5]"),
        ("assistant", "It worked the second time."),
    ]


def test_without_the_zstandard_package_compressed_sessions_are_skipped_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("assay.datasets.open_file.find_spec", lambda name: None)

    stream = read_codex(GENUINE)
    samples = list(stream)

    assert len(samples) == 6
    (skipped,) = stream.reading.skipped
    assert skipped.session_id == PACKED
    assert "assay-eval[zstd]" in str(skipped.problem)


def test_a_genuine_title_names_its_session() -> None:
    (sample,) = read_codex(GENUINE, SessionChoice(title="own title"))

    assert (sample.id, sample.input["title"]) == (BASE, "My own title")
