"""A gate: each of its guards says no, and nothing passes for want of evidence."""

import dataclasses
import math
import pickle
from typing import Any

import pytest

from assay.errors import ConfigError
from assay.stats import GateRule, Outcome, Verdict, compare, judge_gate, summarise
from made_results import Result, repeated, run


def verdict(*scores: float | None, **rule: Any) -> Verdict:
    return judge_gate(summarise(run(*scores)), GateRule(**rule))


def against(
    before: list[Result], after: list[Result], *, threshold: float | None = None, **rule: Any
) -> Verdict:
    return judge_gate(
        summarise(after), GateRule(threshold=threshold, **rule), comparison=compare(before, after)
    )


def outcomes(found: Verdict) -> dict[str, str]:
    return {check.name: str(check.outcome) for check in found.checks}


def test_a_mean_that_reaches_the_threshold_passes() -> None:
    found = verdict(1.0, 0.8, threshold=0.9)

    assert found.outcome is Outcome.PASSED
    assert found.passed
    assert found.exit_status == 0


def test_a_mean_below_the_threshold_fails() -> None:
    found = verdict(1.0, 0.79, threshold=0.9)

    assert (found.outcome, found.passed, found.exit_status) == (Outcome.FAILED, False, 1)
    assert found.lines() == [
        "gate          failed",
        "judged        passed: 0 of 2 results not judged; at most 5 % allowed",
        "threshold     failed: mean 0.895 is below 0.900",
    ]


@pytest.mark.parametrize(("last", "passed"), [(1, True), (0, False), (0.99, False)])
def test_a_whole_number_is_a_threshold_like_any_other(last: float, passed: bool) -> None:
    assert verdict(1, 1, last, threshold=1).passed is passed


def test_a_threshold_of_nothing_is_still_a_threshold() -> None:
    assert verdict(0, 0, threshold=0).passed
    assert verdict(0, 0, threshold=0, proven=True).passed
    assert verdict(-1, 0, threshold=0).outcome is Outcome.FAILED


def test_float_noise_does_not_fail_a_run() -> None:
    assert verdict(*[0.1 + 0.2 + 0.6 - 1e-16] * 3, threshold=0.9).passed


def test_a_near_miss_is_shown_as_one() -> None:
    found = verdict(*[0.89996] * 3, threshold=0.9)

    assert found.checks[-1].text == "mean 0.89996 is below 0.90000"


@pytest.mark.parametrize("scores", [(), (None,), (None, None, None)])
def test_nothing_judged_never_passes(scores: tuple[None, ...]) -> None:
    for rule in ({"threshold": -1e9}, {"threshold": 0, "max_not_judged": 1}):
        found = verdict(*scores, **rule)

        assert found.outcome is Outcome.COULD_NOT_TELL
        assert found.exit_status == 3
        assert found.checks[0].outcome is Outcome.COULD_NOT_TELL
        assert found.checks[0].text.startswith("none of ")


def test_too_many_unjudged_results_leave_the_question_open() -> None:
    scores = [1.0] * 18 + [None] * 2

    assert verdict(*scores, threshold=0.5).outcome is Outcome.COULD_NOT_TELL
    assert verdict(*scores, threshold=0.5, max_not_judged=0.1).passed
    assert verdict(*scores, threshold=0.5, max_not_judged=0.09).exit_status == 3
    assert verdict(*[1.0] * 19, None, threshold=0.5).passed


def test_results_without_a_score_are_a_line_of_every_verdict() -> None:
    passed = verdict(*[1.0] * 97, *[None] * 3, threshold=0.9)
    open_ = verdict(*[1.0] * 9, None, threshold=0.9)

    assert passed.lines() == [
        "gate          passed",
        "unscored      3 of 100 results (3.0 %), at most 5 % allowed",
        "threshold     passed: mean 1.000 reaches 0.900",
    ]
    assert open_.lines()[1:3] == [
        "unscored      1 of 10 results (10.0 %), at most 5 % allowed",
        "judged        could not tell: 1 of 10 results not judged; at most 5 % allowed",
    ]
    assert passed.model_dump()["unscored"] == {
        "count": 3,
        "results": 100,
        "share": 0.03,
        "allowed": 0.05,
    }


def test_too_many_unjudged_results_settle_it_even_below_the_threshold() -> None:
    assert verdict(0.0, None, threshold=0.5).outcome is Outcome.COULD_NOT_TELL


def test_an_unjudged_repeat_counts_though_its_sample_is_judged() -> None:
    summary = summarise(repeated({"x": [1.0, None], "y": [1.0, None]}))

    assert judge_gate(summary, GateRule(threshold=0.5)).outcome is Outcome.COULD_NOT_TELL


