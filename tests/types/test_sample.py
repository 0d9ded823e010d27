"""The sample: two spellings, its views, its id, and the exact way to JSON and back."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from assay.errors import WireError
from assay.types import (
    EvaluateResult,
    EvaluationRow,
    Message,
    Metric,
    ModelCall,
    Sample,
    Status,
    StepOutput,
    Trajectory,
    Usage,
)
from make import answered, asked, called, said, sample, steps


def test_an_evaluation_row_is_a_sample() -> None:
    result = EvaluateResult(score=1.0)
    messages = [asked("2+2?"), said("4")]

    row = EvaluationRow(
        messages=messages, ground_truth="4", evaluation_result=result, input_metadata={"n": 1}
    )

    assert type(row) is Sample
    assert row == Sample(
        id=row.id, prompt=messages, ground_truth="4", score=result, metadata={"n": 1}
    )
    assert row.messages == messages
    assert row.evaluation_result is row.score
    assert row.input_metadata is row.metadata


def test_both_spellings_load_and_one_is_written() -> None:
    written = (
        '{"id":"a","prompt":[{"role":"user","content":"hi"}],'
        '"score":{"score":1.0},"metadata":{"k":1}}'
    )
    other = (
        written.replace('"prompt"', '"messages"')
        .replace('"score":{', '"evaluation_result":{')
        .replace('"metadata"', '"input_metadata"')
    )

    assert Sample.from_json(other) == Sample.from_json(written)
    assert Sample.from_json(other).to_json() == written


def test_both_spellings_can_be_assigned() -> None:
    row = EvaluationRow(messages=[asked("hi")])

    row.evaluation_result = EvaluateResult(score=0.5)
    row.input_metadata = {"k": 1}

    assert (row.reward, row.metadata) == (0.5, {"k": 1})


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "a", "messages": []},
        {"score": EvaluateResult(score=1), "evaluation_result": EvaluateResult(score=0)},
        {"metadata": {}, "input_metadata": {}},
    ],
)
def test_two_spellings_of_one_thing_at_once_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="is an alias of"):
        Sample(**fields)


def test_messages_are_the_trajectorys_else_the_prompt() -> None:
    assert Sample(prompt="hi").messages == [asked("hi")]
    assert Sample(prompt=[asked("hi")]).messages == [asked("hi")]
    assert sample(asked("hi"), said("ho")).messages == [asked("hi"), said("ho")]
    assert Sample().messages == []


def test_response_is_the_last_thing_the_assistant_said() -> None:
    assert sample(asked("2+2?"), said("Let me see"), said("4")).response == "4"
    assert Sample(prompt=[asked("2+2?"), said("4")]).response == "4"
    assert Sample(prompt="2+2?").response == ""


def test_response_passes_over_a_turn_that_only_calls_tools() -> None:
    cut_off = sample(asked("Where?"), said("Checking."), said(None, called("lookup")))

    assert cut_off.response == "Checking."


def test_an_empty_answer_is_the_response() -> None:
    assert sample(asked("2+2?"), said("4?"), asked("Sure?"), said("")).response == ""


def test_reward_is_the_valid_score() -> None:
    assert Sample().reward is None
    assert Sample(score=EvaluateResult(score=0.5)).reward == 0.5
    assert Sample(score=EvaluateResult(score=0.0, is_score_valid=False)).reward is None


def test_a_given_reward_is_the_score_and_must_agree_with_it() -> None:
    assert Sample(reward=0.5).score == EvaluateResult(score=0.5)
    assert Sample(reward=0.5, score=EvaluateResult(score=0.5)).reward == 0.5
    with pytest.raises(ValidationError, match=r"reward is derived from the score, 0\.0"):
        Sample(reward=1.0, score=EvaluateResult(score=0.0))


def test_setting_the_reward_cannot_make_a_second_truth() -> None:
    scored = Sample(score=EvaluateResult(score=0.5))

    scored.reward = 0.5

    with pytest.raises(ValueError, match="reward is derived from the score"):
        scored.reward = 1.0


def test_a_response_cannot_be_given() -> None:
    with pytest.raises(ValidationError, match="'response' is read from the messages"):
        Sample(prompt="2+2?", response="4")


def test_a_trajectory_evaluation_has_steps() -> None:
    assert Sample(score=steps(0.0, 1.0)).is_trajectory_evaluation()
    assert Sample(trajectory=Trajectory(evaluation_result=steps(1.0))).is_trajectory_evaluation()
    assert not Sample(score=EvaluateResult(score=1.0, step_outputs=[])).is_trajectory_evaluation()
    assert not Sample().is_trajectory_evaluation()


def test_a_given_id_is_kept() -> None:
    assert Sample(id="a", prompt="hi").id == "a"


def test_the_same_input_has_the_same_id_tomorrow() -> None:
    # Pinned: runs recorded by one version must be resumed by the next.
    assert Sample(input={"q": "2+2?", "a": 4}).id == Sample(input={"a": 4, "q": "2+2?"}).id
    assert Sample(input={"q": "2+2?", "a": 4}).id == "77e080e9e5721f3881b2"
    assert Sample(prompt=[asked("2+2?")], ground_truth="4").id == "1c823cd34c2dce6a46fc"


def test_different_inputs_have_different_ids() -> None:
    assert Sample(prompt="a").id != Sample(prompt="b").id
    assert Sample(prompt="a", ground_truth=1).id != Sample(prompt="a", ground_truth=2).id


@pytest.mark.parametrize(
    "name", ["PENDING", "RUNNING", "COMPLETED", "TRUNCATED", "ABORTED", "FAILED"]
)
def test_a_status_loads_from_its_value_and_from_its_name(name: str) -> None:
    expected = Status[name]

    assert Sample.from_json(f'{{"status":"{name}"}}').status is expected
    assert Sample.from_json(f'{{"status":"{name.lower()}"}}').status is expected


def test_the_statuses_are_these() -> None:
    assert list(Status.__members__) == (
        ["PENDING", "RUNNING", "COMPLETED", "TRUNCATED", "ABORTED", "FAILED"]
    )


def test_an_unknown_status_is_refused() -> None:
    with pytest.raises(ValidationError, match="'pending', 'running'"):
        Sample(status="done")


def full_sample() -> Sample:
    return Sample(
        index=3,
        group_index=1,
        rollout_id="r1",
        input={"question": "Where is 66?", "nested": {"list": [1, 2.5, None, True]}},
        prompt=[asked("Where is 66?")],
        ground_truth=["Hamburg", {"lat": 53.5}],
        trajectory=Trajectory(
            messages=[
                asked("Where is 66?"),
                said(None, called("lookup", order="66")),
                answered("Hamburg"),
                said("Hamburg"),
            ],
            calls=[
                ModelCall(
                    prompt_ids=(1, 2),
                    completion_ids=(3,),
                    logprobs=(-0.25,),
                    sampling={"temperature": 1.0},
                    finish_reason="stop",
                    usage=Usage(input_tokens=2, output_tokens=1),
                    latency_s=0.5,
                    weight_version="step-7",
                )
            ],
            steps=2,
            duration=1.5,
            terminated=True,
            termination_reason="agent",
            evaluation_result=steps(0.0, 1.0),
            observations=["start", {"board": [0, 1]}],
            actions=["lookup"],
        ),
        score=EvaluateResult(metrics=(Metric("correct", 1.0, weight=1.0),)),
        tokens=[1, 2, 3],
        loss_mask=[0.0, 0.0, 1.0],
        rollout_log_probs=[0.0, 0.0, -0.25],
        status=Status.COMPLETED,
        metadata={"dataset": "orders"},
        an_unknown_field={"kept": [1]},
    )


def test_json_round_trip_is_exact() -> None:
    travelled = full_sample()

    assert Sample.from_json(travelled.to_json()) == travelled
    assert Sample.from_json(travelled.to_json()).to_json() == travelled.to_json()
    assert Sample.from_dict(travelled.to_dict()) == travelled
    assert Sample.model_validate_json(travelled.model_dump_json()) == travelled


def test_unknown_fields_survive_at_every_depth() -> None:
    written = (
        '{"id":"a","trajectory":{"messages":[{"role":"user","content":"x","m":1}],"t":2},'
        '"score":{"score":1.0,"s":3},"top":{"level":[4]}}'
    )

    assert Sample.from_json(written).to_json() == written


def test_what_is_filled_in_later_is_written() -> None:
    filled = Sample(id="a")

    filled.metadata["late"] = 1
    filled.tokens.append(7)

    assert filled.to_json() == '{"id":"a","tokens":[7],"metadata":{"late":1}}'


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.text(), st.text(), json_values, json_values)
def test_any_text_and_any_json_value_survives(
    question: str, answer: str, truth: Any, note: Any
) -> None:
    travelled = sample(asked(question), said(answer), ground_truth=truth, metadata={"note": note})

    assert Sample.from_json(travelled.to_json()) == travelled


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_json_cannot_hold_is_refused_when_written(value: float) -> None:
    with pytest.raises(WireError, match="which JSON cannot represent"):
        Sample(id="a", metadata={"x": [value]}).to_json()


@pytest.mark.parametrize("value", ["\ud800", object()])
def test_a_value_that_cannot_be_written_is_named_not_dropped(value: object) -> None:
    with pytest.raises(WireError, match="Sample: the object cannot be written as JSON"):
        Sample(id="a", metadata={"x": value}).to_json()


def test_the_words_nan_and_infinity_in_a_text_are_no_numbers() -> None:
    talk = Sample(id="a", prompt="NaN is not Infinity")

    assert Sample.from_json(talk.to_json()) == talk


def test_conversation_history_is_another_spelling_of_messages() -> None:
    old = Trajectory.from_dict({"conversation_history": [{"role": "user", "content": "hi"}]})

    assert old == Trajectory(messages=[asked("hi")])
    assert old.conversation_history is old.messages
    assert '"messages"' in old.to_json()


def test_a_bad_message_is_named_by_its_place() -> None:
    with pytest.raises(ValidationError, match=r"1\.role\n  Field required"):
        Sample(prompt=[asked("hi"), {"content": "no role"}])


def test_openai_messages_are_read_as_they_are() -> None:
    read = Sample(prompt=[{"role": "user", "content": [{"type": "text", "text": "hi"}]}])

    assert isinstance(read.messages[0], Message)
    assert read.messages[0].text == "hi"


def test_messages_can_be_replaced_before_and_after_a_rollout() -> None:
    row = Sample(prompt=[asked("old")])
    row.messages = [asked("new")]
    assert row.prompt == [asked("new")]

    row.trajectory = Trajectory(messages=[asked("new"), said("answer")])
    row.messages = [{"role": "user", "content": "newer"}]

    assert row.trajectory.messages == [asked("newer")]
    assert row.prompt == [asked("new")]


def test_messages_are_found_by_role() -> None:
    system = Message(role="system", content="Be brief.")
    row = Sample(prompt=[system, asked("1"), said("2"), asked("3"), said("4")])

    assert row.last_assistant_message() == said("4")
    assert row.get_assistant_messages() == [said("2"), said("4")]
    assert (row.get_first_user_message(), row.get_user_messages()[1]) == (asked("1"), asked("3"))
    assert (row.get_system_message(), row.get_conversation_length()) == (system, 5)
    assert Sample().last_assistant_message() is Sample().get_first_user_message() is None
    assert Sample().get_system_message() == Message(role="system", content="")


def test_rewards_of_steps_are_added_up() -> None:
    row = Sample(trajectory=Trajectory(steps=2, evaluation_result=steps(0.25, 0.5)))

    assert (row.get_total_reward(), row.get_steps()) == (0.75, 2)
    assert Sample(score=steps(1.0)).get_total_reward() == 1.0
    assert Sample().get_total_reward() == 0.0


def test_a_total_reward_that_is_unknown_is_not_zero() -> None:
    unknown = StepOutput(step_index=0, base_reward=None)
    result = EvaluateResult(is_score_valid=False, step_outputs=[unknown])

    assert Sample(score=result).get_total_reward() is None
    assert Sample(trajectory=Trajectory(steps=3)).get_total_reward() is None


def test_how_an_episode_ended_is_read_from_its_trajectory() -> None:
    ended = EvaluateResult(
        score=1.0, step_outputs=[StepOutput(step_index=0, base_reward=1.0, terminated=True)]
    )
    row = Sample(trajectory=Trajectory(evaluation_result=ended, termination_reason="environment"))

    assert row.get_terminated()
    assert row.get_termination_reason() == "environment"
    assert not Sample().get_terminated()
    assert Sample().get_termination_reason() == "unknown"
    assert Sample(metadata={"a": 1}).get_input_metadata("a") == 1


def test_how_a_rollout_went_is_read_from_its_calls() -> None:
    used = Usage(input_tokens=5, output_tokens=2)
    calls = [ModelCall(usage=used, finish_reason="tool_calls"), ModelCall(usage=used)]
    messages = [asked("?"), said(None, called("look"))]
    row = Sample(
        rollout_id="a#0", trajectory=Trajectory(messages=messages, calls=calls[:1], duration=1.5)
    )

    told = row.execution_metadata
    assert (told.rollout_id, told.finish_reason, told.tool_call_count) == ("a#0", "tool_calls", 1)
    assert told.rollout_duration_seconds == 1.5
    assert told.usage is not None
    assert (told.usage.prompt_tokens, told.usage.total_tokens) == (5, 7)
    unknown = Sample(trajectory=Trajectory(calls=[*calls, ModelCall()])).execution_metadata
    assert (unknown.usage, unknown.finish_reason, unknown.tool_call_count) == (None, None, None)
    assert Sample().execution_metadata.usage is None


def test_steps_that_eval_protocol_recorded_in_messages_are_counted() -> None:
    row = Sample(
        prompt=[
            {"role": "user", "content": "go"},
            {"role": "tool", "content": "ice", "control_plane_step": {"reward": 0.25}},
            {
                "role": "tool",
                "content": "goal",
                "control_plane_step": {
                    "reward": 0.5,
                    "terminated": True,
                    "termination_reason": "control_plane_signal",
                },
            },
        ]
    )

    assert (row.get_total_reward(), row.get_steps(), row.get_terminated()) == (0.75, 2, True)
    assert row.get_termination_reason() == "control_plane_signal"
    assert Sample.from_json(row.to_json()).get_total_reward() == 0.75
