"""The Python blocks of the documents that define the product, run as they stand.

They lie beside a checkout, not in it; without them these tests are skipped and
`test_compat.py` covers the same uses.
"""

import ast
import asyncio
import dataclasses
import inspect
import json
import re
import socket
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pydantic
import pytest

from assay import (
    compat,
)
from assay import (
    environments as rollout,
)
from assay import (
    runner as evaluation,
)
from assay import (
    types as models,
)
from assay.train import character_model
from assay.types import manifest
from evaluation_sessions import run as run_session
from make import asked, said, sample
from tiny_models import tiny_model, tiny_tokenizer

SEEDS = Path(__file__).parents[2] / "shared" / "seeds"
pytestmark = pytest.mark.skipif(not SEEDS.is_dir(), reason="the documents are not here")

NEEDS_MORE = {
    ("000", 3): "shows the code that it replaces",
}
"""Blocks that never could run, and why."""


def blocks(language: str = "python") -> dict[tuple[str, int], str]:
    found: dict[tuple[str, int], str] = {}
    for path in sorted(SEEDS.glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        for number, block in enumerate(re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)):
            found[path.name[:3], number] = block
    return found


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    compat.install()
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in compat.install()]:
        del sys.modules[name]


def surroundings() -> dict[str, Any]:
    """What a module that such a block is cut from has imported at its top."""
    return {
        **vars(typing),
        **vars(pydantic),
        **{name: getattr(models, name) for name in dir(models)},
        "dataclass": dataclasses.dataclass,
        "field": dataclasses.field,
        "asdict": dataclasses.asdict,
        "json": json,
        "JsonSerializable": object,
        "MCPSession": object,
    }


def run(block: str, **names: Any) -> dict[str, Any]:
    # As a real module, because dataclasses look their own module up.
    namespace: dict[str, Any] = {"__name__": __name__, **surroundings(), **names}
    exec(compile(block, "<seed>", "exec", dont_inherit=True), namespace)
    return namespace


def test_every_block_is_either_run_here_or_named_with_its_reason() -> None:
    run_here = {(d, n) for d, n in blocks() if (d, n) not in NEEDS_MORE}

    assert run_here == {
        *(("000", n) for n in (0, 1, 2, 4, 5)),
        ("001", 0),
        *(("003", n) for n in range(3)),
        *(("004", n) for n in range(6)),
    }


def test_the_result_class_of_the_proposal_reads_what_assay_writes() -> None:
    proposed = run(blocks()["000", 0])["EvaluateResult"]
    ours = models.EvaluateResult(
        score=0.5, reason="half", metrics={"accuracy": models.MetricResult(score=0.5, reason="1/2")}
    )

    read = proposed.from_openai_metadata(ours.to_openai_metadata())

    assert (read.score, read.reason, read.is_score_valid) == (0.5, "half", True)
    assert read.metrics["accuracy"].score == 0.5


@pytest.mark.filterwarnings("ignore::pydantic.PydanticDeprecatedSince20")
def test_assay_reads_what_the_result_class_of_the_proposal_writes() -> None:
    names = run(blocks()["000", 0])
    theirs = names["EvaluateResult"](
        score=0.5, metrics={"accuracy": models.MetricResult(score=0.5, reason="1/2")}
    )

    read = models.EvaluateResult.from_openai_metadata(theirs.to_openai_metadata())

    assert read.reward == 0.5
    assert read.metrics["accuracy"].reason == "1/2"


@pytest.mark.parametrize(
    ("block", "name"), [(1, "StepOutput"), (2, "EvaluateResult"), (5, "Trajectory")]
)
def test_assays_class_has_every_field_that_the_proposal_lists(block: int, name: str) -> None:
    proposed = run(blocks()["000", block])[name]

    ours = set(getattr(models, name).model_fields) | {"conversation_history"}
    assert set(proposed.__annotations__) <= ours


