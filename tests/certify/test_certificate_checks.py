"""A certificate held against a manifest: each difference is named with both sides."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from assay.certify.certificate import Resource, build_statement
from assay.certify.certificate_checks import (
    CertificateFinding,
    CertificateRequirements,
    VerifyPolicy,
    check_certificate,
)
from assay.certify.certified import CertificationResult
from assay.certify.criterion_decisions import Timings, decide_latency
from bars import SHA, certification, latency_bar, outcome, score_bar

OTHER = "0" * 64
NOW = datetime(2026, 3, 2, tzinfo=UTC)
POLITE: dict[str, Any] = {
    "name": "polite",
    "strict": False,
    "graded_by": {"by": "judge", "name": "mock:fixed", "sha256": SHA},
}
JUDGE = {"asked": "openai:gpt-4 at api.openai.com", "returned": ["gpt-4"], "calls": 30}
EXPECTED = CertificateRequirements(
    agent="helper",
    definition_sha256=SHA,
    criteria=(score_bar(), score_bar(**POLITE), latency_bar()),
    repeats=1,
    dataset_uri="golden.jsonl",
    dataset_sha256=SHA,
    fetched_sha256=None,
    judge="gpt-4",
)


def result(**fields: Any) -> CertificationResult:
    times = decide_latency(latency_bar(), Timings([[0.1]] * 30), agent_errors=0)
    outcomes = fields.pop("outcomes", (outcome(), outcome(3, **POLITE), times))
    return certification(*outcomes, judge=JUDGE, **fields)


def found(expected: CertificateRequirements, **fields: Any) -> list[CertificateFinding]:
    statement = build_statement(result(**fields), valid_days=30)
    return list(check_certificate(statement, expected, now=NOW))


def mismatches(expected: CertificateRequirements, **fields: Any) -> list[tuple[str, str, str]]:
    return [
        (each.check, each.expected, each.found)
        for each in found(expected, **fields)
        if each.status == "mismatch"
    ]


def test_a_certificate_of_this_very_manifest_matches_in_everything() -> None:
    findings = found(EXPECTED)

    assert {each.status for each in findings} == {"ok"}
    assert {"definition", "validity", "dataset pin", "judge"} <= {each.check for each in findings}


CHANGES: dict[str, tuple[dict[str, Any], tuple[str, str, str]]] = {
    "another agent": ({"agent": "other"}, ("agent", "other", "helper")),
    "another definition": (
        {"definition_sha256": OTHER},
        ("definition", f"sha256:{OTHER}", f"sha256:{SHA}"),
    ),
    "another dataset": (
        {"dataset_uri": "new.jsonl"},
        ("dataset address", "new.jsonl", "golden.jsonl"),
    ),
    "another pin": (
        {"dataset_sha256": OTHER},
        ("dataset pin", f"sha256:{OTHER}", f"sha256:{SHA}"),
    ),
    "a dataset that was changed": (
        {"fetched_sha256": OTHER},
        ("dataset as it is now", f"sha256:{OTHER}", f"sha256:{SHA}"),
    ),
    "another judge": ({"judge": "gpt-5"}, ("judge", "gpt-5", "gpt-4")),
    "no judge": ({"judge": None}, ("judge", "nothing", "gpt-4")),
    "more repeats": ({"repeats": 3}, ("repeats", "at least 3", "1")),
    "another runner": (
        {"policy": VerifyPolicy(runner="my:agent")},
        ("runner", "my:agent", "own model mock:echo"),
    ),
    "another artifact": (
        {"policy": VerifyPolicy(subjects=(("sha256", OTHER),))},
        ("subject", f"sha256:{OTHER}", f"sha256:{SHA}"),
    ),
}


@pytest.mark.parametrize(("fields", "named"), CHANGES.values(), ids=CHANGES)
def test_a_difference_is_named_with_what_is_expected_and_found(
    fields: dict[str, Any], named: tuple[str, str, str]
) -> None:
    assert mismatches(replace(EXPECTED, **fields)) == [named]


BARS: dict[str, tuple[dict[str, Any], tuple[str, str, str]]] = {
    "threshold": ({"threshold": 0.95}, ("exact_answer: threshold", "0.95", "0.9")),
    "a lower threshold": ({"threshold": 0.5}, ("exact_answer: threshold", "0.5", "0.9")),
    "direction": ({"direction": "min"}, ("exact_answer: direction", "min", "max")),
    "strict": ({"strict": False}, ("exact_answer: strict", "false", "true")),
    "range": ({"range": (0, 2)}, ("exact_answer: range", "[0, 2]", "[0, 1]")),
    "gate": ({"gate": "proven"}, ("exact_answer: gate", "proven", "point")),
    "confidence": ({"confidence": 0.99}, ("exact_answer: confidence", "at least 0.99", "0.95")),
    "the metric's code": (
        {"graded_by": {"by": "metric", "name": "exact_answer", "sha256": OTHER}},
        ("exact_answer: metric code", f"sha256:{OTHER}", f"sha256:{SHA}"),
    ),
    "the metric's name": (
        {"graded_by": {"by": "metric", "name": "my:metric", "sha256": SHA}},
        ("exact_answer: metric", "my:metric", "exact_answer"),
    ),
}


@pytest.mark.parametrize(("fields", "named"), BARS.values(), ids=BARS)
def test_a_criterion_that_was_changed_is_named(
    fields: dict[str, Any], named: tuple[str, str, str]
) -> None:
    criteria = (score_bar(**fields), *EXPECTED.criteria[1:])

    assert mismatches(replace(EXPECTED, criteria=criteria)) == [named]


def test_a_stronger_condition_than_the_manifests_is_no_mismatch() -> None:
    outcomes = (outcome(gate="proven", confidence=0.955),)
    bare = replace(EXPECTED, criteria=(score_bar(),), judge="gpt-4")

    assert mismatches(bare, outcomes=outcomes, repeats=5) == []


def test_code_without_a_digest_is_not_taken_to_be_the_same() -> None:
    bar = score_bar(graded_by={"by": "metric", "name": "exact_answer"})
    blind = outcome(graded_by={"by": "metric", "name": "exact_answer"})

    assert mismatches(replace(EXPECTED, criteria=(bar,)), outcomes=(blind,)) == [
        ("exact_answer: metric code", "not known", "not known")
    ]


def test_another_statistic_of_times_is_named() -> None:
    late = latency_bar(statistic="p99").model_copy(update={"name": "latency_p95_ms"})
    criteria = (*EXPECTED.criteria[:2], late)

    assert mismatches(replace(EXPECTED, criteria=criteria)) == [
        ("latency_p95_ms: statistic", "p99", "p95")
    ]


def test_a_criterion_on_one_side_only_is_named() -> None:
    criteria = (score_bar("new"), *EXPECTED.criteria[1:])

    assert mismatches(replace(EXPECTED, criteria=criteria)) == [
        ("new", "among the criteria", "nothing"),
        ("exact_answer", "nothing", "among the criteria"),
    ]


def test_a_no_is_no_certificate_to_deploy_on() -> None:
    assert mismatches(EXPECTED, outcomes=(outcome(3), *result().outcomes[1:])) == [
        ("result", "PASSED or WARNED", "FAILED"),
        ("exact_answer", "passed", "failed"),
    ]


def test_a_certificate_that_ran_out_is_named() -> None:
    statement = build_statement(result(), valid_days=1)
    late = datetime(2026, 3, 3, tzinfo=UTC)

    (named,) = [
        each
        for each in check_certificate(statement, EXPECTED, now=late)
        if each.status == "mismatch"
    ]

    assert (named.check, named.expected) == ("validity", "valid on 2026-03-03 00:00 UTC")
    assert named.found == "2026-03-01 12:00 UTC to 2026-03-02 12:00 UTC"


def test_a_dataset_that_nobody_pinned_or_fetched_is_said_to_be_unchecked() -> None:
    findings = found(replace(EXPECTED, dataset_sha256=None))

    assert [each.check for each in findings if each.status == "unchecked"] == ["dataset content"]


def test_a_required_artifact_is_found_by_its_digest() -> None:
    commit = Resource(name="git", digest={"gitCommit": "0123abcd"})
    statement = build_statement(result(), valid_days=30, subjects=(commit,))
    expected = replace(EXPECTED, policy=VerifyPolicy(subjects=(("gitCommit", "0123abcd"),)))

    findings = check_certificate(statement, expected, now=NOW)

    assert {each.status for each in findings} == {"ok"}
