"""The stream of samples: children, choices, broken sessions, and the account of all of them."""

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from assay.errors import ConfigError, DatasetError
from assay.formats.atif import from_atif, to_atif
from assay.formats.eval_record import eval_record_schema, from_eval_record, to_eval_record
from assay.sessions import SampleOptions, SessionChoice, read_opencode
from assay.types import Sample
from opencode_archives import (
    NOW,
    RECORDED,
    VERSIONS,
    agent,
    exported,
    recorded,
    session,
    text,
    tool,
    user,
    write_database,
    write_tree,
)

PARENT = session(user(text("count")), agent(tool("task", metadata={"sessionId": "ses_2"})))
CHILD = session(user(text("count a.py")), agent(text("4")), id="ses_2", parentID="ses_1")


@pytest.fixture
def family(tmp_path: Path) -> Path:
    for each, other in ((PARENT, "a"), (CHILD, "b")):
        for message in each.messages:
            message.info["id"] = f"msg_{other}{message.info['id'][-1]}"
    return write_tree(tmp_path / "family", [PARENT, CHILD])


@pytest.mark.parametrize("version", VERSIONS)
def test_every_recorded_session_becomes_a_sample_that_can_be_written(version: str) -> None:
    stream = read_opencode(RECORDED / version, children="separate")

    samples = list(stream)

    assert len(samples) == {"0.1.174": 1, "0.5.29": 7, "1.1.65": 9, "1.18.33": 9}[version]
    assert stream.reading.read == len(samples)
    assert not stream.reading.skipped
    assert all(Sample.from_json(sample.to_json()) == sample for sample in samples)


def test_calls_add_up_to_what_opencode_counted_for_the_session() -> None:
    compared = []
    for sample in read_opencode(RECORDED / "1.18.33", options=SampleOptions(keep_reverted=True)):
        assert sample.trajectory is not None
        usages = [call.usage for call in sample.trajectory.calls if call.usage is not None]
        info = sample.metadata["info"]
        counted = info["tokens"]
        compared.append(sample.metadata.get("compactions", 0))

        assert sum(each.input_tokens or 0 for each in usages) == (
            counted["input"] + counted["cache"]["read"] + counted["cache"]["write"]
        )
        assert sum(each.output_tokens or 0 for each in usages) == (
            counted["output"] + counted["reasoning"]
        )
        assert sum(each.cost_usd or 0.0 for each in usages) == pytest.approx(info["cost"])
    assert sorted(compared)[-1] == 1
    assert len(compared) > 5


def test_a_subagent_stands_inside_the_sample_of_its_parent(family: Path) -> None:
    stream = read_opencode(family)

    (sample,) = stream

    (child,) = sample.metadata["subagents"]
    assert Sample.from_dict(child).response == "4"
    answer = next(message for message in sample.messages if message.role == "tool")
    assert (answer.details or {})["subagent"] == child["id"] == "ses_2"
    assert (stream.reading.read, stream.reading.inlined, stream.reading.not_chosen) == (1, 1, 0)


def test_a_subagent_can_be_a_sample_of_its_own(family: Path) -> None:
    samples = {each.id: each for each in read_opencode(family, children="separate")}

    assert samples["ses_2"].metadata["parent_id"] == "ses_1"
    assert "subagents" not in samples["ses_1"].metadata


def test_a_subagent_can_be_left_out_and_is_counted(family: Path) -> None:
    stream = read_opencode(family, children="drop")

    assert [sample.id for sample in stream] == ["ses_1"]
    assert stream.reading.dropped == 1


def test_a_subagent_that_is_asked_for_is_given(family: Path) -> None:
    stream = read_opencode(family, SessionChoice(sessions=frozenset({"ses_2"})))

    assert [sample.id for sample in stream] == ["ses_2"]


def test_a_subagent_whose_parent_is_not_there_is_given(tmp_path: Path) -> None:
    stream = read_opencode(write_tree(tmp_path, [CHILD]))

    assert [sample.id for sample in stream] == ["ses_2"]


def test_a_subagent_whose_parent_is_not_asked_for_is_counted(family: Path) -> None:
    stream = read_opencode(family, SessionChoice(title="nothing like it"))

    assert list(stream) == []
    assert stream.reading.not_chosen == 2


def test_a_broken_subagent_is_named_and_its_parent_is_read(family: Path) -> None:
    next((family / "storage/message/ses_2").iterdir()).write_text("{")
    stream = read_opencode(family)

    (sample,) = stream

    assert "subagents" not in sample.metadata
    assert [each.session_id for each in stream.reading.skipped] == ["ses_2"]
    assert stream.reading.not_chosen == 0


def test_the_subagents_of_a_broken_parent_are_read_apart(family: Path) -> None:
    next((family / "storage/message/ses_1").iterdir()).write_text("{")
    stream = read_opencode(family)

    assert [sample.id for sample in stream] == ["ses_2"]
    assert [each.session_id for each in stream.reading.skipped] == ["ses_1"]