def test_the_rollout_loop_of_the_proposal_fills_assays_types() -> None:
    trajectory = models.Trajectory(termination_reason="control_plane_signal")

    run(
        blocks()["000", 4],
        step=3,
        reward=1.0,
        rollout_end=True,
        info={"control_plane": {"reward_source": "goal"}},
        tool_calls_summary=["move"],
        total_reward=1.0,
        trajectory=trajectory,
    )

    result = trajectory.evaluation_result
    assert result is not None
    assert result.final_control_plane_info == {"reward_source": "goal"}
    assert models.Sample(score=result).is_trajectory_evaluation()


class Stairs:
    """Up the stairs; words leave them as they are."""

    tools = (models.ToolSpec(name="up"),)

    async def open(self, *, seed: int | None = None) -> tuple[models.Message, ...]:
        return ()

    async def step(self, action: models.Message) -> rollout.Step:
        if not action.tool_calls:
            return rollout.Step(ended_by_agent=True, acted=False, info={"floor": 1})
        return rollout.Step(reward=0.5, info={"floor": 1})

    async def close(self) -> None: ...


def test_the_rows_of_a_rollout_fit_the_schema_and_the_classes_of_the_proposal() -> None:
    up: dict[str, Any] = {"role": "assistant", "tool_calls": [{"name": "up"}]}
    extra = {"by": "turn", "replies": [up, "Enough."]}
    config = evaluation.EvalConfig(
        endpoint=models.Endpoint(provider="mock", model="script", extra_params=extra),
        environment=lambda sample: Stairs(),
    )

    report = asyncio.run(evaluation.evaluate([{"question": "Go."}], config))

    (row,) = report.samples
    written = json.loads(row.to_json())
    schema = blocks("json")["000", 0]
    step_of_the_proposal = run(blocks()["000", 1])["StepOutput"]
    for result in (written["score"], written["trajectory"]["evaluation_result"]):
        jsonschema.validate(result, json.loads(schema))
        (step,) = result["step_outputs"]
        assert step_of_the_proposal.model_validate(step).terminated is False
        assert "final_control_plane_info" not in result


def test_the_unified_score_function_serves_both_cases() -> None:
    # The block goes on to call a model; its first part stands alone.
    first_part = blocks()["004", 0].split("\n# EVALUATION")[0].rsplit("\n#", 1)[0]
    score_fn = run(
        first_part, extract_final_answer=lambda trajectory: trajectory.messages[-1].text
    )["score_fn"]

    multi = sample(asked("2+2?"), said("5"), ground_truth="4")
    single = models.Sample(prompt=[asked("2+2?"), said("4")], ground_truth="4")

    assert score_fn(multi).reward == 0.0
    assert score_fn(single).reward == 1.0


