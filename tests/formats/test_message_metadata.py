"""Results on messages: attached, replaced, kept beside other metadata, and read back."""

import pytest

from assay.errors import WireError
from assay.formats.message_metadata import (
    attach_result,
    attach_trajectory_result,
    read_result,
    read_trajectory_result,
)
from assay.types import EvaluateResult, Message, Metric, StepOutput, Trajectory

GOOD = EvaluateResult(score=0.75, reason="right place", metrics=[Metric("exact", 0.75)])
ANSWER = Message(role="assistant", content="Oslo", metadata={"turn": "3"})


@pytest.mark.parametrize("lossless", [False, True])
def test_a_result_rides_on_its_message(lossless: bool) -> None:
    carrying = attach_result(ANSWER, GOOD, lossless=lossless)

    assert read_result(carrying) == GOOD
    assert carrying.metadata["turn"] == "3"
    assert carrying.text == "Oslo"


def test_the_message_itself_is_left_alone() -> None:
    attach_result(ANSWER, GOOD)

    assert ANSWER.metadata == {"turn": "3"}


def test_a_carried_result_survives_being_written_and_read_as_json() -> None:
    carrying = attach_result(ANSWER, GOOD, lossless=True)

    assert read_result(Message.from_json(carrying.to_json())) == GOOD


def test_a_message_without_a_result_gives_none() -> None:
    assert read_result(ANSWER) is None
    assert read_result(Message(role="user", metadata={"eval_protocol_version": "2"})) is None


@pytest.mark.parametrize("key", ["eval_protocol_info", "eval_protocol_more_1"])
def test_a_message_with_a_piece_of_a_result_gives_an_invalid_one(key: str) -> None:
    result = read_result(Message(role="user", metadata={key: "{}"}))

    assert result is not None
    assert result.reward is None
    assert "eval_protocol_score is missing" in str(result.error)


def test_a_new_result_takes_the_place_of_the_old_with_all_its_pairs() -> None:
    long = EvaluateResult(score=0.1, step_outputs=_steps(40))
    before = attach_result(ANSWER, long, lossless=True)

    after = attach_result(before, GOOD)

    assert "eval_protocol_more_1" in before.metadata
    assert set(after.metadata) == {"turn", "eval_protocol_score", "eval_protocol_info"}
    assert read_result(after) == GOOD


def test_keys_of_others_that_only_look_similar_are_kept() -> None:
    foreign = {"eval_protocol_version": "2", "eval_protocol_more_x": "y"}

    carrying = attach_result(Message(role="user", metadata=foreign), GOOD)

    assert foreign.items() <= carrying.metadata.items()


def test_sixteen_pairs_are_filled_and_never_exceeded() -> None:
    roomy = Message(role="user", metadata={f"key {n}": "" for n in range(14)})
    full = Message(role="user", metadata={f"key {n}": "" for n in range(15)})

    assert len(attach_result(roomy, GOOD).metadata) == 16
    with pytest.raises(WireError, match=r"needs 2 pairs of metadata; 1 of 16 are free(?s:.*)hint"):
        attach_result(full, GOOD)
    with pytest.raises(WireError, match="needs 3 pairs of metadata; 2 of 16 are free"):
        attach_result(roomy, GOOD, lossless=True)


def test_pairs_of_the_result_that_is_replaced_are_free() -> None:
    roomy = Message(role="user", metadata={f"key {n}": "" for n in range(14)})
    full = attach_result(roomy, EvaluateResult(score=0.0))

    assert read_result(attach_result(full, GOOD)) == GOOD


def test_more_metadata_than_allowed_leaves_nothing_free() -> None:
    crowded = Message(role="user", metadata={f"key {n}": "" for n in range(20)})

    with pytest.raises(WireError, match="0 of 16 are free"):
        attach_result(crowded, GOOD)


def test_a_trajectorys_result_rides_on_its_last_message() -> None:
    trajectory = Trajectory(messages=[Message(role="user", content="Where?"), ANSWER])
    result = EvaluateResult(score=1.0, step_outputs=_steps(3))

    carrying = attach_trajectory_result(trajectory.messages, result)

    assert carrying[0] is trajectory.messages[0]
    assert read_trajectory_result(carrying) == result
    assert read_trajectory_result(trajectory.messages) is None


def test_results_of_earlier_turns_stay_beside_the_trajectorys() -> None:
    turns = [attach_result(ANSWER, GOOD), ANSWER]

    carrying = attach_trajectory_result(turns, EvaluateResult(score=0.0), lossless=True)

    assert read_result(carrying[0]) == GOOD
    assert read_trajectory_result(carrying) == EvaluateResult(score=0.0)


def test_a_trajectory_without_messages_cannot_carry_a_result() -> None:
    assert read_trajectory_result([]) is None
    with pytest.raises(
        WireError, match=r"attach_trajectory_result\(\): the trajectory has no message"
    ):
        attach_trajectory_result([], GOOD)


def _steps(count: int) -> list[StepOutput]:
    return [StepOutput(step_index=n, base_reward=n / 10) for n in range(count)]
