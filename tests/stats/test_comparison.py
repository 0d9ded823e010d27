"""Two runs, paired: who won, what is missing, and whether the set could have told."""

import math
import random
from collections.abc import Iterable
from types import SimpleNamespace

import pytest

from assay.errors import ConfigError
from assay.stats import Comparison, Conclusion, compare, compare_runs
from made_results import Result, repeated, run


def test_samples_are_paired_by_id_whatever_their_order() -> None:
    before, after = run(1.0, 1.0, 0.0, 0.5), run(0.0, 1.0, 1.0, 1.0)

    found = compare(before, list(reversed(after)))

    assert (found.pairs, found.wins, found.losses, found.ties) == (4, 2, 1, 1)
    assert (found.mean_a, found.mean_b) == (0.625, 0.75)
    assert found.difference.mean == pytest.approx(0.125)
    assert (found.samples_a, found.samples_b, found.unjudged_pairs) == (4, 4, 0)


def test_what_is_missing_is_counted_and_named() -> None:
    before = [Result("kept", 1.0), Result("gone", 1.0), Result("failed", 1.0)]
    after = [Result("new", 0.0), Result("failed", None, valid=False), Result("kept", 1.0)]

    found = compare(before, after)

    assert (found.missing_in_a.count, found.missing_in_a.ids) == (1, ("new",))
    assert (found.missing_in_b.count, found.missing_in_b.ids) == (1, ("gone",))
    assert (found.not_judged_in_b.count, found.not_judged_in_b.ids) == (1, ("failed",))
    assert (found.not_judged_in_a.count, found.unjudged_pairs) == (0, 1)
    assert (found.pairs, found.difference.mean, found.baseline_judged) == (1, 0.0, 3)


def test_not_judged_on_both_sides_is_one_pair() -> None:
    found = compare(run(None, 1.0), run(None, 1.0))

    assert (found.not_judged_in_a.count, found.not_judged_in_b.count) == (1, 1)
    assert (found.unjudged_pairs, found.pairs, found.baseline_judged) == (1, 1, 1)


def test_repeats_are_averaged_before_they_are_compared() -> None:
    found = compare(
        repeated({"x": [1.0, 0.0], "y": [1.0]}), repeated({"x": [1.0], "y": [1.0, None, 0.0]})
    )

    assert (found.pairs, found.wins, found.losses) == (2, 1, 1)
    assert found.difference.n == 2


def test_float_noise_is_a_tie() -> None:
    found = compare(run(0.1 + 0.2), run(0.3))

    assert (found.wins, found.losses, found.ties) == (0, 0, 1)


def test_regressions_come_worst_first_and_improvements_best_first() -> None:
    before = run(1.0, 1.0, 1.0, 0.0, 0.0, 1.0)
    after = run(0.5, 0.0, 0.75, 0.25, 1.0, 1.0)

    found = compare(before, after)

    assert [pair.sample_id for pair in found.regressions] == ["s1", "s0", "s2"]
    assert [pair.difference for pair in found.regressions] == [-1.0, -0.5, -0.25]
    assert [pair.sample_id for pair in found.improvements] == ["s4", "s3"]


def test_equal_regressions_are_ordered_by_id() -> None:
    before, after = run(1.0, 1.0, 1.0), run(0.0, 0.0, 0.0)

    found = compare(reversed(before), reversed(after))

    assert [pair.sample_id for pair in found.regressions] == ["s0", "s1", "s2"]


def test_lists_are_bounded_and_counts_are_not() -> None:
    before, after = run(*[1.0] * 50), run(*[0.0] * 30)

    found = compare(before, after, limit=5)

    assert (len(found.regressions), found.losses) == (5, 30)
    assert (len(found.missing_in_b.ids), found.missing_in_b.count) == (5, 20)
    assert len(compare(before, after, limit=None).regressions) == 30
    assert compare(before, after, limit=0).regressions == ()


def test_a_clear_regression_is_called_worse() -> None:
    found = compare(run(*[1.0] * 10), run(*[0.0] * 8, 1.0, 1.0))

    assert found.conclusion is Conclusion.WORSE
    assert found.p_value == pytest.approx(2 / 2**8)
    assert found.difference.high is not None
    assert found.difference.high < 0


def test_a_clear_improvement_is_called_better() -> None:
    assert compare(run(*[0.0] * 10), run(*[1.0] * 10)).conclusion is Conclusion.BETTER


def test_noise_is_not_called_anything() -> None:
    found = compare(run(*[1.0, 0.0] * 10), run(*[0.0, 1.0] * 10))

    assert found.conclusion is Conclusion.NO_DIFFERENCE_SHOWN
    assert found.detectable is not None
    assert found.detectable > 0.4


def test_five_pairs_cannot_tell_even_if_all_got_worse() -> None:
    five, six = compare(run(*[1] * 5), run(*[0] * 5)), compare(run(*[1] * 6), run(*[0] * 6))

    assert five.conclusion is Conclusion.TOO_FEW
    assert six.conclusion is Conclusion.WORSE
    assert compare(run(*[1] * 6), run(*[0] * 6), confidence=0.99).conclusion is Conclusion.TOO_FEW