def test_proven_asks_for_the_lower_bound() -> None:
    assert verdict(*[1.0] * 29, threshold=0.9, proven=True).passed
    short = verdict(*[1.0] * 28, threshold=0.9, proven=True)

    assert short.outcome is Outcome.FAILED
    assert "28 perfect samples could not prove it, 29 could" in short.checks[-1].text
    assert verdict(*[1.0] * 28, threshold=0.9).passed


def test_proven_is_not_about_the_mean() -> None:
    found = verdict(*[1.0] * 47, *[0.0] * 3, threshold=0.9, proven=True)

    assert found.outcome is Outcome.FAILED
    assert "perfect" not in found.checks[-1].text


def test_a_set_that_was_large_enough_is_not_called_too_small() -> None:
    found = verdict(*[1.0] * 28, 0.0, threshold=0.9, proven=True)

    assert found.outcome is Outcome.FAILED
    assert found.checks[-1].text.endswith("which is below 0.900")


def test_a_proof_on_another_scale_counts_its_samples_on_that_scale() -> None:
    summary = summarise(run(*[5.0] * 28), bounds=(-5, 5))

    found = judge_gate(summary, GateRule(threshold=4, proven=True))

    assert found.checks[-1].text.endswith("; 28 perfect samples could not prove it, 29 could")


def test_perfection_cannot_be_proven_and_the_gate_says_so() -> None:
    found = verdict(*[1.0] * 1000, threshold=1, proven=True)

    assert found.outcome is Outcome.FAILED
    assert found.checks[-1].text.endswith("no number of samples can prove it")


def test_without_a_bound_nothing_is_proven() -> None:
    found = verdict(50.0, 60.0, threshold=10, proven=True)

    assert found.outcome is Outcome.COULD_NOT_TELL
    assert "the mean has no lower bound: 2 scores without bounds" in found.checks[-1].text
    assert verdict(*range(50, 90), threshold=60, proven=True).passed


def test_a_regression_that_the_test_shows_fails() -> None:
    found = against(run(*[1.0] * 10), run(*[0.0] * 7, *[1.0] * 3))

    assert found.outcome is Outcome.FAILED
    assert outcomes(found) == {"judged": "passed", "paired": "passed", "baseline": "failed"}
    assert found.checks[-1].text == "changed by -0.700, worse (p = 0.016)"


def test_an_improvement_passes() -> None:
    assert against(run(*[0.0] * 10), run(*[1.0] * 10)).passed


def test_a_drop_that_could_be_chance_passes_and_says_what_may_go_unseen() -> None:
    found = against(run(*[1.0] * 20), run(*[0.0] * 2, *[1.0] * 18))

    assert found.passed
    assert "no difference shown" in found.checks[-1].text
    assert "below 0.433 a difference may go unseen" in found.checks[-1].text


def test_repeats_that_differ_raise_no_alarm_and_are_said() -> None:
    names = [f"s{n}" for n in range(30)]
    before = repeated({name: [1.0] for name in names})
    after = repeated({name: [0.0 if n < 20 else 1.0, *[1.0] * 19] for n, name in enumerate(names)})

    found = against(before, after)

    assert found.passed
    assert found.checks[-1].text.endswith("; repeats differ: 1 in the first run, 20 in the second")


def test_too_few_pairs_for_the_test_leave_the_question_open() -> None:
    assert against(run(*[1.0] * 5), run(*[0.0] * 5)).outcome is Outcome.COULD_NOT_TELL
    assert against(run(*[1.0] * 5), run(*[0.0] * 5), tolerance=0.1).outcome is Outcome.FAILED


def test_with_a_tolerance_the_size_of_the_drop_decides() -> None:
    before, after = run(*[1.0] * 20), run(*[0.0] * 2, *[1.0] * 18)

    assert against(before, after, tolerance=0.1).passed
    assert against(before, after, tolerance=0.09).outcome is Outcome.FAILED
    assert against(before, after, tolerance=0).outcome is Outcome.FAILED
    assert against(before, before, tolerance=0).passed
    assert against(before, run(*[0.0] * 20), tolerance=1).passed


def test_threshold_and_baseline_must_both_hold() -> None:
    before, same = run(*[0.5] * 10), run(*[0.5] * 10)

    assert against(before, same, threshold=0.5).passed
    assert against(before, same, threshold=0.6).outcome is Outcome.FAILED
    assert against(run(*[1.0] * 10), same, threshold=0.5).outcome is Outcome.FAILED


def test_a_failed_check_outweighs_one_that_could_not_tell() -> None:
    found = against(run(*[1.0] * 3), run(*[0.0] * 3), threshold=0.5)

    assert outcomes(found)["baseline"] == "could not tell"
    assert found.outcome is Outcome.FAILED


