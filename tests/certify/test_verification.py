"""Verification: a certificate holds for one manifest, one dataset, one code, and one key."""

import base64
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assay.certify import Verification, VerifyPolicy, verify_certificate
from assay.certify.signatures import VerifyingKey, generate_key, read_verifying_key
from assay.datasets.golden.access_rules import FetchRules
from assay.errors import ConfigError, DatasetError, ManifestError, WireError
from certificates import change, issued
from certifying import JUDGED, RIGHT, agent, golden, judge, manifest, profile

OWN = {**RIGHT, "name": "own", "metric": "own_metric_of_verifying:score"}
METRIC = "own_metric_of_verifying.py"
COMMIT = "0123abcd" * 5


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One with a metric of its own, a judge and a limit on times."""
    # Each test has its own module of that name.
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, Path(METRIC).stem, raising=False)
    (tmp_path / METRIC).write_text("def score(sample):\n    return True\n")
    golden(tmp_path, rows=3)
    evaluation = profile(
        RIGHT, OWN, JUDGED, evaluator_model="mock:script", expected_latency_ms=60_000
    )
    return issued(tmp_path, evaluation, judge=judge(1.0))


def keys(folder: Path) -> tuple[VerifyingKey, ...]:
    return (read_verifying_key(folder / "key.pub.pem"),)


def verified(certificate: Path, **policy: Any) -> Verification:
    folder = certificate.parents[1]
    given = {"keys": keys(folder), **policy}
    return verify_certificate(certificate, folder / "agent.yaml", policy=VerifyPolicy(**given))


def named(found: Verification) -> list[str]:
    return [each.check for each in found.mismatches]


def test_a_signed_certificate_of_this_manifest_verifies(certificate: Path) -> None:
    found = verified(certificate, refetch_dataset=True, subjects=(("gitCommit", COMMIT),))

    assert (found.verified, found.signature, named(found)) == (True, "signed", [])
    assert found.certification is not None
    checks = {each.check for each in found.findings}
    assert {"own: metric code", "polite: judge prompt", "dataset as it is now", "subject"} <= checks


def test_it_takes_no_key_of_the_judge(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest's judge is another here, one that would need a key."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    path = certificate.parents[1] / "agent.yaml"
    change(path, "definitions", "helper", "evaluation", "evaluator_model", to="gpt-4")

    found = verified(certificate)

    assert named(found) == ["definition", "judge"]


CHANGES: dict[str, tuple[tuple[str | int, ...], Any, list[str]]] = {
    "threshold": (("grading_rubric", 0, "threshold"), 0.95, ["exact_answer: threshold"]),
    "strict": (("grading_rubric", 0, "strict"), False, ["exact_answer: strict"]),
    "latency": (("expected_latency_ms",), 50_000, ["latency_p95_ms: threshold"]),
    "repeats": (("repeats",), 3, ["repeats"]),
    "pin": (("golden_dataset_sha256",), "0" * 64, ["dataset pin"]),
    "address": (("golden_dataset_uri",), "other.jsonl", ["dataset address"]),
    "judge prompt": (
        ("grading_rubric", 2, "description"),
        "It is very polite.",
        ["polite: judge prompt"],
    ),
    "metric": (
        ("grading_rubric", 1, "metric"),
        "exact_answer",
        ["own: metric", "own: metric code"],
    ),
    "removed": (("grading_rubric",), [RIGHT], ["own", "polite", "judge"]),
    "confidence": (
        ("confidence",),
        0.99,
        [f"{name}: confidence" for name in ("exact_answer", "own", "polite", "latency_p95_ms")],
    ),
}


@pytest.mark.parametrize(("place", "value", "checks"), CHANGES.values(), ids=CHANGES)
def test_what_changed_in_the_manifest_is_named(
    place: tuple[str | int, ...], value: Any, checks: list[str], certificate: Path
) -> None:
    change(
        certificate.parents[1] / "agent.yaml",
        *("definitions", "helper", "evaluation", *place),
        to=value,
    )

    found = verified(certificate)

    assert not found.verified
    assert sorted(named(found)) == sorted(["definition", *checks])


def test_a_word_of_the_agents_goal_is_part_of_its_definition(certificate: Path) -> None:
    change(certificate.parents[1] / "agent.yaml", "definitions", "helper", "goal", to="Lie.")

    assert named(verified(certificate)) == ["definition"]


def test_the_layout_of_the_manifest_is_not(certificate: Path) -> None:
    path = certificate.parents[1] / "agent.yaml"
    path.write_text(f"# a comment\n{json.dumps(json.loads(path.read_text()), indent=4)}\n")

    assert verified(certificate).verified


def test_a_byte_of_the_dataset_is_named_when_it_is_fetched_again(certificate: Path) -> None:
    path = certificate.parents[1] / "golden.jsonl"
    path.write_text(path.read_text().replace("Say 1", "Say 2"))

    assert named(verified(certificate, refetch_dataset=True)) == ["dataset as it is now"]
    unchecked = [each.check for each in verified(certificate).findings if each.status != "ok"]
    assert unchecked == ["dataset content"]


def test_a_dataset_that_is_gone_is_an_error_not_a_match(certificate: Path) -> None:
    (certificate.parents[1] / "golden.jsonl").unlink()

    assert verified(certificate).verified
    with pytest.raises(DatasetError, match=r"golden\.jsonl"):
        verified(certificate, refetch_dataset=True)


def test_a_changed_metric_is_named(certificate: Path) -> None:
    path = certificate.parents[1] / METRIC
    path.write_text(path.read_text() + "# more\n")

    assert named(verified(certificate)) == ["own: metric code"]


def test_a_certificate_runs_out(certificate: Path) -> None:
    folder = certificate.parents[1]
    policy = VerifyPolicy(keys=keys(folder))
    late = datetime.now(UTC) + timedelta(days=91)

    found = verify_certificate(certificate, folder / "agent.yaml", policy=policy, now=lambda: late)

    assert named(found) == ["validity"]


def test_another_subject_or_runner_than_demanded_is_named(certificate: Path) -> None:
    found = verified(certificate, subjects=(("sha256", "0" * 64),), runner="my:agent")

    assert named(found) == ["runner", "subject"]


def test_of_a_wrong_signature_nothing_is_believed(certificate: Path) -> None:
    payload = json.loads(certificate.read_text())["payload"]
    forged = base64.b64decode(payload).replace(b"helper", b"hacker")
    change(certificate, "payload", to=base64.b64encode(forged).decode())

    found = verified(certificate)

    assert (found.verified, found.signature, named(found)) == (False, "wrong", ["signature"])
    assert found.certification is None


def test_another_key_than_the_signers_does_not_verify(certificate: Path) -> None:
    other = generate_key(certificate.parent / "other.pem")

    found = verified(certificate, keys=(read_verifying_key(other.public),))

    assert (found.verified, found.signature) == (False, "wrong")
    assert found.findings[0].expected == f"signed with {other.key_id}"


def test_a_stripped_signature_makes_it_unsigned(certificate: Path) -> None:
    change(certificate, "signatures", to=[])

    found = verified(certificate)

    assert (found.verified, found.signature, named(found)) == (False, "unsigned", ["signature"])


@pytest.mark.parametrize(
    ("name", "state"),
    [("certificate.json", "unsigned"), ("certificate.dsse.json", "not checked")],
)
def test_without_a_key_nothing_is_called_signed(name: str, state: str, certificate: Path) -> None:
    path = certificate.with_name(name)

    refused = verified(path, keys=())
    allowed = verified(path, keys=(), allow_unsigned=True)

    assert (refused.verified, refused.signature, named(refused)) == (False, state, ["signature"])
    assert (allowed.verified, allowed.signature, allowed.key_id) == (True, state, None)
    assert "signed with" not in allowed.findings[0].found
    assert allowed.findings[0].status == "unchecked"


def test_with_a_key_an_unsigned_certificate_does_not_pass(certificate: Path) -> None:
    found = verified(certificate.with_name("certificate.json"))

    assert (found.verified, named(found)) == (False, ["signature"])


def test_a_key_and_no_need_of_one_contradict_each_other(certificate: Path) -> None:
    with pytest.raises(ConfigError, match="`keys` and `allow_unsigned` contradict each other"):
        verified(certificate, allow_unsigned=True)


def test_the_certificate_of_a_no_does_not_verify(tmp_path: Path) -> None:
    golden(tmp_path, rows=3)
    certificate = issued(tmp_path, profile(RIGHT), runner="certifying:wrong")

    assert named(verified(certificate)) == ["result", "exact_answer"]


def test_a_criterion_that_only_warns_may_be_missed(tmp_path: Path) -> None:
    golden(tmp_path, rows=3)
    certificate = issued(tmp_path, profile({**RIGHT, "strict": False}), runner="certifying:wrong")

    assert verified(certificate).verified


def test_the_agent_is_named_where_there_are_several(certificate: Path) -> None:
    folder = certificate.parents[1]
    path = folder / "agent.yaml"
    agents = json.loads(path.read_text())["definitions"]
    easy = agent(profile({**RIGHT, "threshold": 0.1}), id="easy")
    path.write_text(json.dumps({"definitions": {**agents, "easy": easy}}))
    policy = VerifyPolicy(keys=keys(folder))

    with pytest.raises(
        ConfigError, match="the manifest has several agents: choose one with --agent"
    ):
        verify_certificate(certificate, path, policy=policy)

    assert verify_certificate(certificate, path, agent="helper", policy=policy).verified
    other = verify_certificate(certificate, path, agent="easy", policy=policy)
    assert named(other)[:2] == ["agent", "definition"]
    with pytest.raises(ConfigError, match="no agent 'nobody' has an `evaluation`"):
        verify_certificate(certificate, path, agent="nobody", policy=policy)


@pytest.mark.parametrize("evaluation", [None, {"grading_rubric": [RIGHT]}])
def test_a_manifest_that_asks_for_nothing_that_can_be_certified_is_refused(
    evaluation: dict[str, Any] | None, certificate: Path
) -> None:
    manifest(certificate.parents[1], evaluation)

    with pytest.raises(ConfigError):
        verified(certificate)


def test_files_that_are_not_there_or_no_certificate_are_refused(certificate: Path) -> None:
    folder = certificate.parents[1]

    with pytest.raises(ConfigError, match="cannot be read"):
        verified(certificate.with_name("none.json"))
    with pytest.raises(WireError, match="the file is not a certificate"):
        verified(certificate.with_name("result.json"))
    with pytest.raises(ManifestError):
        verify_certificate(
            certificate, folder / "none.yaml", policy=VerifyPolicy(keys=keys(folder))
        )


def test_a_signed_payload_that_is_no_certificate_is_refused(certificate: Path) -> None:
    from assay.certify.signatures import read_signing_key

    key = read_signing_key(certificate.parents[1] / "key.pem")
    certificate.write_text(key.sign('{"_type": "https://in-toto.io/Statement/v1"}'))

    with pytest.raises(WireError, match="the file is not a certificate: subject"):
        verified(certificate)


def test_a_dataset_is_fetched_within_the_rules_only(certificate: Path) -> None:
    folder = certificate.parents[1]
    outside = "../outside.jsonl"
    change(
        folder / "agent.yaml",
        *("definitions", "helper", "evaluation", "golden_dataset_uri"),
        to=outside,
    )

    with pytest.raises(DatasetError, match="outside"):
        verified(certificate, refetch_dataset=True, fetch=FetchRules())


def test_the_files_that_a_manifest_refers_to_are_certified_with_it(tmp_path: Path) -> None:
    golden(tmp_path, rows=3)
    (tmp_path / "parts").mkdir()
    bar = tmp_path / "parts" / "bar.json"
    bar.write_text(json.dumps(profile()))
    certificate = issued(tmp_path, {"$ref": "parts/bar.json"})

    found = verified(certificate)
    bar.write_text(json.dumps(profile({**RIGHT, "threshold": 0.95})))

    assert found.certification is not None
    assert list(found.certification.manifest.references) == ["parts/bar.json"]
    assert found.verified
    assert named(verified(certificate)) == ["definition", "exact_answer: threshold"]
