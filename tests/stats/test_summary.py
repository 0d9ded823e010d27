"""A run in numbers: what counts, what is left out and counted, and what is unknown."""

import math
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace

import pytest

from assay.errors import ConfigError
from assay.stats import RunSummary, mean_interval, summarise
from assay.stats.summary import MAX_METRICS
from made_results import Result, repeated, run


def test_a_plain_run() -> None:
    summary = summarise(run(1.0, 0.0, 1.0, 1.0))

    assert (summary.samples, summary.judged_samples, summary.results) == (4, 4, 4)
    assert summary.score.mean == 0.75
    assert summary.score.interval == mean_interval([1.0, 0.0, 1.0, 1.0])
    assert summary.score.distribution is not None
    assert summary.score.distribution.bins == (1, 0, 0, 0, 0, 0, 0, 0, 0, 3)
    assert (summary.repeats, summary.pass_at_k, summary.pass_hat_k) == (1, (), ())


def test_an_empty_run_knows_nothing() -> None:
    summary = summarise([])

    assert (summary.samples, summary.score.mean, summary.not_judged_share) == (0, None, None)
    assert summary.score.distribution is None
    assert (summary.cost_usd.value, summary.latency.p50) == (None, None)
    assert summary.lines()[0] == "score         none: no sample was judged"


def test_what_was_not_judged_is_left_out_and_counted() -> None:
    results = [
        *run(1.0, 1.0),
        Result("endpoint", None, valid=False, boundary="endpoint"),
        Result("scorer", 0.0, valid=False, boundary="scorer"),
        Result("unsure", 0.0, valid=False),
        Result("blank", None),
        Result("survived", 1.0, boundary="environment"),
    ]

    summary = summarise(results)

    assert summary.score.mean == 1.0
    assert (summary.judged_samples, summary.samples) == (3, 7)
    assert summary.failed == {"endpoint": 1, "environment": 1, "scorer": 1}
    assert (summary.failed_but_judged, summary.invalid) == (1, 2)
    assert summary.not_judged_share == 4 / 7
    assert summary.score.left_out == 4


def test_only_failures_give_no_mean() -> None:
    summary = summarise(run(None, None))

    assert (summary.samples, summary.judged_samples, summary.score.mean) == (2, 0, None)
    assert summary.score.interval.low is None


def test_repeats_are_averaged_first() -> None:
    summary = summarise(repeated({"x": [1.0, 0.0, 0.0, None], "y": [1.0], "z": [None, None]}))

    assert summary.score.mean == pytest.approx((1 / 3 + 1) / 2)
    assert summary.score.interval.n == 2
    assert (summary.samples, summary.results, summary.judged_results) == (3, 7, 4)
    assert (summary.judged_samples, summary.partly_judged_samples) == (2, 1)


def test_repeats_give_pass_rates() -> None:
    summary = summarise(repeated({"x": [1.0, 0.0], "y": [1.0, 1.0], "z": [0.5, None]}))

    at_1, at_2 = summary.pass_at_k
    all_1, all_2 = summary.pass_hat_k
    assert (at_1.k, at_1.value, at_1.left_out) == (1, 0.5, 0)
    assert (at_2.k, at_2.value, at_2.left_out) == (2, 1.0, 1)
    assert (all_1.value, all_2.value) == (0.5, 0.5)
    assert summary.repeats == 2
    lenient = summarise(repeated({"z": [0.5, None]}), success=0.5)
    assert lenient.pass_at_k[0].value == 1.0


def test_metrics_have_their_own_statistics() -> None:
    measured: list[dict[str, float | None]] = [
        {"a": 1.0, "words": 200.0},
        {"a": 0.0, "words": None},
        {"a": 0.0},
        {},
    ]
    results = [
        replace(result, metrics=metrics)
        for result, metrics in zip(run(1.0, 1.0, None, 1.0), measured, strict=True)
    ]

    summary = summarise(results)

    assert list(summary.metrics) == ["a", "words"]
    assert (summary.metrics["a"].mean, summary.metrics["a"].left_out) == (0.5, 2)
    words = summary.metrics["words"]
    assert (words.mean, words.left_out) == (200.0, 3)
    assert words.interval.low is None
    assert words.distribution is not None
    assert words.distribution.bins is None


