"""Plans: which agents, which judge, what is a deviation, and what is refused before a call."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.certify import CertifySettings, plan_certifications
from assay.certify.plan import check_provable
from assay.errors import ConfigError
from assay.types import Endpoint
from certifying import JUDGED, RIGHT, agent, golden, judge, manifest, planned, profile, right

SCRIPT = "mock:script"


def several(folder: Path, **agents: dict[str, Any]) -> Path:
    golden(folder)
    path = folder / "agents.yaml"
    path.write_text(json.dumps({"definitions": agents}))
    return path


def test_all_agents_with_an_evaluation_are_planned_or_the_one_that_is_named(
    tmp_path: Path,
) -> None:
    path = several(
        tmp_path,
        one=agent(profile(), id="one"),
        two=agent(profile(), id="two"),
        plain=agent(None, id="plain"),
    )

    every = plan_certifications(path, folder=tmp_path / "f")
    named = plan_certifications(path, agent="two", folder=tmp_path / "f")

    assert [plan.definition.id for plan in every] == ["one", "two"]
    assert [plan.definition.id for plan in named] == ["two"]
    with pytest.raises(ConfigError, match=r"--runner applies to one agent[\s\S]*--agent"):
        plan_certifications(path, CertifySettings(runner=right), folder=tmp_path / "f")
    with pytest.raises(ConfigError, match="has no `evaluation`"):
        plan_certifications(path, agent="plain", folder=tmp_path / "f")
    with pytest.raises(ConfigError, match=r"no agent 'three'[\s\S]*one, two, plain"):
        plan_certifications(path, agent="three", folder=tmp_path / "f")


@pytest.mark.parametrize(
    ("evaluation", "message"),
    [
        (None, "no agent of the manifest has an `evaluation`"),
        ({"golden_dataset_uri": "golden.jsonl"}, "neither criteria nor a latency"),
    ],
)
def test_there_is_no_certificate_over_nothing(
    tmp_path: Path, evaluation: dict[str, Any] | None, message: str
) -> None:
    path = manifest(tmp_path, evaluation)

    with pytest.raises(ConfigError, match=message):
        plan_certifications(path, folder=tmp_path / "f")


def test_calls_are_counted_before_they_are_made(tmp_path: Path) -> None:
    plan = planned(
        tmp_path,
        profile(RIGHT, JUDGED, evaluator_model=SCRIPT, repeats=2, expected_latency_ms=100),
        judge=judge(1.0),
    )

    assert (plan.agent_calls, plan.judge_calls, plan.warmup, plan.slots) == (12, 12, 1, 1)
    assert [criterion.name for criterion in plan.criteria] == [
        "exact_answer",
        "polite",
        "latency_p95_ms",
    ]


def test_without_a_limit_on_times_calls_are_made_at_once(tmp_path: Path) -> None:
    plan = planned(tmp_path, concurrency=5)

    assert (plan.slots, plan.warmup, plan.judge) == (5, 0, None)
    assert planned(tmp_path, warmup=3).warmup == 3


def test_the_judges_address_may_change_but_not_its_model(tmp_path: Path) -> None:
    evaluation = profile(JUDGED, evaluator_model=SCRIPT)

    assert planned(tmp_path, evaluation, judge=judge(1.0)).deviations == ()
    by_name = planned(tmp_path, profile(JUDGED, evaluator_model="echo"), judge="mock:echo")
    assert by_name.deviations == ()
    other = Endpoint(provider="mock", model="fixed", extra_params={"text": "x"})
    assert planned(tmp_path, evaluation, judge=other).deviations == (
        "the judge is fixed, not mock:script",
    )
    unnamed = planned(tmp_path, profile(JUDGED), judge=other)
    assert unnamed.deviations == ("the judge is fixed, not None",)


def test_a_judge_that_is_not_needed_is_not_asked_for(tmp_path: Path) -> None:
    assert planned(tmp_path, profile(evaluator_model="nobody-knows")).judge is None
    with pytest.raises(ConfigError, match="the provider of the model 'nobody-knows' is unknown"):
        planned(tmp_path, profile(JUDGED, evaluator_model="nobody-knows"))


def test_what_should_be_known_is_noted(tmp_path: Path) -> None:
    plan = planned(
        tmp_path,
        profile({**JUDGED, "strict": False}, evaluator_model="mock:echo"),
    )

    assert [notice.code for notice in plan.notices] == [
        "self_judge",
        "dataset_not_pinned",
        "nothing_blocks",
    ]


def test_the_manifest_is_known_by_its_digest_and_not_by_where_it_lies(tmp_path: Path) -> None:
    plan = planned(tmp_path)

    assert plan.manifest.path == "agent.yaml"
    assert len(plan.manifest.sha256) == len(plan.definition_sha256) == 64


def test_nobody_pays_for_a_proof_that_so_few_samples_cannot_give(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least 29 samples, but the dataset has 6"):
        check_provable(planned(tmp_path, profile(gate="proven")))
    check_provable(planned(tmp_path, profile(gate="proven"), max_samples=3))
    golden(tmp_path, rows=29)
    check_provable(planned(tmp_path, profile(gate="proven")))