def test_a_session_that_is_its_own_subagent_ends(tmp_path: Path) -> None:
    made = [session(user(text("a")), id="ses_1", parentID="ses_2")]
    made.append(session(user(text("b"), id="msg_b"), id="ses_2", parentID="ses_1"))
    path = write_tree(tmp_path, made)
    chosen = read_opencode(path, SessionChoice(sessions=frozenset({"ses_1"})))
    every = read_opencode(path)

    assert list(chosen) == list(every) == []
    assert "is its own subagent" in str(chosen.reading.skipped[0].problem)
    assert [each.session_id for each in every.reading.skipped] == ["ses_1", "ses_2"]


def test_a_corrupt_session_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    root = recorded("1.1.65", tmp_path)
    broken = sorted((root / "storage/message").iterdir())[0]
    next(broken.iterdir()).write_text("{")
    stream = read_opencode(root, children="separate")

    samples = list(stream)

    assert len(samples) == 8
    assert [each.session_id for each in stream.reading.skipped] == [broken.name]


def test_values_that_make_no_sample_are_a_broken_session(tmp_path: Path) -> None:
    odd = session(user(text("a")), agent(tool("x", output="o"), providerID="p"))
    odd.messages[1].parts[1]["state"]["input"] = {"n": 10**400}
    odd.messages[1].info["cost"] = 1e308
    good = session(user(text("b"), id="msg_b"), id="ses_2")
    stream = read_opencode(write_tree(tmp_path, [odd, good]))

    written = [sample.id for sample in stream]

    assert "ses_2" in written
    assert len(written) + len(stream.reading.skipped) == 2


def test_sessions_in_which_nothing_was_said_are_counted(tmp_path: Path) -> None:
    stream = read_opencode(write_database(tmp_path / "opencode.db", [session()]))

    assert list(stream) == []
    assert stream.reading.empty == 1


def test_sessions_are_chosen_by_time_and_those_not_there_are_named() -> None:
    later = datetime.fromtimestamp(NOW / 1000 + 10**6, UTC)
    stream = read_opencode(
        RECORDED / "1.18.33", SessionChoice(since=later, sessions=frozenset({"ses_x"}))
    )

    assert list(stream) == []
    assert stream.reading.missing == ["ses_x"]
    assert stream.reading.not_chosen == 9


def test_options_reach_the_samples() -> None:
    plain = sum(len(each.messages) for each in read_opencode(RECORDED / "1.18.33"))
    options = SampleOptions(keep_reverted=True, synthetic=True)

    more = sum(len(each.messages) for each in read_opencode(RECORDED / "1.18.33", options=options))

    assert more > plain


def test_each_sample_is_redacted_before_anybody_sees_it(family: Path) -> None:
    def redact(sample: Sample) -> Sample:
        return sample.model_copy(update={"metadata": {}})

    (sample,) = read_opencode(family, redact=redact)

    assert sample.metadata == {}


def test_each_loop_is_a_pass_of_its_own(family: Path) -> None:
    stream = read_opencode(family)

    assert len(list(stream)) == len(list(stream)) == 1
    assert stream.reading.read == 1


def test_a_wrong_request_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="children must be one of separate, inline, drop, not 'all'"
    ):
        read_opencode(tmp_path, children="all")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(DatasetError, match="the folder contains no OpenCode sessions"):
        list(read_opencode(tmp_path))


ODD = [None, True, -1, 1.5, "", "x", [], {}, [1], {"a": 1}, 1e300, 10**30, "\ud83d"]


def spoiled(value: Any, chance: random.Random) -> Any:
    """`value` with a few of its inner values gone or of another kind."""
    places: list[tuple[Any, Any]] = []
    todo = [value]
    while todo:
        inner = todo.pop()
        keys = list(inner) if isinstance(inner, dict) else range(len(inner))
        places += [(inner, key) for key in keys]
        todo += [inner[key] for key in keys if isinstance(inner[key], dict | list)]
    for container, key in chance.sample(places, 4):
        if isinstance(container, dict) and chance.random() < 0.3:
            container.pop(key, None)
        else:
            container[key] = chance.choice(ODD)
    return value


@pytest.mark.parametrize("seed", range(40))
def test_whatever_a_session_holds_it_is_a_sample_or_named(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    made = chance.choice([*exported("1.1.65").values(), *exported("1.18.33").values()])
    path = tmp_path / "ses_1.json"
    path.write_text(json.dumps(spoiled(made, chance)))
    stream = read_opencode(path)

    samples = list(stream)

    assert len(samples) + len(stream.reading.skipped) + stream.reading.empty == 1
    for sample in samples:
        assert Sample.from_json(sample.to_json()) == sample
        record = to_eval_record(sample).value
        Draft202012Validator(eval_record_schema()).validate(record)
        assert to_eval_record(from_eval_record(record)).value == record
        assert from_atif(to_atif(sample).value) == sample