def test_too_many_metric_names_are_cut_and_counted() -> None:
    results = [Result(f"s{n}", 1.0, metrics={f"m{n}": 1.0, "m0": 1.0}) for n in range(250)]

    summary = summarise(results)

    assert len(summary.metrics) == MAX_METRICS
    assert summary.metrics_left_out == 250 - MAX_METRICS
    assert summary.metrics["m0"].interval.n == 250
    assert "  and 50 values of further metrics" in summary.lines()


def test_cost_and_tokens_are_unknown_when_one_is() -> None:
    known = summarise([Result("x", 1.0, cost_usd=0.25, input_tokens=10, output_tokens=5)] * 1)
    partly = summarise(
        [
            Result("x", 1.0, cost_usd=0.25, input_tokens=10, output_tokens=5),
            Result("y", 1.0, cost_usd=None, input_tokens=None, output_tokens=5),
        ]
    )

    assert (known.cost_usd.value, known.input_tokens.value) == (0.25, 10)
    assert (partly.cost_usd.value, partly.cost_usd.at_least, partly.cost_usd.unknown) == (
        None,
        0.25,
        1,
    )
    assert (partly.input_tokens.value, partly.output_tokens.value) == (None, 10)


def test_latency_leaves_out_what_came_from_a_cache() -> None:
    results = [
        *(Result(f"s{n}", 1.0, latency_s=float(n)) for n in range(1, 101)),
        Result("cached", 1.0, latency_s=0.0, cached=True),
        Result("unknown", 1.0, latency_s=None),
    ]

    latency = summarise(results).latency

    assert (latency.measured, latency.cached, latency.unknown) == (100, 1, 1)
    assert (latency.p50, latency.p90, latency.p95, latency.p99) == (50, 90, 95, 99)
    assert latency.exact


def test_bounds_are_those_of_the_score() -> None:
    summary = summarise(run(1, 5, 3), bounds=(1, 5))

    assert summary.score.interval.method == "beta"
    assert summary.score.mean == 3.0


@pytest.mark.parametrize(
    "broken",
    [
        Result("x", math.nan),
        Result("x", 1.0, metrics={"m": math.nan}),
        Result("x", 1.0, cost_usd=math.nan),
        Result("x", 1.0, latency_s=math.nan),
    ],
)
def test_numbers_that_are_none_are_refused(broken: Result) -> None:
    with pytest.raises(ConfigError, match="nan"):
        summarise([broken])


def test_a_wrong_request_is_refused_before_anything_is_read() -> None:
    read: list[Result] = []

    def unread() -> Iterator[Result]:
        for result in run(1.0):
            read.append(result)
            yield result

    with pytest.raises(ConfigError, match="confidence"):
        summarise(unread(), confidence=95)
    with pytest.raises(ConfigError, match="bounds"):
        summarise(unread(), bounds=(1, 0))
    with pytest.raises(ConfigError, match="threshold"):
        summarise(unread(), success=math.nan)
    assert read == []


def test_a_summary_survives_json() -> None:
    summary = summarise(repeated({"x": [1.0, None], "y": [0.0, 0.5]}))

    assert RunSummary.model_validate_json(summary.model_dump_json()) == summary


def test_a_long_run_needs_no_more_memory_than_a_short_one() -> None:
    def results(count: int) -> Iterator[Result]:
        for place in range(count):
            yield Result(f"s{place}", place % 7 / 6, latency_s=0.1 + place % 1000)

    def peak(count: int) -> int:
        tracemalloc.start()
        assert summarise(results(count)).samples == count
        _, found = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return found

    peak(10)
    assert peak(15_000) < 1.2 * peak(5_000)


