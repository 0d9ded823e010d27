"""What a verifier may demand beside the manifest: age, tries, and who judged."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assay.certify import (
    CertifySettings,
    Verification,
    VerifyPolicy,
    certify,
    plan_certifications,
    verify_certificate,
    write_reports,
)
from assay.certify.certificate_checks import is_same_model
from certificates import change
from certifying import JUDGED, golden, judge, manifest, profile, right


def certified(folder: Path, *, runs: int = 1, **settings: Any) -> Path:
    """The certificate of the last of some runs."""
    golden(folder, rows=3)
    evaluation = profile(JUDGED, evaluator_model="mock:script", expected_latency_ms=60_000)
    path = manifest(folder, evaluation)
    given = CertifySettings(**{"runner": right, "judge": judge(1.0), **settings})
    for _ in range(runs):
        (plan,) = plan_certifications(path, given, folder=folder / "fetched")
        result = asyncio.run(certify(plan, store=folder / "store.db"))
    return write_reports(result, folder / "out")[-1]


def verified(certificate: Path, *, days: float = 0, **policy: Any) -> Verification:
    now = datetime.now(UTC) + timedelta(days=days)
    return verify_certificate(
        certificate,
        certificate.parents[1] / "agent.yaml",
        policy=VerifyPolicy(allow_unsigned=True, **policy),
        now=lambda: now,
    )


def finding(found: Verification, check: str) -> tuple[str, str]:
    (one,) = [each for each in found.findings if each.check == check]
    return one.status, one.found


def test_earlier_runs_and_warm_up_calls_are_stated_and_limited(tmp_path: Path) -> None:
    certificate = certified(tmp_path, runs=3)

    free, twice = verified(certificate), verified(certificate, max_tries=2)
    thrice = verified(certificate, max_tries=3)

    words = "run 3 on this dataset, 1 warm-up call, retries unknown"
    assert finding(free, "tries") == ("ok", words)
    assert finding(twice, "tries") == ("mismatch", words)
    assert (free.verified, twice.verified, thrice.verified) == (True, False, True)
    assert free.certification is not None
    assert free.certification.tries is not None
    assert len(free.certification.tries.earlier) == 2


def test_a_certificate_that_does_not_state_its_tries_has_too_many(tmp_path: Path) -> None:
    certificate = certified(tmp_path)
    change(certificate, "predicate", "certification", "tries", to=None)

    assert verified(certificate).verified
    assert finding(verified(certificate, max_tries=9), "tries") == ("mismatch", "nothing")


def test_runs_of_another_agent_are_no_tries_of_this_one(tmp_path: Path) -> None:
    certified(tmp_path)
    text = (tmp_path / "agent.yaml").read_text()
    (tmp_path / "agent.yaml").write_text(text.replace("helper", "another"))
    given = CertifySettings(runner=right, judge=judge(1.0))
    (plan,) = plan_certifications(tmp_path / "agent.yaml", given, folder=tmp_path / "fetched")

    result = asyncio.run(certify(plan, store=tmp_path / "store.db"))

    assert result.tries is not None
    assert result.tries.earlier_runs == 0


@pytest.mark.parametrize(("days", "verifies"), [(29, True), (31, False)])
def test_an_old_certificate_is_refused_where_its_age_is_limited(
    days: int, verifies: bool, tmp_path: Path
) -> None:
    found = verified(certified(tmp_path), days=days, max_age=timedelta(days=30))

    assert found.verified is verifies
    assert finding(found, "age") == ("ok" if verifies else "mismatch", f"{days} d")


@pytest.mark.parametrize(("hours", "told"), [(0.5, "30 min"), (5, "5 h"), (60, "2.5 d")])
def test_an_age_is_told_in_a_unit_that_shows_it(hours: float, told: str, tmp_path: Path) -> None:
    found = verified(certified(tmp_path), days=hours / 24, max_age=timedelta(minutes=5))

    assert finding(found, "age") == ("mismatch", told)
    assert "at most 5 min" in [each.expected for each in found.mismatches]


def test_the_host_of_the_judge_can_be_demanded(tmp_path: Path) -> None:
    certificate = certified(tmp_path)
    judged = ("predicate", "certification", "judge", "asked")

    assert finding(verified(certificate, judge_host="api.x.com"), "judge host")[0] == "mismatch"
    change(certificate, *judged, to="mock:script at api.x.com:8443")
    assert finding(verified(certificate, judge_host="api.x.com"), "judge host")[0] == "ok"
    assert finding(verified(certificate, judge_host="API.x.com:8443"), "judge host")[0] == "ok"
    assert finding(verified(certificate, judge_host="x.com"), "judge host")[0] == "mismatch"


def test_a_demanded_host_is_said_not_to_be_checked_where_nothing_is_judged(tmp_path: Path) -> None:
    golden(tmp_path, rows=3)
    path = manifest(tmp_path, profile(expected_latency_ms=60_000))
    given = CertifySettings(runner=right)
    (plan,) = plan_certifications(path, given, folder=tmp_path / "fetched")
    result = asyncio.run(certify(plan, store=tmp_path / "store.db"))
    certificate = write_reports(result, tmp_path / "out")[-1]

    found = finding(verified(certificate, judge_host="api.x.com"), "judge host")

    assert found == ("unchecked", "no criterion is judged")


def test_a_judge_that_answered_as_another_model_is_named(tmp_path: Path) -> None:
    certificate = certified(tmp_path)
    assert finding(verified(certificate), "judge answered") == ("ok", "script")
    change(certificate, *("predicate", "certification", "judge", "returned"), to=["tiny-1"])

    found = verified(certificate)

    assert not found.verified
    assert finding(found, "judge answered") == ("mismatch", "tiny-1")
    assert verified(certificate, judge_models=("tiny-1",)).verified
    change(certificate, *("predicate", "certification", "judge", "returned"), to=[])
    assert finding(verified(certificate), "judge answered")[0] == "unchecked"


@pytest.mark.parametrize(
    ("returned", "asked", "same"),
    [
        ("gpt-4-turbo-2024-04-09", "gpt-4-turbo", True),
        ("claude-3-5-sonnet-20241022", "claude-3-5-sonnet-latest", True),
        ("openai/gpt-4o", "gpt-4o", True),
        ("GPT-4", "gpt-4", True),
        ("gemini-2.0-flash-001", "gemini-2.0-flash", True),
        ("gpt-4o", "gpt-4", False),
        ("gpt-4-turbo", "gpt-4", False),
        ("gpt-4", "gpt-4-turbo", False),
        ("llama-3", "gpt-4", False),
    ],
)
def test_a_dated_version_is_the_model_that_was_asked_for(
    returned: str, asked: str, same: bool
) -> None:
    assert is_same_model(returned, asked) is same
