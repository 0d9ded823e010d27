"""The info beside the score: what goes in, what gives way to the limit and in which order."""

import json
from typing import Any

import pytest
from jsonschema import Draft7Validator

from assay.types import EvaluateResult, Metric, StepOutput
from assay.types.bounded_json import count_utf16_units
from assay.types.result_info import info_schema, read_info, write_info

STEP = StepOutput(step_index=0, base_reward=0.5, terminated=True)


def written(result: EvaluateResult) -> dict[str, Any]:
    text = write_info(result)
    info: dict[str, Any] = json.loads(text)
    assert count_utf16_units(text) <= 512
    Draft7Validator(info_schema()).validate(info)
    return info


def test_a_small_result_is_written_whole() -> None:
    info = written(
        EvaluateResult(
            score=1.0,
            reason="fine",
            error="slow",
            metrics=[Metric("exact", 1.0, weight=1.0, reason="same", judge="me")],
            step_outputs=[STEP],
            final_control_plane_info={"goal": True},
            trajectory_info={"steps": 1},
            extra_field=[1],
        )
    )

    assert info == {
        "is_score_valid": True,
        "reason": "fine",
        "error": "slow",
        "metrics": {"exact": {"score": 1.0, "weight": 1.0, "reason": "same", "judge": "me"}},
        "step_outputs": [{"step_index": 0, "base_reward": 0.5, "terminated": True}],
        "final_control_plane_info": {"goal": True},
        "trajectory_info": {"steps": 1},
        "extra_field": [1],
    }


def test_the_text_has_no_spaces_and_keeps_letters_as_they_are() -> None:
    assert write_info(EvaluateResult(score=1, reason="café")) == (
        '{"is_score_valid":true,"reason":"café"}'
    )


def test_metrics_outside_the_published_range_are_measures() -> None:
    inside, outside, unmeasured = Metric("in", 1.0), Metric("ms", 250.0), Metric("none")

    info = written(EvaluateResult(score=0.5, metrics=[inside, outside, unmeasured]))

    assert info["metrics"] == {"in": {"score": 1.0, "reason": ""}}
    assert info["measures"] == {
        "ms": {"score": 250.0, "reason": ""},
        "none": {"score": None, "reason": "", "is_score_valid": False},
    }


@pytest.mark.parametrize(
    ("score", "place"),
    [(0.0, "metrics"), (1.0, "metrics"), (-1e-9, "measures"), (1.0000000000000002, "measures")],
)
def test_the_bounds_of_the_published_range_are_inside_it(score: float, place: str) -> None:
    assert place in written(EvaluateResult(score=0.5, metrics=[Metric("edge", score)]))


LONG = {"note": "x" * 170}
PIECES: list[tuple[str, dict[str, Any]]] = [
    ("step_outputs", {"step_outputs": [STEP] * 4}),
    ("metrics.reason", {"metrics": [Metric("exact", 1.0, reason="x" * 190)]}),
    ("extra", {"unknown": LONG}),
    ("trajectory_info", {"trajectory_info": LONG}),
    ("final_control_plane_info", {"final_control_plane_info": LONG}),
]


@pytest.mark.parametrize("first", range(len(PIECES) - 2))
def test_of_three_pieces_where_two_fit_the_first_in_order_gives_way(first: int) -> None:
    pieces = PIECES[first : first + 3]
    fields = {name: value for _, piece in pieces for name, value in piece.items()}

    info = written(EvaluateResult(score=1.0, **fields))

    assert info["dropped"] == [pieces[0][0]]


def test_pieces_before_a_too_long_one_give_way_too() -> None:
    info = written(
        EvaluateResult(score=1, step_outputs=[STEP], final_control_plane_info={"log": "x" * 600})
    )

    assert info == {"is_score_valid": True, "dropped": ["step_outputs", "final_control_plane_info"]}


def test_numbers_of_metrics_outlast_their_reasons_and_extras() -> None:
    info = written(
        EvaluateResult(score=1, metrics=[Metric("exact", 1.0, reason="x" * 300, log="x" * 300)])
    )

    assert info["metrics"] == {"exact": {"score": 1.0, "reason": ""}}
    assert info["dropped"] == ["metrics.reason", "metrics.extra"]


def test_too_many_metrics_are_named_once() -> None:
    many = [Metric(f"metric {n}", 0.5, reason="so") for n in range(200)]

    assert written(EvaluateResult(metrics=many)) == {"is_score_valid": True, "dropped": ["metrics"]}


def test_a_long_reason_is_shortened_last_and_fills_the_room() -> None:
    text = write_info(EvaluateResult(score=1, reason="r" * 1_000_000, metrics=[Metric("a", 1.0)]))

    info = json.loads(text)
    assert len(text) == 512
    assert info["reason"].endswith("rr…")
    assert info["dropped"] == ["metrics", "reason"]


def test_a_long_reason_gives_way_before_an_error() -> None:
    info = written(EvaluateResult(score=1, reason="r" * 1000, error="e" * 300))

    assert info["error"] == "e" * 300
    assert info["reason"].endswith("r…")
    assert info["dropped"] == ["reason"]


def test_a_long_error_leaves_the_beginning_of_a_long_reason() -> None:
    info = written(EvaluateResult(score=1, reason="r" * 1000, error="e" * 1000))

    assert info["reason"] == "r" * 97 + "…"
    assert info["error"].endswith("e…")
    assert info["dropped"] == ["reason", "error"]


