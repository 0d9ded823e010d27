"""The result of a certification in words: values, bars, evidence, and what is not certain."""

import math

from assay.certify.criterion_decisions import Timings, compute_latency_figures, decide_latency
from assay.cli.certify_format import format_certification
from bars import certification, latency_bar, outcome


def test_each_criterion_is_shown_with_its_interval_and_outcome() -> None:
    lines = format_certification(
        certification(outcome(), outcome(right=3, name="polite", strict=False))
    )

    assert (
        "exact_answer           1.000      >= 0.9       0.884..1.000       passed, proven" in lines
    )
    assert "  polite: mean 0.100 is below 0.900; refuted" in lines
    assert "verdict       WARNED" in lines
    assert "cost          agent unknown, judge none" in lines


def test_what_could_not_be_measured_is_an_error_with_its_reason() -> None:
    lines = format_certification(certification(outcome(unscored=2)))

    assert any(line.startswith("exact_answer") and line.endswith(" error") for line in lines)
    assert "  exact_answer: 2 of 32 samples could not be scored" in lines


def test_times_without_end_are_never() -> None:
    timings = Timings([[0.001]] * 30 + [[math.inf]] * 30)
    late = decide_latency(latency_bar(), timings, agent_errors=30)

    lines = format_certification(
        certification(late, latency=compute_latency_figures(timings, "p95"))
    )

    assert "latency       p50 1.0, p95 never, max never ms at concurrency 1, 30 failed" in lines
    assert any("never      <= 1000" in line for line in lines)


def test_a_rehearsal_says_that_it_certifies_nothing() -> None:
    lines = format_certification(
        certification(
            rehearsal=["only 3 samples"],
            warnings=[{"code": "self_judge", "text": "it judges itself"}],
            judge={"asked": "mock:fixed", "returned": ["fixed"], "calls": 3},
        )
    )

    assert "not certifiable: only 3 samples" in lines
    assert "note: it judges itself" in lines
    assert "judge         mock:fixed, answered by fixed" in lines
