"""`certify`: verdicts that mean something, recorded, resumed and stopped."""

import asyncio
import math
import os
from pathlib import Path
from typing import Any

import pytest

from assay.certify import CertificationAborted, CertificationInterrupted, certify
from assay.certify.certified import CertificationResult
from assay.certify.plan import CertificationPlan
from assay.errors import AccessDenied, ConfigError, EndpointError
from assay.runner import Progress, Stop
from assay.store import Store
from assay.types import Endpoint, Sample
from certifying import JUDGED, RIGHT, golden, judge, planned, profile, right, wrong
from model_server import ModelServer, answers, said


def run(plan: CertificationPlan, folder: Path, **fields: Any) -> CertificationResult:
    return asyncio.run(certify(plan, store=folder / "assay.db", **fields))


def test_an_agent_that_is_right_passes_and_one_that_is_not_fails(tmp_path: Path) -> None:
    passed = run(planned(tmp_path), tmp_path)
    failed = run(planned(tmp_path, runner=wrong), tmp_path)

    assert (passed.verdict, passed.certified, passed.exit_status()) == ("PASSED", True, 0)
    assert (failed.verdict, failed.certified, failed.exit_status()) == ("FAILED", False, 1)
    assert passed.outcomes[0].value == 1.0
    assert (passed.dataset.rows, passed.agent.runner) == (6, "certifying:right")


# Asks the model as Pi does, and answers with the last word.
CODING_AGENT = """#!/usr/bin/env python3
import json, os, pathlib, sys, urllib.request
if "--version" in sys.argv:
    sys.exit(print("0.74.2"))
models = json.loads((pathlib.Path.home() / ".pi/agent/models.json").read_text())
(provider,) = models["providers"].values()
question = [{"role": "user", "content": sys.stdin.read()}]
request = urllib.request.Request(
    provider["baseUrl"] + "/chat/completions",
    json.dumps({"model": provider["models"][0]["id"], "messages": question}).encode(),
    {"Authorization": "Bearer " + os.environ[provider["apiKey"]]},
)
answer = json.load(urllib.request.urlopen(request))
print(answer["choices"][0]["message"]["content"].split()[-1])
"""


def test_a_coding_agent_is_certified_with_the_model_of_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "pi"
    program.write_text(CODING_AGENT)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    result = run(planned(tmp_path, runner="pi", warmup=1), tmp_path)

    assert (result.verdict, result.agent.runner) == ("PASSED", "pi")
    assert result.agent.endpoint is not None
    assert result.agent.endpoint.model == "echo"
    assert [notice.code for notice in result.warnings] == ["dataset_not_pinned"]
    with Store.open(tmp_path / "assay.db") as store:
        samples = list(store.run().samples())
    assert all(len(sample.trajectory.calls) == 1 for sample in samples if sample.trajectory)


def test_an_agent_that_crashes_on_every_sample_is_never_certified(tmp_path: Path) -> None:
    def crash(sample: Sample) -> str:
        raise RuntimeError("no")

    evaluation = profile(
        RIGHT,
        {"name": "empty_rate", "description": "Silence.", "threshold": 0.1},
        JUDGED,
        expected_latency_ms=1000,
        evaluator_model="mock:script",
    )
    result = run(planned(tmp_path, evaluation, runner=crash, judge=judge(1.0)), tmp_path)

    assert result.verdict == "FAILED"
    assert [outcome.value for outcome in result.outcomes] == [0.0, 1.0, 0.0, None]
    assert {outcome.status for outcome in result.outcomes} == {"failed"}
    assert {outcome.agent_errors for outcome in result.outcomes} == {6}
    assert (result.latency.failed, result.latency.infinite[0]) == (6, "p50")
    assert result.judge is not None
    assert result.judge.calls == 0
    notices = {notice.code: notice.text for notice in result.warnings}
    assert list(notices) == ["dataset_not_pinned", "warmup_failed", "agent_failed"]
    assert notices["agent_failed"].startswith("6 of 6 calls of the agent failed, the first: ")


def test_a_missed_criterion_that_is_not_strict_only_warns(tmp_path: Path) -> None:
    lenient = {**RIGHT, "name": "conciseness", "threshold": 1.0, "strict": False}
    wordy = planned(
        tmp_path, profile(RIGHT, lenient), runner=lambda sample: f"The answer is {right(sample)}"
    )

    result = run(wordy, tmp_path)

    assert (result.verdict, result.exit_status()) == ("WARNED", 0)
    assert result.exit_status(fail_on_warn=True) == 1