def test_the_evaluation_example_runs_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # The block goes on to train; its parts stand alone up to there.
    parts = blocks()["004", 0].split("\n# TRAINING")[0].rsplit("\n#", 1)[0]
    calculate = {"id": "1", "name": "calculate", "arguments": {"expression": "5+3"}}
    namespace: dict[str, Any] = {
        "__name__": __name__,
        "Message": models.Message,
        "CalculatorEnvironment": rollout.CalculatorEnvironment,
        "extract_final_answer": lambda trajectory: trajectory.messages[-1].text,
        "dataset": [{"question": "What is 5 + 3?", "answer": "8"}],
        "my_endpoint": models.Endpoint(
            provider="mock",
            model="script",
            extra_params={
                "by": "turn",
                "replies": [{"role": "assistant", "tool_calls": [calculate]}, "8"],
            },
        ),
    }
    code = compile(parts, "<seed>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)

    asyncio.run(eval(code, namespace))

    report = namespace["report"]
    assert report.samples[0].trajectory.steps == 2
    assert report.samples[0].score.metrics["correct"].score == 1.0
    assert report.samples[0].reward == report.samples[0].score.reward == 1.0


def test_the_training_example_runs_with_a_model_and_rows_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Room for four characters of an answer: a hundred steps are a matter of seconds.
    small = character_model("2467*?", hidden=8, layers=1, context=8)
    for part in (small.model, small.tokenizer):
        part.save_pretrained(tmp_path / "Qwen" / "Qwen3-0.6B")
    elided = '[{"messages": [...], "answer": "42"}, ...]'
    example = seed_part("TRAINING")
    assert example.count(elided) == 1
    names = {
        **run(seed_part("SCORE FUNCTION"), extract_final_answer=last_words),
        "BasicEnvironment": rollout.BasicEnvironment,
        "rows": [{"messages": [{"role": "user", "content": "6*7?"}], "answer": "42"}],
    }

    asyncio.run(awaited(example.replace(elided, "rows"), names))

    results = names["results"]
    assert len(results.steps) == 100
    assert all((step.rollouts, step.valid) == (64, 64) for step in results.steps)
    assert any(step.updated for step in results.steps)


def test_the_sft_trace_example_runs_with_a_model_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tiny_model(tmp_path, "qwen3")
    endpoint = models.Endpoint(
        provider="local", model=str(folder), max_tokens=4, extra_params={"threads": 1}
    )
    names = {
        "__name__": __name__,
        "CalculatorEnvironment": rollout.CalculatorEnvironment,
        "endpoint": endpoint,
        "tokenizer": tiny_tokenizer("qwen3"),
    }

    asyncio.run(awaited(seed_part("SFT TRACE GENERATION"), names))

    made = names["sample"]
    (call,) = made.trajectory.calls
    assert made.tokens == [*call.prompt_ids, *call.completion_ids]
    assert made.loss_mask == [0.0] * len(call.prompt_ids) + [1.0] * len(call.completion_ids)


def seed_part(title: str) -> str:
    """The code below one of the headings of the first block."""
    _, *parts = re.split(r"# ═+\n", blocks()["004", 0])
    (found,) = (
        code
        for head, code in zip(parts[::2], parts[1::2], strict=True)
        if head.startswith(f"# {title}")
    )
    return found


def last_words(trajectory: models.Trajectory) -> str:
    return trajectory.messages[-1].text


async def awaited(part: str, names: dict[str, Any]) -> None:
    code = compile(part, "<seed>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    pending = eval(code, names)
    if pending is not None:
        await pending


def test_the_unified_sample_has_the_fields_of_the_proposal() -> None:
    proposed = run(blocks()["004", 1])["Sample"]

    offered = set(models.Sample.model_fields) | {"reward"}
    assert set(proposed.__annotations__) <= offered
    filled = models.Sample(prompt=[asked("hi"), said("ho")])
    trajectory = SimpleNamespace(messages=filled.messages)
    assert proposed(trajectory=trajectory).response == filled.response


def test_an_evaluation_reports_samples_and_has_no_other_type_for_them(tmp_path: Path) -> None:
    note = blocks()["004", 2]
    assert "DELETE EvalSample" in note
    assert "returns EvalReport with samples: list[Sample]" in note
    config = evaluation.EvalConfig(score_fn=lambda sample: models.Score(score=1.0))

    report = asyncio.run(
        evaluation.evaluate([{"question": "2+2?"}], config, store=tmp_path / "runs.db")
    )

    assert type(report) is evaluation.EvalReport
    assert [type(each) for each in report.samples] == [models.Sample]
    assert not hasattr(evaluation, "EvalSample")


@pytest.mark.parametrize(("block", "name"), [(3, "Message"), (5, "AgentSession")])
def test_the_types_of_the_second_phase_have_the_fields_of_the_proposal(
    block: int, name: str
) -> None:
    proposed = run(blocks()["004", block])[name]

    ours = getattr(models, name)
    assert proposed is not ours
    assert set() < set(proposed.__annotations__) <= set(ours.model_fields)


@pytest.mark.parametrize("method", ["to_dict", "from_dict"])
def test_an_endpoint_is_written_and_read_with_the_arguments_of_the_proposal(method: str) -> None:
    proposed = run(blocks()["004", 4])["Endpoint"]

    assert proposed is not models.Endpoint
    asked_for = positional(getattr(proposed, method))
    assert asked_for
    assert positional(getattr(models.Endpoint, method)) == asked_for


def positional(method: Callable[..., Any]) -> list[tuple[str, Any]]:
    """The parameters that may be given by position, with their defaults."""
    return [
        (each.name, each.default)
        for each in inspect.signature(method).parameters.values()
        if each.kind is each.POSITIONAL_OR_KEYWORD
    ]


@pytest.mark.parametrize(("block", "name"), [(0, "EvaluationProfile"), (1, "SuccessCriterion")])
def test_the_manifest_types_have_the_fields_and_defaults_of_the_specification(
    block: int, name: str
) -> None:
    ours = getattr(manifest, name)
    proposed = run(
        blocks()["003", block],
        CoReasonBaseModel=pydantic.BaseModel,
        SuccessCriterion=manifest.SuccessCriterion,
    )[name]

    assert set(proposed.model_fields) <= set(ours.model_fields)
    given = {"name": "a", "description": "b", "threshold": 0.9, "grading_rubric": []}
    given |= dict.fromkeys(("expected_latency_ms", "golden_dataset_uri", "evaluator_model"))
    theirs = proposed.model_validate({key: given[key] for key in given if key in ours.model_fields})
    read = ours.model_validate(theirs.model_dump())
    assert {
        key: getattr(read, key) for key in proposed.model_fields if key != "grading_rubric"
    } == {key: getattr(theirs, key) for key in proposed.model_fields if key != "grading_rubric"}


def test_the_manifest_of_the_specification_is_loaded_and_read_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.yaml").write_text(blocks("yaml")["003", 0], "utf-8")

    names = run(blocks()["003", 2])

    assert capsys.readouterr().out == (
        "Testing against: s3://coreason-datasets/finance-qa-v1.json\n"
        " - factuality: Target 0.99\n"
        " - conciseness: Target 0.8\n"
    )
    assert type(names["agent"]) is names["AgentDefinition"] is manifest.AgentDefinition
    (tmp_path / "again.yaml").write_text(names["manifest"].dump(), "utf-8")
    assert manifest.Manifest.load("again.yaml") == names["manifest"]


@pytest.fixture
def environment_server() -> Iterator[None]:
    """A real environment server at the address that the block names."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", 8000))
        except OSError:
            pytest.skip("port 8000, which the block names, is taken")
    command = ("-m", "assay", "env", "serve", "served_environments:Counting", "--port", "8000")
    support = Path(__file__).parent / "support"
    server = subprocess.Popen([sys.executable, *command], cwd=support, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        server.terminate()
        server.wait(30)


CONFTEST = """
import builtins
import assay.compat

assay.compat.install()
builtins.calculate_accuracy = lambda messages, expected: float(messages[-1].text == expected)
"""


def test_the_evaluation_of_the_proposal_runs_in_pytest_as_written(
    tmp_path: Path, environment_server: None
) -> None:
    (tmp_path / "test_seed.py").write_text(blocks()["001", 0], "utf-8")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "path" / "to").mkdir(parents=True)
    answers = {"right": "4", "wrong": "5"}
    (tmp_path / "path" / "to" / "dataset.jsonl").write_text(
        "".join(
            json.dumps(
                {
                    "id": name,
                    "messages": [
                        {"role": "user", "content": "2+2?"},
                        {"role": "assistant", "content": answer},
                    ],
                    "ground_truth": "4",
                    "level": 1,
                }
            )
            + "\n"
            for name, answer in answers.items()
        )
    )

    session = run_session(tmp_path)

    assert session.status == 0, session.output
    assert session.tests["test_math_accuracy"]["score"] == 0.5
    assert session.tests["test_math_accuracy"]["config"]["env_url"] == "http://localhost:8000/mcp/"
    right, wrong = session.rows("::test_math_accuracy")
    assert (right.ground_truth, right.reward, wrong.reward) == ("4", 1.0, 0.0)
    assert right.evaluation_result is not None
    assert right.evaluation_result.reason == "Mathematical accuracy evaluation"
    assert right.evaluation_result.metrics["accuracy"].reason == "Direct comparison"
