"""Messages and parts of kinds that are not known are counted, never passed over in silence."""

from pathlib import Path

import pytest

from assay.sessions import read_opencode
from opencode_archives import RECORDED, VERSIONS, agent, session, text, user, write_export

HOLOGRAM = {"type": "hologram", "data": 1}


def test_unknown_parts_and_roles_are_counted_and_kept(tmp_path: Path) -> None:
    robot = user(text("beep"), role="robot")
    made = session(
        user(text("Hi"), HOLOGRAM), robot, agent(HOLOGRAM, {"text": "no type"}, text("Yes."))
    )
    stream = read_opencode(write_export(tmp_path / "ses_1.json", made))

    (sample,) = stream

    counted = {"part hologram": 2, "message of role robot": 1, "part of type NoneType": 1}
    assert sample.metadata["unknown_records"] == counted
    assert stream.reading.unknown_kinds == counted
    assert [m.text for m in sample.messages] == ["Hi", "Yes."]
    assert {**HOLOGRAM, "id": "prt_0_1"} in (sample.messages[0].details or {})["parts"]


def test_a_second_pass_counts_anew(tmp_path: Path) -> None:
    stream = read_opencode(
        write_export(tmp_path / "ses_1.json", session(user(text("Hi"), HOLOGRAM)))
    )

    first = iter(stream)
    list(stream)
    list(first)

    assert stream.reading.unknown_kinds == {"part hologram": 1}


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_sessions_hold_nothing_unknown(version: str) -> None:
    stream = read_opencode(RECORDED / version, children="separate")

    assert list(stream)
    assert not stream.reading.unknown_kinds
    assert not stream.reading.untested_versions


def test_a_file_cannot_make_the_list_of_kinds_endless(tmp_path: Path) -> None:
    parts = [{"type": f"kind{n}" + "x" * 1000} for n in range(150)]
    stream = read_opencode(write_export(tmp_path / "ses_1.json", session(user(text("a"), *parts))))

    list(stream)

    assert stream.reading.unknown_kinds.total() == 150
    assert stream.reading.unknown_kinds["others"] == 50
    assert max(map(len, stream.reading.unknown_kinds)) <= 80
