"""A record: one test in plain values and in one sentence."""

import json
from dataclasses import asdict, replace

import pytest

from assay.pytest_plugin import evaluation_test
from assay.pytest_plugin.decorator import EvalOptions, eval_options_of
from assay.pytest_plugin.evaluation_record import Record, fill_config, fill_numbers, mark_failed
from assay.stats import summarise

RECORD = Record(test="t", file="f.py", line=1)
FULL = replace(
    RECORD, score=0.9, interval=(0.735, 0.979), threshold=0.7, samples=30, results=30, judged=30
)


def test_the_headline_has_score_interval_threshold_and_counts() -> None:
    assert FULL.format_headline() == (
        "score 0.900 [0.735, 0.979], threshold 0.700, 30 of 30 results judged"
    )


def test_what_has_no_score_is_in_the_headline() -> None:
    assert (
        replace(FULL, judged=27)
        .format_headline()
        .endswith("27 of 30 results judged; unscored 3 of 30 (10.0 %)")
    )


@pytest.mark.parametrize(
    ("threshold", "too_few"), [(0.7, False), (0.735, False), (0.8, True), (0.979, True), (1, False)]
)
def test_a_set_too_small_to_tell_is_said_to_be(threshold: float, too_few: bool) -> None:
    record = replace(FULL, threshold=threshold)

    assert record.too_few is too_few
    assert ("too few samples to place the true mean" in record.format_headline()) is too_few


def test_without_an_interval_nothing_can_be_told() -> None:
    assert replace(FULL, interval=(None, None)).too_few
    assert not replace(FULL, interval=(None, None), threshold=None).too_few


def test_a_mean_just_below_its_threshold_does_not_look_equal() -> None:
    words = replace(FULL, score=0.69999, threshold=0.7).format_headline()

    assert "score 0.69999 " in words


def test_no_score_is_not_a_score_of_0() -> None:
    assert RECORD.format_headline() == "no score: no sample was evaluated"
    assert replace(RECORD, results=2).format_headline() == "no score: none of 2 results was judged"
    assert "assay_score" not in dict(RECORD.properties())
    assert dict(FULL.properties())["assay_score"] == 0.9


def test_rows_that_were_left_out_are_in_the_headline() -> None:
    assert (
        replace(FULL, skipped="1 of 31 rows skipped")
        .format_headline()
        .endswith("; 1 of 31 rows skipped")
    )


def test_a_record_survives_its_file() -> None:
    whole = replace(FULL, tags=("a",), failed={"scorer": 1}, metrics={"m": {"mean": 0.5}})

    assert Record.from_plain(json.loads(json.dumps(asdict(whole)))) == whole


def test_a_reason_is_one_line_without_control_characters() -> None:
    assert mark_failed(FULL, "a\nb\x1b[31m").reason == "a b\ufffd[31m"


def test_an_empty_run_has_no_numbers() -> None:
    record = fill_numbers(RECORD, summarise([]), used_model=True)

    assert (record.score, record.interval, record.cost_usd) == (None, (None, None), None)


def asked_with(url: str) -> EvalOptions:
    @evaluation_test([{}], env_url=url)
    def judge(messages: object) -> float:
        return 1.0

    asked = eval_options_of(judge)
    assert asked is not None
    return asked


def test_the_configuration_tells_the_server_but_no_secret() -> None:
    plain = fill_config(RECORD, asked_with("http://host:8000/mcp"), {"seed": 1})
    secret = fill_config(RECORD, asked_with("http://u:p@host:8000/mcp?token=t"), {"seed": 1})
    other = fill_config(RECORD, asked_with("http://other/mcp"), {"seed": 1})

    assert secret.config["env_url"] == "http://host:8000/mcp"
    assert plain.config_fingerprint == secret.config_fingerprint != other.config_fingerprint
