"""The judge of criteria: what it is asked, and which model answered."""

import asyncio
import json
import re

import pytest

from assay.certify.judge_client import (
    JudgeModel,
    build_criterion_rubric,
    count_prompt_characters,
    digest_judge_prompt,
)
from assay.certify.measurement import JudgeUsage
from assay.errors import ConfigError
from assay.types import Endpoint, EvaluateResult
from assay.types.manifest import SuccessCriterion
from certifying import JUDGED, judge
from make import asked, said, sample
from model_server import ModelServer, answers
from model_server import said as completion

POLITE = SuccessCriterion.model_validate(JUDGED)


def test_the_description_is_the_rubric() -> None:
    rubric = build_criterion_rubric(POLITE, "max")

    assert rubric.criteria[0].description == "It is polite."
    assert rubric.reference
    assert "meets it fully" in rubric.criteria[0].levels[1.0]


def test_what_should_be_low_is_graded_by_how_far_it_occurs() -> None:
    assert "occurs" in build_criterion_rubric(POLITE, "min").criteria[0].levels[1.0]


@pytest.mark.parametrize("name", ["Answer Relevance!", "9lives", "日本", "x" * 200])
def test_any_name_of_a_criterion_can_be_judged(name: str) -> None:
    criterion = SuccessCriterion.model_validate({**JUDGED, "name": name})

    assert build_criterion_rubric(criterion, "max").name == name[:100]


def test_the_digest_of_the_prompt_is_the_same_each_time_and_follows_the_words() -> None:
    other = SuccessCriterion.model_validate({**JUDGED, "description": "It is rude."})

    digest = digest_judge_prompt(build_criterion_rubric(POLITE, "max"))

    assert digest == digest_judge_prompt(build_criterion_rubric(POLITE, "max"))
    assert digest != digest_judge_prompt(build_criterion_rubric(other, "max"))
    assert digest != digest_judge_prompt(build_criterion_rubric(POLITE, "min"))
    assert count_prompt_characters() > 500


def test_the_model_that_answered_is_noted_under_the_name_it_gave() -> None:
    async def run() -> tuple[float | None, JudgeUsage]:
        model = JudgeModel(judge(0.75))
        usage = JudgeUsage()
        result = await model.scorer(POLITE, "max")(sample(asked("Hi"), said("Hello!")))
        usage.add(result, by_judge=True)
        await model.close()
        return result.reward, usage

    score, usage = asyncio.run(run())

    assert (score, usage.models, usage.calls) == (0.75, {"script"}, 1)


def test_a_metric_cannot_name_the_model_of_the_judge() -> None:
    spending = {"calls": 2, "cost_usd": 0.5, "models": {"gpt-9": 2}}
    result = EvaluateResult.model_validate({"score": 1.0, "judgement": {"spending": spending}})
    usage = JudgeUsage()

    usage.add(result, by_judge=False)

    assert (usage.models, usage.calls, usage.cost_usd) == (set(), 2, 0.5)


def test_a_judge_without_a_key_is_refused_before_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    with pytest.raises(ConfigError, match="the API key for openai is missing"):
        JudgeModel(Endpoint(provider="openai", model="gpt-4"))


@pytest.mark.parametrize("with_key", [True, False])
def test_a_verdict_counts_only_with_the_key_of_its_question(with_key: bool) -> None:
    """An agent that talks a judge into repeating a verdict does not know the key."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        key = re.findall(r'"key": "(\w+)"', server.asked[-1].json["messages"][-1]["content"])
        graded = {"polite": {"reason": "so", "evidence": [], "score": 1.0}}
        verdict = {"criteria": graded, **({"key": key[-1]} if with_key and key else {})}
        await answers(completion(json.dumps(verdict)))(reader, writer)

    server = ModelServer(answer)

    async def run() -> float | None:
        async with server:
            model = JudgeModel(Endpoint(provider="vllm", model="m", api_base=server.url))
            result = await model.scorer(POLITE, "max")(sample(asked("Hi"), said("Hello!")))
            await model.close()
            return result.reward

    if with_key:
        assert asyncio.run(run()) == 1.0
    else:
        assert asyncio.run(run()) is None
        assert len(server.asked) == 3  # asked again, as after any answer that cannot be used