def test_a_judge_grades_by_the_description_and_is_named_as_it_answered(tmp_path: Path) -> None:
    plan = planned(
        tmp_path, profile(JUDGED, evaluator_model="mock:script"), judge=judge(0.25, 0.75)
    )

    result = run(plan, tmp_path)

    assert result.outcomes[0].value == 0.5
    assert result.judge is not None
    assert (result.judge.asked, result.judge.returned, result.judge.calls) == (
        "mock:script",
        ("script",),
        6,
    )


def test_garbage_of_a_judge_is_no_score_and_nobody_is_certified(tmp_path: Path) -> None:
    evaluation = profile(RIGHT, JUDGED, evaluator_model="mock:script")

    result = run(planned(tmp_path, evaluation, judge=judge(None)), tmp_path)
    lenient = profile(RIGHT, {**JUDGED, "strict": False}, evaluator_model="mock:script")
    warned = run(planned(tmp_path, lenient, judge=judge(None)), tmp_path)

    assert (result.verdict, result.exit_status()) == ("ERROR", 3)
    assert not result.attestable
    good, unscored = result.outcomes
    assert (good.status, good.value) == ("passed", 1.0)
    assert (unscored.status, unscored.unscored, unscored.value) == ("error", 6, None)
    assert warned.verdict == "WARNED"


def test_a_second_try_asks_only_the_judge(tmp_path: Path) -> None:
    calls: list[str] = []

    def agent(sample: Sample) -> str:
        calls.append(sample.id)
        return right(sample)

    evaluation = profile(RIGHT, JUDGED, evaluator_model="mock:script", repeats=2)
    first = run(planned(tmp_path, evaluation, runner=agent, judge=judge(None)), tmp_path)
    again = planned(tmp_path, evaluation, runner=agent, judge=judge(1.0))
    second = run(again, tmp_path, resume=first.run)

    assert len(calls) == 12
    assert (first.verdict, second.verdict, second.run) == ("ERROR", "PASSED", first.run)
    assert second.judge is not None
    assert second.judge.calls == 12 + 36


def test_a_judge_that_refuses_the_key_costs_no_answer_of_the_agent(tmp_path: Path) -> None:
    calls: list[str] = []

    def agent(sample: Sample) -> str:
        calls.append(sample.id)
        return right(sample)

    evaluation = profile(RIGHT, JUDGED, evaluator_model="mock:script")
    refusing = judge(1.0).model_copy(
        update={"extra_params": {"replies": [{"error": {"status": 401}}], "loop": True}}
    )
    with pytest.raises(CertificationAborted) as broken:
        run(planned(tmp_path, evaluation, runner=agent, judge=refusing), tmp_path)
    again = planned(tmp_path, evaluation, runner=agent, judge=judge(1.0))

    result = run(again, tmp_path, resume=broken.value.run_id)

    assert (result.run, result.verdict) == (broken.value.run_id, "PASSED")
    assert len(calls) == len(set(calls)) == 6


def test_a_run_of_another_agent_is_not_gone_on_with(tmp_path: Path) -> None:
    first = run(planned(tmp_path), tmp_path)

    with pytest.raises(ConfigError, match="configuration"):
        run(planned(tmp_path, profile({**RIGHT, "threshold": 0.5})), tmp_path, resume=first.run)


def test_a_certification_is_a_recorded_run(tmp_path: Path) -> None:
    result = run(planned(tmp_path), tmp_path)

    with Store.open(tmp_path / "assay.db", create=False) as store:
        recorded = store.run(result.run)
        assert (recorded.status, recorded.spec.name) == ("completed", "certify helper")
        assert recorded.spec.dataset == "golden.jsonl"
        assert [row.metrics["exact_answer"] for row in recorded.results()] == [1.0] * 6


def test_stopped_it_says_which_run_to_go_on_with(tmp_path: Path) -> None:
    stop = Stop(grace_s=30)

    def watch(progress: Progress) -> None:
        stop.request()

    plan = planned(tmp_path, concurrency=1)
    with pytest.raises(CertificationInterrupted) as stopped:
        run(plan, tmp_path, stop=stop, watch=watch)
    result = run(planned(tmp_path, concurrency=1), tmp_path, resume=stopped.value.run_id)

    assert (result.run, result.verdict) == (stopped.value.run_id, "PASSED")


