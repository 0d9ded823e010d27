"""Results as OpenAI metadata: within the limits, valid against the schema, read back or refused."""

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from pydantic import ValidationError

from any_results import any_text, containers, json_leaves, json_values, results
from assay.errors import WireError
from assay.types import EvaluateResult, Metric, StepOutput
from assay.types.overflow_pairs import pack_overflow
from assay.types.result_info import info_schema

SCORE, INFO, MORE = "eval_protocol_score", "eval_protocol_info", "eval_protocol_more_"
SEEDS = Path(__file__).parents[4] / "shared" / "seeds"
OURS = Draft7Validator(info_schema())


def check_limits(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Assert all that holds of any metadata; give the parsed info."""
    assert len(metadata) <= 16
    for key, value in metadata.items():
        assert isinstance(value, str)
        assert len(key) <= 64
        assert len(value.encode("utf-16-le")) <= 2 * 512
    info: dict[str, Any] = json.loads(metadata[INFO], parse_constant=pytest.fail)
    OURS.validate(info)
    return info


slow = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@slow
@given(results())
def test_any_result_is_written_within_the_limits_and_keeps_score_and_validity(
    result: EvaluateResult,
) -> None:
    metadata = result.to_openai_metadata()

    again = EvaluateResult.from_openai_metadata(metadata)
    check_limits(metadata)
    assert set(metadata) <= {SCORE, INFO}
    assert repr(again.score) == repr(result.score)
    assert again.is_score_valid == result.is_score_valid
    assert again.reward == result.reward


@slow
@given(results())
def test_what_was_not_dropped_or_changed_is_read_back_equal(result: EvaluateResult) -> None:
    metadata = result.to_openai_metadata()

    again = EvaluateResult.from_openai_metadata(metadata)
    info = json.loads(metadata[INFO])
    lost = {*info.get("dropped", ()), *info.get("changed", ())}
    for name in ("reason", "error", "final_control_plane_info", "trajectory_info"):
        assert name in lost or getattr(again, name) == getattr(result, name)
    assert "step_outputs" in lost or again.step_outputs == result.step_outputs
    assert "metrics" in lost or set(again.metrics) == set(result.metrics)


@slow
@given(results(json_values) | results())
def test_lossless_restores_exactly_or_refuses(result: EvaluateResult) -> None:
    try:
        metadata = result.to_openai_metadata(lossless=True)
    except WireError as error:
        refusal = error
        metadata = None

    if metadata is None:
        assert refusal.where == "EvaluateResult"
        assert refusal.hint
        return
    check_limits(metadata)
    restored = EvaluateResult.from_openai_metadata(metadata)
    assert restored == result
    assert restored.to_json() == result.to_json()


@slow
@given(results())
def test_the_published_schema_accepts_every_info(result: EvaluateResult) -> None:
    published = _published_schema()
    if published is None:
        pytest.skip("the published schema is not here")

    published.validate(json.loads(result.to_openai_metadata()[INFO]))


def _published_schema() -> Draft7Validator | None:
    for path in SEEDS.glob("000*.txt"):
        block = re.search(r"```json\n(.*?)```", path.read_text(encoding="utf-8"), re.S)
        assert block is not None
        return Draft7Validator(json.loads(block[1]))
    return None


hostile_info = st.dictionaries(
    st.sampled_from(
        [*info_schema()["properties"], "score", "reward", "model_fields", "__dict__", "to_json"]
    )
    | any_text,
    containers(json_leaves | any_text, st.sampled_from(["score", "reason", "name"]) | any_text),
    max_size=5,
)
hostile_metadata = st.dictionaries(
    st.sampled_from([SCORE, INFO, f"{MORE}1", f"{MORE}2", f"{MORE}01", f"{MORE}x"]) | any_text,
    any_text
    | st.sampled_from(
        ["1", "0.5", "nan", "{}", "z1.0123456789abcdef.01.", "z1." + "0" * 16 + ".99."]
    )
    | hostile_info.map(json.dumps),
    max_size=6,
)


@given(hostile_metadata)
def test_reading_any_strings_never_raises(metadata: dict[str, str]) -> None:
    result = EvaluateResult.from_openai_metadata(metadata)

    assert result.is_score_valid == (result.reward is not None)
    assert EvaluateResult.from_json(result.to_json()) == result


@given(hostile_info)
def test_reading_any_info_never_raises_and_explains_an_invalid_result(info: dict[str, Any]) -> None:
    result = EvaluateResult.from_openai_metadata({SCORE: "0.5", INFO: json.dumps(info)})

    assert result.score == 0.5
    assert result.is_score_valid or result.error or info["is_score_valid"] is False


def test_the_shipped_schema_is_a_valid_schema_that_says_no() -> None:
    Draft7Validator.check_schema(info_schema())

    assert not OURS.is_valid({"is_score_valid": "yes"})
    assert not OURS.is_valid({"metrics": {"a": {"score": 2, "reason": ""}}})
    assert not OURS.is_valid({"step_outputs": [{"step_index": 0}]})
    assert not OURS.is_valid({"dropped": ["my homework"]})


def test_a_result_that_fits_is_read_back_equal() -> None:
    result = EvaluateResult(
        score=-3.25,
        reason='says "no" \\ 🎉',
        metrics=[
            Metric("exact", 0.5, weight=2.0),
            Metric("cost", -4.0, reason="dear"),
            Metric("x"),
        ],
        step_outputs=[StepOutput(step_index="a", base_reward=1.0, metrics={"n": 1})],
        final_control_plane_info={"goal": None},
        later_field={"kept": True},
    )

    assert EvaluateResult.from_openai_metadata(result.to_openai_metadata()) == result


def test_a_result_without_a_score_has_no_score_key_and_is_read_back_equal() -> None:
    unjudged = EvaluateResult(reason="the judge was away")

    metadata = unjudged.to_openai_metadata()

    assert set(metadata) == {INFO}
    assert EvaluateResult.from_openai_metadata(metadata) == unjudged


def test_the_score_is_written_in_full() -> None:
    assert EvaluateResult(score=0.1 + 0.2).to_openai_metadata()[SCORE] == "0.30000000000000004"


@pytest.mark.parametrize(
    ("text", "score"), [("1", 1.0), (" 0.5 ", 0.5), ("-.5", -0.5), ("1e-7", 1e-7), ("+2.", 2.0)]
)
def test_scores_of_other_writers_are_read(text: str, score: float) -> None:
    result = EvaluateResult.from_openai_metadata({SCORE: text})

    assert result == EvaluateResult(score=score)


@pytest.mark.parametrize(
    "text", ["", "nan", "NaN", "inf", "-Infinity", "1e999", "1_0", "٣", "0x1", "high", "1" * 513]
)
def test_an_unreadable_score_is_an_invalid_result_and_never_zero(text: str) -> None:
    result = EvaluateResult.from_openai_metadata({SCORE: text, INFO: '{"reason":"fine"}'})

    assert (result.score, result.is_score_valid, result.reward) == (None, False, None)
    assert "eval_protocol_score is not a finite number" in str(result.error)
    assert result.reason == "fine"


def test_a_missing_score_is_an_invalid_result() -> None:
    result = EvaluateResult.from_openai_metadata({})

    assert (result.score, result.is_score_valid) == (None, False)
    assert result.error == "eval_protocol_score is missing"


def test_a_missing_score_is_no_fault_of_a_result_that_says_it_was_not_judged() -> None:
    assert EvaluateResult.from_openai_metadata({INFO: '{"is_score_valid":false}'}).error is None


def test_without_a_readable_info_the_score_is_kept_and_its_validity_unknown() -> None:
    result = EvaluateResult.from_openai_metadata({SCORE: "0.5", INFO: '{"reason":"cut o'})

    assert (result.score, result.is_score_valid, result.reward) == (0.5, False, None)
    assert "eval_protocol_info is unreadable" in str(result.error)


@pytest.mark.parametrize(
    ("info", "complaint"),
    [
        ({"reason": 5}, "a wrong `reason`"),
        ({"metrics": {"a": {"score": "0.5"}}}, "a wrong `metrics`"),
        ({"metrics": {"a": {"score": True}}}, "a wrong `metrics`"),
        ({"metrics": {"a": {"score": 1, "name": "b"}}}, "a wrong `metrics`"),
        ({"step_outputs": [{}]}, "a wrong `step_outputs`"),
        ({"final_control_plane_info": []}, "a wrong `final_control_plane_info`"),
        ({"is_score_valid": 1}, "an `is_score_valid` of 1"),
        ({"score": 0.9}, "another score: 0.9"),
    ],
)
def test_a_wrong_type_in_the_info_makes_the_result_invalid_and_keeps_the_rest(
    info: dict[str, Any], complaint: str
) -> None:
    text = json.dumps({"error": "slow", "kept": [1], **info})

    result = EvaluateResult.from_openai_metadata({SCORE: "0.5", INFO: text})

    assert (result.score, result.is_score_valid) == (0.5, False)
    assert str(result.error).startswith("slow; eval_protocol_info contains")
    assert complaint in str(result.error)
    assert result.model_extra == {"kept": [1]}


def test_an_info_nested_too_deeply_for_a_result_is_left_out_and_reported() -> None:
    deep = '{"reason":"r","kept":' + "[" * 400 + "]" * 400 + "}"

    result = EvaluateResult.from_openai_metadata({SCORE: "0.5", INFO: deep})

    assert (result.score, result.is_score_valid) == (0.5, False)
    assert "an unreadable `kept`" in str(result.error)


def test_a_kind_of_result_that_needs_what_the_metadata_lacks_is_refused() -> None:
    class Signed(EvaluateResult):
        signature: str

    with pytest.raises(ValidationError, match="signature"):
        Signed.from_openai_metadata({SCORE: "0.5"})


def test_half_a_character_in_an_info_is_repaired() -> None:
    result = EvaluateResult.from_openai_metadata({SCORE: "1", INFO: r'{"reason":"cut \ud83d"}'})

    assert result == EvaluateResult(score=1.0, reason="cut \ufffd")


def test_what_was_lost_can_be_read_and_is_still_named_after_a_second_journey() -> None:
    first = EvaluateResult(score=1.0, reason="r" * 9_000)

    second = EvaluateResult.from_openai_metadata(first.to_openai_metadata())
    third = EvaluateResult.from_openai_metadata(second.to_openai_metadata())

    assert (second.model_extra or {})["dropped"] == ["reason"]
    assert third == second


BIG = EvaluateResult(
    score=0.5,
    reason="".join(hashlib.sha256(bytes([n])).hexdigest() for n in range(40)),
    step_outputs=[StepOutput(step_index=n, base_reward=n / 7) for n in range(60)],
    unknown={"kept": ["é", None, 1.5]},
)


def test_lossless_keeps_the_two_readable_pairs_and_numbers_the_others() -> None:
    metadata = BIG.to_openai_metadata(lossless=True)

    more = [f"{MORE}{n}" for n in range(1, len(metadata) - 1)]
    assert list(metadata) == [SCORE, INFO, *more]
    assert len(more) > 2
    assert {key: metadata[key] for key in (SCORE, INFO)} == BIG.to_openai_metadata()
    assert EvaluateResult.from_openai_metadata(metadata) == BIG


def test_ten_thousand_like_steps_are_carried_whole() -> None:
    steps = [StepOutput(step_index=0, base_reward=0.0)] * 10_000
    result = EvaluateResult(score=1.0, step_outputs=steps)

    metadata = result.to_openai_metadata(lossless=True)

    check_limits(metadata)
    assert EvaluateResult.from_openai_metadata(metadata) == result


def test_lossless_refuses_what_sixteen_pairs_cannot_hold() -> None:
    noise = "".join(hashlib.sha256(str(n).encode()).hexdigest() for n in range(300))

    with pytest.raises(
        WireError, match=r"EvaluateResult: the result needs \d+ pairs of metadata; 16 of 16"
    ):
        EvaluateResult(score=1.0, reason=noise).to_openai_metadata(lossless=True)


def test_lossless_refuses_what_would_unpack_to_too_much() -> None:
    with pytest.raises(WireError, match=r"bytes of JSON; metadata takes 4194304 at most"):
        EvaluateResult(score=1.0, reason="r" * (5 << 20)).to_openai_metadata(lossless=True)


@pytest.mark.parametrize("value", [(1, 2), datetime(2026, 1, 1, tzinfo=UTC), {1: 2}])
def test_lossless_refuses_what_would_come_back_as_something_else(value: object) -> None:
    result = EvaluateResult(score=1.0, trajectory_info={"v": value})

    with pytest.raises(
        WireError, match=r"change when they are read back(?s:.*)hint: use plain JSON"
    ):
        result.to_openai_metadata(lossless=True)


@pytest.mark.parametrize("value", [float("nan"), "\ud800", object()])
def test_lossless_refuses_what_json_cannot_hold(value: object) -> None:
    result = EvaluateResult(score=1.0, trajectory_info={"v": value})

    with pytest.raises(WireError):
        result.to_openai_metadata(lossless=True)


def test_lossless_refuses_an_integer_that_no_reader_takes() -> None:
    result = EvaluateResult(score=1.0, trajectory_info={"v": 10**5000})

    with pytest.raises(WireError, match="change when they are read back"):
        result.to_openai_metadata(lossless=True)


WHOLE = BIG.to_openai_metadata(lossless=True)


def test_damaged_overflow_falls_back_to_the_info_and_says_so() -> None:
    damaged = {key: value for key, value in WHOLE.items() if key != f"{MORE}2"}

    result = EvaluateResult.from_openai_metadata(damaged)

    assert (result.score, result.is_score_valid) == (0.5, True)
    assert str(result.reason).endswith("…")
    assert result.error == (
        "eval_protocol_more_1 and following are unreadable "
        "(string 2 is missing or not a short string)"
    )


def test_one_overflow_pair_too_many_is_noticed_and_a_foreign_key_is_not_one() -> None:
    too_many = EvaluateResult.from_openai_metadata({**WHOLE, f"{MORE}01": "?"})
    foreign = EvaluateResult.from_openai_metadata({**WHOLE, f"{MORE}x": "?"})

    assert "strings are announced" in str(too_many.error)
    assert foreign == BIG


@pytest.mark.parametrize(
    "newer", [{SCORE: "0.9"}, {INFO: '{"reason":"edited"}'}, {SCORE: "0.9", INFO: "{}"}]
)
def test_overflow_left_behind_by_an_older_result_is_not_believed(newer: dict[str, str]) -> None:
    result = EvaluateResult.from_openai_metadata({**WHOLE, **newer})

    assert repr(result.score) == newer.get(SCORE, "0.5")
    assert "the checksum does not match" in str(result.error)


def test_overflow_that_holds_something_else_falls_back_to_the_info() -> None:
    [forged] = pack_overflow('{"score":"high"}', covering='["0.5", "{}"]')

    result = EvaluateResult.from_openai_metadata({SCORE: "0.5", INFO: "{}", f"{MORE}1": forged})

    assert result.score == 0.5
    assert "(not a result)" in str(result.error)
