"""Files in ATIF, checked with the format's own package."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.errors import DatasetError
from assay.formats.atif import to_atif
from assay.sessions import SessionChoice
from assay.sessions.atif_file import read_atif
from assay.types import Message, Sample
from make import asked, called, said, sample


def document(name: str, **more: Any) -> dict[str, Any]:
    """What another harness might write: only fields of the format itself."""
    return {
        "schema_version": "ATIF-v1.6",
        "session_id": name,
        "agent": {"name": "harness", "version": "1"},
        "steps": [
            {"step_id": 1, "source": "user", "message": "Hi", "timestamp": "2026-03-01T09:00:00Z"},
            {
                "step_id": 2,
                "source": "agent",
                "message": "",
                "model_name": "m",
                "tool_calls": [
                    {"tool_call_id": "c1", "function_name": "ls", "arguments": {"path": "."}}
                ],
                "observation": {"results": [{"source_call_id": "c1", "content": "a.py"}]},
                "metrics": {"prompt_tokens": 7, "completion_tokens": 2},
            },
            {"step_id": 3, "source": "agent", "message": "One file."},
        ],
        **more,
    }


def test_a_document_of_another_harness_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trajectory.json"
    path.write_text(json.dumps(document("s1"), indent=2))

    (read,) = read_atif(path)

    assert read.id == "s1"
    assert [message.role for message in read.messages] == ["user", "assistant", "tool", "assistant"]
    assert read.trajectory is not None
    assert read.trajectory.calls[0].usage is not None
    assert read.trajectory.calls[0].usage.input_tokens == 7


def test_the_fixture_is_what_the_format_s_own_package_accepts() -> None:
    atif = pytest.importorskip("atif")

    assert atif.Trajectory.model_validate(document("s1")).session_id == "s1"


def test_lines_that_ingest_wrote_come_back_as_the_same_samples(tmp_path: Path) -> None:
    child = sample(asked("Count."), said("4"), id="kid")
    answer = Message(
        role="tool", name="task", content="4", tool_call_id="c", details={"subagent": "kid"}
    )
    parent = sample(
        asked("Ask."),
        said(None, called("task", "c")),
        answer,
        said("Four."),
        id="s1",
        metadata={"source": "opencode", "subagents": [child.to_dict()]},
    )
    path = tmp_path / "out.jsonl"
    path.write_text(f"{json.dumps(to_atif(parent).value)}\n")

    (read,) = read_atif(path)

    assert read.messages == parent.messages
    inner = Sample.from_dict(read.metadata["subagents"][0])
    assert (inner.id, inner.messages) == ("kid", child.messages)
    assert [each.id for each in read_atif(path, children="separate")] == ["s1", "kid"]
    assert "subagents" not in next(iter(read_atif(path, children="drop"))).metadata


def test_a_folder_is_searched_and_other_files_are_passed_over(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trajectory.json").write_text(json.dumps(document(name)))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("ATIF-v1.6")

    stream = read_atif(tmp_path, SessionChoice(sessions=frozenset({"b"})))

    assert [each.id for each in stream] == ["b"]
    assert stream.reading.not_chosen == 1


def test_bad_documents_are_named_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    newer = document("s2", schema_version="ATIF-v9.0")
    no_steps = document("s3", steps=None)
    lines = [json.dumps(each) for each in (document("s1"), newer, no_steps)]
    path.write_text("\n".join([*lines, "{", json.dumps(document("s5"))]) + "\n")

    stream = read_atif(path)

    assert [each.id for each in stream] == ["s1", "s5"]
    assert [each.session_id for each in stream.reading.skipped] == ["s2", "s3", "out:4"]
    problems = [str(each.problem) for each in stream.reading.skipped]
    assert f"{path}:2" in problems[0]
    assert "'ATIF-v9.0' is not a supported version" in problems[0]
    assert f"{path}:4" in problems[2]


def test_a_trajectory_that_goes_on_elsewhere_says_so(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document("s1", continued_trajectory_ref="t2.json")))

    assert next(iter(read_atif(path))).metadata["continued_in"] == "t2.json"


def test_a_document_without_a_name_is_called_after_its_file(tmp_path: Path) -> None:
    path = tmp_path / "run7.json"
    path.write_text(json.dumps({**document("x"), "session_id": None}))

    assert [each.id for each in read_atif(path)] == ["run7"]


def test_places_without_documents_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="the folder contains no ATIF files"):
        list(read_atif(tmp_path))
    with pytest.raises(DatasetError, match="the file or folder does not exist"):
        list(read_atif(tmp_path / "none"))


@pytest.mark.parametrize("steps", [5, 1.5, True, "steps", {"a": 1}, None, [5], [None]])
def test_steps_that_are_no_list_of_steps_are_skipped_and_the_others_are_read(
    steps: Any, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text(json.dumps(document("a", steps=steps)))
    (tmp_path / "b.json").write_text(json.dumps(document("b")))
    stream = read_atif(tmp_path)

    assert [each.id for each in stream] == ["b"]
    (skipped,) = stream.reading.skipped
    assert skipped.session_id == "a"
    assert f"{tmp_path / 'a.json'}: steps" in str(skipped.problem)


def test_a_file_that_is_no_text_is_skipped_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\xff\xfe" + b"ATIF-v1.8")
    (tmp_path / "b.json").write_bytes(b"ATIF-v1.8\x00\xff")
    (tmp_path / "c.json").write_text(json.dumps(document("c")))
    (tmp_path / "d.json").mkdir()
    (tmp_path / "e.json").symlink_to(tmp_path / "nowhere")
    stream = read_atif(tmp_path)

    assert [each.id for each in stream] == ["c"]
    assert [each.session_id for each in stream.reading.skipped] == ["a", "b"]


def test_documents_without_names_are_called_after_their_folders(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        text = json.dumps({**document("x"), "session_id": None})
        (tmp_path / name / "trajectory.json").write_text(text)

    assert [each.id for each in read_atif(tmp_path)] == ["one/trajectory", "two/trajectory"]


def test_unknown_fields_and_parts_are_counted_and_kept(tmp_path: Path) -> None:
    step = {
        "step_id": 1,
        "source": "user",
        "message": [{"type": "text", "text": "Hi"}, {"type": "hologram", "of": "a cat"}],
        "mood": "good",
    }
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document("s1", steps=[step], weather="rain")))
    stream = read_atif(path)

    (read,) = stream

    counted = {"field weather": 1, "field steps[].mood": 1, "content part hologram": 1}
    assert stream.reading.unknown_kinds == counted
    assert read.metadata["unknown_records"] == counted
    assert read.metadata["atif"]["weather"] == "rain"
    assert (read.messages[0].__pydantic_extra__ or {})["atif"] == {"mood": "good"}


def test_known_documents_hold_nothing_unknown(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    ours = to_atif(sample(asked("a"), said("b", called("ls", path="."))))
    path.write_text(f"{json.dumps(document('s1'))}\n{json.dumps(ours.value)}\n")
    stream = read_atif(path)

    assert len(list(stream)) == 2
    assert not stream.reading.unknown_kinds
    assert not stream.reading.untested_versions


def test_documents_of_a_newer_version_are_read_and_noted(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document("s1", schema_version="ATIF-v1.9")))
    stream = read_atif(path)

    assert [each.id for each in stream] == ["s1"]
    assert stream.reading.untested_versions == {"1.9": 1}


def test_unknown_fields_inside_a_step_are_counted_and_kept(tmp_path: Path) -> None:
    later = document("s1")
    step = later["steps"][1]
    step["tool_calls"][0]["approved_by"] = "user"
    step["observation"]["results"][0]["is_error"] = True
    step["metrics"]["thinking_tokens"] = 4
    (tmp_path / "a.json").write_text(json.dumps(later))

    stream = read_atif(tmp_path)
    (read,) = stream

    assert dict(stream.reading.unknown_kinds) == {
        "field steps[].tool_calls[].approved_by": 1,
        "field steps[].observation.results[].is_error": 1,
        "field steps[].metrics.thinking_tokens": 1,
    }
    assert '"is_error":true' in read.to_json()
    assert '"approved_by":"user"' in read.to_json()
    assert '"thinking_tokens":4' in read.to_json()


def test_the_call_that_started_a_subagent_names_it(tmp_path: Path) -> None:
    parent = document("s1", subagent_trajectories=[document("kid", trajectory_id="t2")])
    reference = [{"trajectory_id": "t2", "session_id": "kid"}]
    parent["steps"][1]["observation"]["results"][0]["subagent_trajectory_ref"] = reference
    (tmp_path / "a.json").write_text(json.dumps(parent))

    (read,) = read_atif(tmp_path)

    assert read.messages[2].details == {"subagent": "t2"}
    assert [each["id"] for each in read.metadata["subagents"]] == ["t2"]


@pytest.mark.parametrize("inner", [[5, None], 5, "x", {"a": 1}])
def test_subagents_that_are_no_documents_are_reported(inner: Any, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(document("s1", subagent_trajectories=inner)))

    stream = read_atif(tmp_path)

    assert [each.id for each in stream] == ["s1"]
    assert len(stream.reading.skipped) == (len(inner) if isinstance(inner, list) else 1)