def test_the_lines_say_it_all() -> None:
    results = [
        replace(result, metrics={"polite": 1.0}, cost_usd=None)
        for result in repeated({"x": [1.0, 1.0], "y": [0.0, None]})
    ]

    assert summarise(results).lines() == [
        "score         0.500 [0.013, 0.987] 95 % confidence",
        "samples       2, 2 judged (1 of them only in part); 4 results",
        "not judged    1 of 4 results: no valid score 1",
        "distribution  0.0-0.1: 1, 0.9-1.0: 1",
        "metrics",
        "  polite                   1.000 [0.158, 1.000]",
        "pass@1        0.500 [0.013, 0.987]",
        "pass@2        1.000 [0.025, 1.000], 1 sample left out",
        "pass^1        0.500 [0.013, 0.987]",
        "pass^2        1.000 [0.025, 1.000], 1 sample left out",
        "              (a repeat passes with a score of 1.000 or more)",
        "latency       p50 1.000 s, p90 1.000 s, p95 1.000 s, p99 1.000 s",
        "tokens        4 in, 4 out",
        "cost          unknown",
    ]


def test_a_call_that_never_returned_has_no_unit() -> None:
    results = [Result("x", 1.0, latency_s=1.5), Result("y", 1.0, latency_s=math.inf)]

    lines = summarise(results).lines()

    assert "latency       p50 1.500 s, p90 never, p95 never, p99 never" in lines


def test_lines_stay_within_eighty_columns_and_free_of_control_characters() -> None:
    results = [
        Result(
            f"s{n}",
            n / 100,
            boundary="environment\x1b[2J" * 9,
            metrics={"m\x1b]0;" * 30: -1e150, "漢" * 50: 1.0},
            cost_usd=None,
            input_tokens=None,
            output_tokens=None,
            cached=n % 2 == 0,
            latency_s=None,
        )
        for n in range(101)
    ]

    lines = summarise(results).lines()

    assert max(map(len, lines)) <= 80
    assert not any("\x1b" in line for line in lines)


def test_a_long_run_is_counted_to_its_last_result() -> None:
    # More than are counted at once, and not a multiple of it.
    results = [
        Result(
            f"s{place}",
            float(place % 2),
            metrics={"m": place / 2345},
            cost_usd=0.5,
            input_tokens=2,
            output_tokens=None if place == 7 else 1,
            latency_s=1.0,
            cached=place == 9,
        )
        for place in range(2345)
    ]

    summary = summarise(results)

    assert (summary.samples, summary.judged_results) == (2345, 2345)
    assert summary.score.interval == mean_interval([float(place % 2) for place in range(2345)])
    assert summary.metrics["m"].interval.n == 2345
    assert summary.metrics["m"].mean == pytest.approx(0.5, abs=1e-3)
    assert (summary.cost_usd.value, summary.input_tokens.value) == (1172.5, 4690.0)
    assert (summary.output_tokens.value, summary.output_tokens.unknown) == (None, 1)
    assert (summary.latency.measured, summary.latency.cached) == (2344, 1)


def test_the_repeats_of_a_sample_stay_together_in_a_long_run() -> None:
    # The one with repeats lies across the end of what is counted at once.
    before = [Result(f"a{place}", 1.0) for place in range(999)]
    after = [Result(f"b{place}", 0.0) for place in range(1500)]

    summary = summarise([*before, *repeated({"x": [1.0, 0.0, 0.0, None]}), *after])

    assert (summary.samples, summary.results, summary.judged_results) == (2500, 2503, 2502)
    assert (summary.partly_judged_samples, summary.repeats) == (1, 4)
    assert summary.score.mean == pytest.approx((999 + 1 / 3) / 2500)


def test_samples_counted_together_come_to_what_they_do_one_by_one() -> None:
    scores = [place % 3 / 2 for place in range(50)]
    odd = Result("odd", None, valid=False)

    together, one_by_one = summarise(run(*scores)), summarise([*run(*scores), odd])

    assert together.score.interval == one_by_one.score.interval
    assert together.score.distribution == one_by_one.score.distribution
    assert (together.judged_results, one_by_one.judged_results) == (50, 50)


def test_a_valid_result_without_a_score_is_counted_as_not_judged() -> None:
    found = summarise([Result("a", 1.0), Result("b", None, valid=True)])

    assert (found.samples, found.results, found.judged_results, found.invalid) == (2, 2, 1, 1)


def test_a_number_that_is_none_is_refused_with_the_name_of_its_sample() -> None:
    with pytest.raises(ConfigError, match="sample 's1' is nan"):
        summarise([*run(1.0), Result("s1", math.nan)])