def test_runs_without_a_common_sample_have_no_difference() -> None:
    found = compare([Result("x", 1.0)], [Result("y", 1.0)])

    assert (found.pairs, found.mean_a, found.mean_b, found.p_value) == (0, None, None, None)
    assert found.difference.mean is None
    assert found.conclusion is Conclusion.TOO_FEW


def test_empty_runs_have_no_difference() -> None:
    found = compare([], [])

    assert (found.samples_a, found.samples_b, found.difference.mean) == (0, 0, None)


def test_scores_off_the_unit_scale_get_an_interval_with_bounds_or_enough_pairs() -> None:
    before, after = run(10.0, 20.0, 30.0), run(20.0, 20.0, 40.0)

    assert compare(before, after).difference.low is None
    bounded = compare(before, after, bounds=(0, 100)).difference
    assert bounded.method == "beta"
    assert bounded.low is not None
    assert -100 < bounded.low < 0
    many = compare(run(*range(40)), run(*(n + 1 + n % 3 for n in range(40)))).difference
    assert many.method == "t"


def test_close_scores_off_the_unit_scale_are_not_taken_for_the_unit_scale() -> None:
    assert compare(run(3.0, 4.0), run(3.5, 4.0)).difference.low is None
    assert compare(run(-0.5, 0.0), run(0.0, 0.0)).difference.low is None


def test_a_score_outside_the_bounds_is_refused() -> None:
    with pytest.raises(ConfigError, match="outside the bounds"):
        compare(run(1.0), run(7.0), bounds=(1, 5))
    with pytest.raises(ConfigError, match="outside the bounds"):
        compare(run(0.0), run(2.0), bounds=(1, 5))


@pytest.mark.parametrize("first", [True, False])
def test_scattered_repeats_are_refused(first: bool) -> None:
    scattered = [Result("x", 1.0), Result("y", 1.0), Result("x", 0.0, repeat=1)]
    together = run(1.0)

    with pytest.raises(ConfigError, match=r"sample 'x' in the (first|second) run are not next to"):
        compare(*((scattered, together) if first else (together, scattered)))


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(ConfigError, match="limit is -1"):
        compare([], [], limit=-1)
    with pytest.raises(ConfigError, match="confidence"):
        compare([], [], confidence=1)
    with pytest.raises(ConfigError, match="bounds"):
        compare([], [], bounds=(1, 1))
    with pytest.raises(ConfigError, match="nan"):
        compare(run(1.0), run(math.nan))


def test_the_same_runs_give_the_same_comparison() -> None:
    draw = random.Random(3)
    before, after = (run(*(draw.random() for _ in range(60))) for _ in "ab")

    assert compare(before, after, seed=1) == compare(before, after, seed=1)
    assert "seed 1" in compare(before, after, seed=1).test


def test_swapping_the_runs_turns_the_difference_round() -> None:
    before, after = run(1.0, 0.5, 0.0, 1.0), run(0.0, 1.0, 0.0, 0.25)

    there, back = compare(before, after), compare(after, before)

    assert there.difference.mean == -(back.difference.mean or 0)
    assert (there.wins, there.losses, there.p_value) == (back.losses, back.wins, back.p_value)


def test_a_comparison_survives_json() -> None:
    found = compare(run(1.0, 0.0, None), run(0.5, 0.0, 1.0))

    assert Comparison.model_validate_json(found.model_dump_json()) == found


def test_the_lines_of_a_regression() -> None:
    found = compare(run(*[1.0] * 8, 0.0, None), run(*[0.0] * 7, 1.0, 1.0, 1.0), limit=2)

    assert found.lines() == [
        "conclusion    no difference shown (p = 0.0703, sign test, exact); a difference",
        "              below 0.747 may go unseen in this set",
        "difference    -0.667 [-0.945, +0.016] 95 % confidence (mean 0.889 to 0.222)",
        "pairs         9: 1 better, 7 worse, 1 the same",
        "left out      1 not judged in the first run",
        "  s9",
        "regressions (7)",
        f"  {'s0':44}    1.000 ->     0.000     -1.000",
        f"  {'s1':44}    1.000 ->     0.000     -1.000",
        "  and 5 more",
        "improvements (1)",
        f"  {'s8':44}    0.000 ->     1.000     +1.000",
    ]


def test_the_lines_of_too_few() -> None:
    found = compare([Result("x", 1.0)], [Result("y", 1.0)])

    assert found.lines()[:3] == [
        "conclusion    too few to tell: 0 pairs, and at least 6 are needed",
        "difference    none: no sample was judged on both",
        "pairs         0: 0 better, 0 worse, 0 the same",
    ]


def test_a_tiny_p_value_is_not_shown_as_nothing() -> None:
    lines = compare(run(*[1.0] * 40), run(*[0.0] * 40)).lines()

    assert lines[0] == "conclusion    worse (p = less than 0.0001, sign test, exact)"


