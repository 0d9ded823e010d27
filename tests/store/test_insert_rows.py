"""What is written of one sample, and what is refused."""

import pytest

from assay.errors import ConfigError, StoreError, WireError
from assay.store.excerpts import to_column_text
from assay.store.insert_rows import (
    RESULT_COLUMNS,
    build_failure_row,
    build_result_row,
    decode_body,
    encode_body,
    to_column_id,
)
from assay.types import (
    EvaluateResult,
    Metric,
    ModelCall,
    Sample,
    Trajectory,
    Usage,
)
from make import asked, said, sample
from store_runs import broken, scored


def columns_of(one: Sample, repeat: int = 0) -> dict[str, object]:
    return dict(zip(RESULT_COLUMNS[1:], build_result_row("key", one, repeat).values, strict=True))


def with_calls(*calls: ModelCall, **fields: object) -> Sample:
    return Sample(prompt="q", trajectory=Trajectory(calls=list(calls), **fields))


def call(cost: float | None = 0.5, latency_s: float | None = 1.0, **extra: object) -> ModelCall:
    usage = Usage(input_tokens=10, output_tokens=2, cost_usd=cost)
    return ModelCall.model_validate({"usage": usage, "latency_s": latency_s, **extra})


def test_metrics_and_the_score_stand_in_columns() -> None:
    result = EvaluateResult(
        score=0.25, metrics={"a": Metric("a", 0.5), "b": Metric("b", is_score_valid=False)}
    )

    columns = columns_of(sample(asked("q"), said("a"), id="s", index=7, score=result), repeat=2)

    assert (columns["score"], columns["valid"], columns["repeat"]) == (0.25, True, 2)
    assert columns["metrics"] == '{"a":0.5,"b":null}'
    assert columns["position"] == 7


def test_a_sample_that_was_not_judged_is_not_valid() -> None:
    assert columns_of(scored(1, None))["valid"] is False
    assert columns_of(Sample(prompt="never scored"))["valid"] is False


def test_what_calls_consumed_is_added_up() -> None:
    columns = columns_of(with_calls(call(), call()))

    assert (columns["input_tokens"], columns["output_tokens"]) == (20, 4)
    assert (columns["cost_usd"], columns["latency_s"]) == (1.0, 2.0)
    assert columns_of(with_calls(call()))["cost_usd"] == 0.5


def test_a_cost_that_is_known_as_a_total_needs_no_call_to_know_its_part() -> None:
    for calls in ([call(cost=None)], [call(cost=None), call(cost=None)]):
        given = with_calls(*calls)
        assert given.trajectory is not None
        given.trajectory.cost_usd = 0.75

        assert columns_of(given)["cost_usd"] == 0.75


def test_one_call_that_does_not_know_makes_the_sum_unknown() -> None:
    columns = columns_of(with_calls(call(), call(cost=None, latency_s=None)))

    assert (columns["input_tokens"], columns["cost_usd"], columns["latency_s"]) == (20, None, None)
    assert columns_of(with_calls(ModelCall()))["input_tokens"] is None
    assert columns_of(with_calls(call(), ModelCall()))["input_tokens"] is None
    assert columns_of(with_calls())["cost_usd"] is None
    assert columns_of(Sample(prompt="q"))["cost_usd"] is None


@pytest.mark.parametrize("claimed", [10**20, 2**63, 10**10 + 1, -1])
def test_a_count_that_cannot_be_one_of_tokens_is_unknown(claimed: int) -> None:
    absurd = ModelCall(usage=Usage(input_tokens=claimed, output_tokens=2), latency_s=1.0)

    for one in (with_calls(absurd), with_calls(absurd, duration=1.0), with_calls(call(), absurd)):
        columns = columns_of(one)
        assert columns["input_tokens"] is None
        assert columns["output_tokens"] in (2, 4)


def test_the_latency_of_a_sample_is_its_duration_where_that_is_known() -> None:
    assert columns_of(with_calls(call(), duration=9.0))["latency_s"] == 9.0


def test_an_answer_from_a_cache_is_marked() -> None:
    assert columns_of(with_calls(call(), call(cached=True)))["cached"] is True
    assert columns_of(with_calls(call(cached="no")))["cached"] is False


def test_a_failed_sample_is_no_result_and_a_result_no_failure() -> None:
    with pytest.raises(ConfigError, match="failed at the endpoint and has no result"):
        build_result_row("key", broken(1), 0)
    with pytest.raises(ConfigError, match="has no failure"):
        build_failure_row("key", scored(1), 0)


@pytest.mark.parametrize("key", ["", "a\0b", "line\nbreak", "half \ud83d", "k" * 401])
def test_a_key_that_a_column_cannot_hold_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match="is not a valid sample key"):
        build_result_row(key, scored(1), 0)


def test_a_negative_repeat_is_refused() -> None:
    with pytest.raises(ConfigError, match="repeat must be at least 0"):
        build_result_row("key", scored(1), -1)


@pytest.mark.parametrize(("index", "group"), [(2**62, None), (-(2**64), None), (1, 2**63)])
def test_a_number_beyond_64_bits_is_refused(index: int, group: int | None) -> None:
    with pytest.raises(WireError, match="does not fit into 64 bits"):
        build_result_row("key", Sample(prompt="q", index=index, group_index=group), 0)


def test_a_sample_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(WireError):
        build_result_row("key", Sample(prompt="q", metadata={"x": float("nan")}), 0)


def test_text_is_made_fit_for_columns() -> None:
    assert to_column_text("a\0b\ud83dc") == "a\ufffdb\ufffdc"
    assert to_column_id("plain") == "plain"
    assert to_column_id("naïve") == "naïve"


def test_a_long_id_is_cut_to_a_name_of_its_own() -> None:
    one, other = to_column_id("x" * 5000 + "1"), to_column_id("x" * 5000 + "2")

    assert one != other
    assert len(one) <= 400
    assert one == to_column_id("x" * 5000 + "1")


def test_ids_that_no_column_can_hold_stay_apart() -> None:
    ids = ["a\0b", "a\ufffdb", "a\ud800b"]

    columns = [to_column_id(each) for each in ids]

    assert len(set(columns)) == len(ids)
    assert columns[1] == "a\ufffdb"
    assert all(column == to_column_text(column) for column in columns)


def test_large_bodies_are_compressed_and_come_back() -> None:
    small, large = b"{}", b'{"text": "%s"}' % (b"word " * 10_000)

    assert encode_body(small) == ("plain", small)
    codec, blob = encode_body(large)
    assert codec == "zlib"
    assert len(blob) < len(large) / 10
    assert decode_body(codec, blob, where="here") == large


def test_a_damaged_body_or_an_unknown_codec_is_told() -> None:
    with pytest.raises(StoreError, match="here: a stored sample is damaged"):
        decode_body("zlib", b"not compressed", where="here")
    with pytest.raises(StoreError, match="has the codec 'zstd'"):
        decode_body("zstd", b"", where="here")