def test_a_run_that_lacks_baseline_samples_leaves_the_question_open() -> None:
    before = run(*[1.0] * 20)

    assert against(before, run(*[1.0] * 19)).passed
    found = against(before, run(*[1.0] * 18))
    assert found.outcome is Outcome.COULD_NOT_TELL
    assert outcomes(found)["paired"] == "could not tell"
    assert against(before, run(*[1.0] * 18), max_not_judged=0.1).passed


def test_new_samples_beside_the_baselines_do_no_harm() -> None:
    assert against(run(*[1.0] * 10), run(*[1.0] * 30)).passed


def test_no_common_sample_leaves_the_question_open() -> None:
    found = against([Result("other", 1.0)], run(*[1.0] * 10), threshold=0.5, max_not_judged=1)

    assert found.outcome is Outcome.COULD_NOT_TELL
    assert outcomes(found)["threshold"] == "passed"


def test_a_baseline_without_judged_samples_is_no_baseline() -> None:
    found = against(run(*[None] * 10), run(*[1.0] * 10), max_not_judged=1)

    assert found.outcome is Outcome.COULD_NOT_TELL


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"threshold": math.nan}, "threshold is nan"),
        ({"threshold": math.inf}, "threshold is inf"),
        ({"threshold": 1, "tolerance": math.nan}, "tolerance is nan"),
        ({"threshold": 1, "tolerance": -0.1}, "tolerance is -0.1"),
        ({"threshold": 1, "max_not_judged": math.nan}, "max_not_judged is nan"),
        ({"threshold": 1, "max_not_judged": 1.1}, "max_not_judged is 1.1"),
        ({"threshold": 1, "max_not_judged": -0.1}, "max_not_judged is -0.1"),
        ({"proven": True}, "`proven` needs a threshold"),
        ({"minimum": math.nan}, "threshold is nan"),
        ({"threshold": 0.9, "minimum": 0.5}, "threshold is 0.9, but minimum, .* is 0.5"),
    ],
)
def test_a_rule_that_holds_nobody_is_refused(rule: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GateRule(**rule)


def test_minimum_is_another_name_of_the_threshold() -> None:
    rule = GateRule(minimum=0.9, proven=True)

    assert rule == GateRule(threshold=0.9, proven=True) == GateRule(0.9, True)
    assert rule == GateRule(threshold=0.9, minimum=0.9, proven=True)
    assert (rule.threshold, rule.minimum) == (0.9, 0.9)
    assert GateRule().minimum is None


def test_a_rule_can_be_copied_and_sent_to_another_process() -> None:
    rule = GateRule(threshold=0.9, max_not_judged=0.1)

    assert pickle.loads(pickle.dumps(rule)) == rule
    assert dataclasses.replace(rule, threshold=0.5) == GateRule(0.5, max_not_judged=0.1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.threshold = 0.1  # type: ignore[misc]  # the refusal is the test


def test_a_gate_without_a_bar_is_refused() -> None:
    with pytest.raises(ConfigError, match="the gate has no criterion"):
        verdict(1.0)


def test_a_tolerance_without_a_baseline_is_refused() -> None:
    with pytest.raises(ConfigError, match="a tolerance needs a baseline"):
        verdict(1.0, threshold=0.5, tolerance=0.1)


def test_a_comparison_of_another_run_is_refused() -> None:
    before, after = run(1.0, 1.0, 1.0), run(1.0, 1.0)
    swapped = compare(after, before)

    with pytest.raises(ConfigError, match="second run has 3 samples, but this run has 2"):
        judge_gate(summarise(after), GateRule(), comparison=swapped)


def test_a_verdict_survives_json() -> None:
    found = verdict(1.0, threshold=0.5)

    assert Verdict.model_validate_json(found.model_dump_json()) == found


def test_lines_stay_within_eighty_columns() -> None:
    found = against(run(*[1e150] * 8), run(*[-1e150] * 8), threshold=1e149, proven=True)

    assert max(map(len, found.lines())) <= 80


def test_a_threshold_is_refused_where_low_scores_are_good() -> None:
    summary = summarise(run(0.1, 0.2), success=0.0, direction="min")

    with pytest.raises(ConfigError, match="a threshold does not apply: low scores are good"):
        judge_gate(summary, GateRule(threshold=0.5))


@pytest.mark.parametrize(
    ("before", "after", "passed"), [(0.1, 0.3, False), (0.3, 0.1, True), (0.1, 0.15, True)]
)
def test_the_tolerance_is_a_rise_where_low_scores_are_good(
    before: float, after: float, passed: bool
) -> None:
    old, new = run(*[before] * 20), run(*[after] * 20)
    summary = summarise(new, success=0.0, direction="min")
    comparison = compare(old, new).model_copy(update={"direction": "min"})

    found = judge_gate(summary, GateRule(tolerance=0.1), comparison=comparison)

    assert found.passed is passed