def test_repeats_that_differ_are_said() -> None:
    names = [f"s{n}" for n in range(8)]
    before = repeated({name: [1.0] for name in names})
    after = repeated({name: [1.0, 1.0, 0.0] for name in names[:7]} | {"s7": [1.0, None, None]})

    found = compare(before, after)

    assert (found.repeats_a, found.repeats_b, found.unequal_repeats) == ((1, 1), (1, 3), 7)
    told = " ".join(" ".join(found.lines()).split())
    assert "repeats 1 in the first run, 1 to 3 in the second: they differ in 7 pairs." in told
    assert "differ in" not in "".join(compare(before, before).lines())


def test_a_single_repeat_beside_twenty_raises_no_alarm() -> None:
    """Thirty samples of which twenty failed once in twenty repeats: 0.967 is what 1.0 can be."""
    names = [f"s{n}" for n in range(30)]
    before = repeated({name: [1.0] for name in names})
    after = repeated({name: [0.0 if n < 20 else 1.0, *[1.0] * 19] for n, name in enumerate(names)})

    found = compare(before, after)

    assert found.losses == 20
    assert found.conclusion is Conclusion.NO_DIFFERENCE_SHOWN
    assert found.p_value is not None
    assert found.p_value > 0.3
    assert found.test == "permutation of repeats, 10000 draws, seed 0"
    assert compare(before, after) == found


def test_equal_repeats_are_tested_as_ever() -> None:
    before = repeated({f"s{n}": [1.0, 1.0] for n in range(10)})
    after = repeated({f"s{n}": [0.0, 1.0] for n in range(10)})

    found = compare(before, after)

    assert found.p_value == pytest.approx(2 / 2**10)
    assert (found.test, found.unequal_repeats) == ("sign test, exact", 0)


def test_the_smallest_p_is_that_of_all_movable_samples_falling() -> None:
    found = compare(run(*[1.0] * 10), run(*[0.0] * 3, *[1.0] * 7))

    assert found.smallest_p == found.p_value == 0.25
    assert compare([], []).smallest_p is None


def test_lines_stay_within_eighty_columns_and_free_of_control_characters() -> None:
    before = [Result(f"漢\x1b[2J{n}" * 40, 12345.678 * n) for n in range(30)]
    after = [Result(f"漢\x1b[2J{n}" * 40, -1e148 * n) for n in range(29)]

    lines = compare(before, after).lines()

    assert max(map(len, lines)) <= 80
    assert not any("\x1b" in line for line in lines)


def test_each_run_is_compared_with_the_first_at_adjusted_p_values() -> None:
    first, worse, same = run(*[1.0] * 8), run(*[0.0] * 6, 1.0, 1.0), run(*[1.0] * 8)
    alone = compare(first, worse)

    found = compare_runs([first, worse, same, same])

    assert alone.p_value == pytest.approx(2 * 0.5**6)
    assert alone.conclusion is Conclusion.WORSE
    assert [each.comparison.p_value for each in found] == [alone.p_value, 1.0, 1.0]
    assert found[0].adjusted_p == pytest.approx(3 * 2 * 0.5**6)
    assert [each.conclusion for each in found] == [Conclusion.NO_DIFFERENCE_SHOWN] * 3


def test_a_clear_difference_stays_one_among_several_runs() -> None:
    first, worse = run(*[1.0] * 20), run(*[0.0] * 20)

    found = compare_runs([first, worse, run(None, None), first])

    assert [each.conclusion for each in found] == [
        Conclusion.WORSE,
        Conclusion.TOO_FEW,
        Conclusion.NO_DIFFERENCE_SHOWN,
    ]
    assert found[1].adjusted_p is None


def test_one_run_cannot_be_compared() -> None:
    with pytest.raises(ConfigError, match="a comparison needs at least two runs"):
        compare_runs([run(1.0)])


class RecordedResults:
    """A run of a store, reduced to what a comparison reads of it."""

    def __init__(self, results: list[Result], **config: object) -> None:
        self.spec = SimpleNamespace(config=config)
        self._results = results

    def results(self) -> list[Result]:
        return self._results

    def read_labels(self, sample_ids: Iterable[str]) -> dict[str, str]:
        return {}


def test_where_low_scores_are_good_a_fall_is_an_improvement() -> None:
    before = RecordedResults(run(*[0.9] * 20, 0.1), direction="min")
    after = RecordedResults(run(*[0.2] * 20, 0.6), direction="min")

    found = compare(before, after)

    assert found.conclusion is Conclusion.BETTER
    assert (found.wins, found.losses) == (20, 1)
    assert [(pair.a, pair.b) for pair in found.regressions] == [(0.1, 0.6)]
    assert len(found.improvements) == 20
    assert found.difference.mean is not None
    assert found.difference.mean < 0
    assert "low is good)" in " ".join(" ".join(found.headline()).split())
    assert compare(after, before).conclusion is Conclusion.WORSE
    (adjusted,) = compare_runs([before, after])
    assert adjusted.conclusion is Conclusion.BETTER