def test_a_key_that_is_refused_ends_the_run_and_tells_which_it_was(tmp_path: Path) -> None:
    async def refused(sample: Sample) -> str:
        raise AccessDenied("the key is refused")

    with pytest.raises(CertificationAborted, match="the key is refused") as broken:
        run(planned(tmp_path, runner=refused), tmp_path)

    assert broken.value.run_id.startswith("certify-helper-")


@pytest.mark.parametrize("who", ["runner", "judge"])
def test_a_server_out_of_reach_is_found_before_the_first_call(tmp_path: Path, who: str) -> None:
    calls: list[str] = []

    def agent(sample: Sample) -> str:
        calls.append(sample.id)
        return "x"

    nobody = Endpoint(provider="vllm", model="script", api_base="http://127.0.0.1:9/v1")
    settings: dict[str, Any] = {"runner": agent, "judge": judge(1.0), who: nobody}
    plan = planned(tmp_path, profile(JUDGED, evaluator_model="mock:script"), **settings)

    with pytest.raises(EndpointError, match="cannot be called"):
        run(plan, tmp_path)

    assert calls == []


def test_an_agent_behind_an_address_is_asked_for_the_manifests_model(tmp_path: Path) -> None:
    async def certified() -> tuple[CertificationResult, list[Any]]:
        async with ModelServer(answers(said("3"))) as server:
            result = await certify(planned(tmp_path, runner=server.url), store=tmp_path / "a.db")
            return result, [asked.json for asked in server.asked if asked.body]

    result, asked = asyncio.run(certified())

    assert result.outcomes[0].value == pytest.approx(1 / 6)
    assert result.agent.models_returned == ("m-1",)
    assert {request["model"] for request in asked} == {"echo"}
    assert [message["role"] for message in asked[0]["messages"]] == ["user"]


def test_times_are_of_the_agent_alone_and_warming_up_is_not_among_them(tmp_path: Path) -> None:
    calls: list[str] = []

    def agent(sample: Sample) -> str:
        calls.append(sample.id)
        return right(sample)

    evaluation = profile(RIGHT, JUDGED, expected_latency_ms=60_000, evaluator_model="mock:script")
    slow_judge = judge(1.0)
    slow_judge.extra_params["latency_s"] = 0.2
    plan = planned(tmp_path, evaluation, runner=agent, judge=slow_judge, warmup=2)

    result = run(plan, tmp_path)

    assert len(calls) == 8
    assert (result.latency.samples, result.latency.warmup, result.latency.concurrency) == (6, 2, 1)
    assert result.outcomes[-1].evidence == "inconclusive"
    assert result.latency.p50 is not None
    assert 0 < result.latency.p50 < 200


def test_times_without_end_are_written_as_null(tmp_path: Path) -> None:
    def sometimes(sample: Sample) -> str:
        if sample.id == "q3":
            raise RuntimeError("no")
        return right(sample)

    evaluation = profile(expected_latency_ms=1000, latency_statistic="max")
    result = run(planned(tmp_path, evaluation, runner=sometimes), tmp_path)

    written = CertificationResult.model_validate_json(result.model_dump_json())
    assert written == result
    assert (result.outcomes[-1].value, result.outcomes[-1].infinite) == (
        None,
        ("value", "at_least"),
    )
    assert math.inf not in dict(result.latency).values()


def test_a_run_with_deviations_is_reported_and_certifies_nothing(tmp_path: Path) -> None:
    result = run(planned(tmp_path, max_samples=2), tmp_path)

    assert (result.verdict, result.certified, result.attestable) == ("PASSED", False, False)
    assert result.deviations == ("only 2 samples of the dataset were run",)


def test_proof_is_demanded_where_the_manifest_says_so(tmp_path: Path) -> None:
    golden(tmp_path, rows=30)

    def nearly(sample: Sample) -> str:
        return "?" if sample.id == "q7" else right(sample)

    proven = run(planned(tmp_path, profile(gate="proven")), tmp_path)
    likely = run(planned(tmp_path, profile(gate="proven"), runner=nearly), tmp_path)

    assert (proven.verdict, proven.outcomes[0].evidence) == ("PASSED", "proven")
    assert (likely.verdict, likely.outcomes[0].evidence) == ("FAILED", "inconclusive")


def test_few_samples_cannot_be_proven_and_nothing_is_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least 29 samples"):
        run(planned(tmp_path, profile(gate="proven")), tmp_path)
    assert not (tmp_path / "assay.db").exists()