@pytest.mark.parametrize("error", ["e" * 1000, "e" * 480])
def test_a_long_error_leaves_a_short_reason_alone(error: str) -> None:
    info = written(EvaluateResult(score=1, reason="quick", error=error))

    assert info["reason"] == "quick"
    assert info["dropped"] == ["error"]


def test_a_long_error_alone_is_shortened() -> None:
    info = written(EvaluateResult(score=1, error="\x00" * 1000))

    assert set(info["error"]) == {"\x00", "…"}
    assert info["dropped"] == ["error"]


def test_characters_beyond_the_basic_plane_count_twice() -> None:
    text = write_info(EvaluateResult(score=1, reason="🎉" * 400))

    assert len(text.encode("utf-16-le")) // 2 in (511, 512)


def test_what_json_cannot_say_is_named_as_changed() -> None:
    info = written(
        EvaluateResult(score=1, trajectory_info={"d": float("nan")}, odd={"at": b"\xff"})
    )

    assert info["trajectory_info"] == {"d": "NaN"}
    assert info["changed"] == ["extra", "trajectory_info"]


def test_what_was_changed_and_then_dropped_is_only_dropped() -> None:
    info = written(EvaluateResult(score=1, odd={1}, trajectory_info={"log": "x" * 600}))

    assert info == {"is_score_valid": True, "dropped": ["extra", "trajectory_info"]}


def test_a_copy_given_no_number_is_written_as_not_judged() -> None:
    metric = Metric("a", 1.0).model_copy(update={"score": float("inf"), "weight": float("nan")})
    step = STEP.model_copy(update={"base_reward": float("nan")})
    result = EvaluateResult(score=1.0).model_copy(
        update={"score": float("nan"), "metrics": {"a": metric}, "step_outputs": (step,)}
    )

    info = written(result)

    assert info["is_score_valid"] is False
    assert info["measures"] == {"a": {"score": None, "reason": "", "is_score_valid": False}}
    assert info["dropped"] == ["step_outputs"]
    assert info["changed"] == ["score", "metrics"]


@pytest.mark.parametrize("name", ["measures", "dropped", "changed"])
def test_an_unknown_field_with_a_name_of_the_formats_own_is_named_as_dropped(name: str) -> None:
    info = written(EvaluateResult.from_dict({"score": 1, name: ["mine"]}))

    assert info == {"is_score_valid": True, "dropped": ["extra"]}


def test_what_was_lost_earlier_is_still_named_when_written_again() -> None:
    lost = EvaluateResult.from_dict({"score": 1, "dropped": ["metrics"], "changed": ["score"]})

    info = written(lost)

    assert info == {"is_score_valid": True, "dropped": ["metrics"], "changed": ["score"]}


def test_the_longest_lists_of_losses_leave_room_for_the_texts() -> None:
    properties = info_schema()["properties"]
    lists = {name: properties[name]["items"]["enum"] for name in ("dropped", "changed")}
    result = EvaluateResult.from_dict(
        {"score": 1, "reason": "r" * 900, "error": "e" * 900, "measures": 0, **lists}
    )

    info = written(result)

    assert len(info["reason"]) >= 98
    assert len(info["error"]) >= 30


def test_steps_that_cannot_fit_are_not_looked_at() -> None:
    class Untouchable(tuple[StepOutput, ...]):
        def __iter__(self) -> Any:
            raise AssertionError("looked at the steps")

    steps = Untouchable([STEP] * 10_000)
    result = EvaluateResult(score=1).model_copy(update={"step_outputs": steps})

    assert written(result)["dropped"] == ["step_outputs"]


def test_no_info_says_nothing_and_is_no_fault() -> None:
    reading = read_info(None)

    assert (reading.is_score_valid, reading.faults, reading.fields) == (True, [], {})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "is unreadable"),
        ("{", "is unreadable"),
        ("[]", "not a JSON object"),
        ("null", "not a JSON object"),
        ('{"a":NaN}', "contains NaN"),
        ('{"a":1e999}', "contains 1e999"),
        ('{"reason":"a","reason":"b"}', "an object contains the same key twice"),
        ("[" * 100_000, "is unreadable"),
        ('{"a":' + "1" * 5000 + "}", "is unreadable"),
        ('"' + "x" * (1 << 20) + '"', "longer than 1048576"),
        ('{"is_score_valid":"yes"}', "`is_score_valid` of 'yes'"),
        ('{"error":5}', "`error` that is not a string"),
        ('{"metrics":[]}', "`metrics` that are not an object"),
        ('{"measures":1}', "`measures` that are not an object"),
        ('{"metrics":{"a":{}},"measures":{"a":{}}}', "'a' in both metrics and measures"),
    ],
)
def test_an_info_that_is_not_as_it_should_be_has_a_fault(text: str, fault: str) -> None:
    [found] = read_info(text).faults

    assert fault in found


def test_a_value_that_is_no_string_is_a_fault() -> None:
    wrong: Any = 5

    assert read_info(wrong).faults == ["is unreadable (not a string)"]


def test_measures_come_back_as_metrics_and_empty_reasons_as_none() -> None:
    reading = read_info('{"metrics":{"a":{"score":1,"reason":""}},"measures":{"b":{"score":9}}}')

    assert reading.faults == []
    assert reading.fields == {"metrics": {"a": {"score": 1}, "b": {"score": 9}}}
