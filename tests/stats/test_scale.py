"""The scale of a run's scores: what it is used for, and what is refused on it."""

import pytest

from assay.errors import ConfigError, ScorerFault
from assay.stats import summarise
from assay.stats.scale import (
    find_shared_bounds,
    find_shared_direction,
    read_recorded_bounds,
    refuse_out_of_bounds,
    summarise_recorded,
)
from assay.types import EvaluateResult
from made_results import repeated, run


def test_a_run_is_summed_up_on_its_scale() -> None:
    results = run(1.0, 1.0, 1.0, 1.0)

    summary = summarise_recorded(results, {"bounds": [-1.0, 1.0]})

    assert summary == summarise(results, bounds=(-1.0, 1.0))
    assert summary.score.interval.low == pytest.approx(2 * 0.025**0.25 - 1)


def test_without_bounds_nothing_changes() -> None:
    for results in (run(0.0, 1.0), run(3.0, 4.0), repeated({"a": [1.0, 0.0]})):
        assert summarise_recorded(results, {"score_fn": "f"}) == summarise(results)


def test_a_repeat_passes_with_the_highest_score_of_the_scale() -> None:
    summary = summarise_recorded(repeated({"a": [5.0, 4.0]}), {"bounds": [1.0, 5.0]})

    assert summary.pass_hat_k[-1].threshold == 5.0
    assert summary.pass_hat_k[-1].value == 0.0


def test_a_recorded_scale_is_read_back() -> None:
    assert read_recorded_bounds({"bounds": [1, 5]}) == (1.0, 5.0)
    assert read_recorded_bounds({}) is None


def test_runs_of_one_scale_share_it() -> None:
    assert find_shared_bounds({}, {}) is None
    assert find_shared_bounds({"bounds": [-1, 1]}, {"bounds": [-1.0, 1.0]}) == (-1.0, 1.0)
    assert find_shared_bounds({}, {"bounds": [0, 1]}) == (0.0, 1.0)


@pytest.mark.parametrize("other", [{}, {"bounds": [0, 1]}, {"bounds": [-1, 2]}])
def test_runs_of_different_scales_are_not_compared(other: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"different scales: .*-1\.000 to 1\.000"):
        find_shared_bounds(other, {"bounds": [-1, 1]})


@pytest.mark.parametrize("score", [-1.5, 1.01])
def test_a_score_outside_its_bounds_is_the_scorers_fault(score: float) -> None:
    with pytest.raises(ScorerFault, match=rf"{score} is outside the bounds -1\.0 to 1\.0"):
        refuse_out_of_bounds(EvaluateResult(score=score), (-1.0, 1.0))


@pytest.mark.parametrize(
    "result",
    [
        EvaluateResult(score=-1.0),
        EvaluateResult(score=1.0 + 1e-12),
        EvaluateResult(score=7.0, is_score_valid=False),
        EvaluateResult(reason="not judged"),
    ],
)
def test_any_other_result_is_left_alone(result: EvaluateResult) -> None:
    refuse_out_of_bounds(result, (-1.0, 1.0))
    refuse_out_of_bounds(EvaluateResult(score=7.0), None)


def test_a_repeat_passes_with_the_lowest_score_where_low_is_good() -> None:
    summary = summarise_recorded(repeated({"a": [0.0, 0.5], "b": [0.0, 0.0]}), {"direction": "min"})

    assert summary.direction == "min"
    assert (summary.pass_hat_k[-1].threshold, summary.pass_hat_k[-1].value) == (0.0, 0.5)
    assert "(a repeat passes with a score of 0.000 or less)" in "\n".join(summary.lines())
    singles = summarise_recorded(run(0.0, 1.0), {"direction": "min"})
    assert singles.score.interval.mean == 0.5


def test_runs_of_different_directions_are_not_compared() -> None:
    assert find_shared_direction({}, {"direction": "max"}) == "max"
    assert find_shared_direction({"direction": "min"}, {"direction": "min"}) == "min"
    with pytest.raises(ConfigError, match="low scores are good in the second run, but high"):
        find_shared_direction({}, {"direction": "min"})


@pytest.mark.parametrize(
    "bounds",
    [True, "0..1", 1.0, [], [0], [0, 1, 2], ["0", "1"], [False, True], [1, 0], [0, 10**400], {}],
)
def test_bounds_that_are_not_two_numbers_are_unknown(bounds: object) -> None:
    assert read_recorded_bounds({"bounds": bounds}) is None
