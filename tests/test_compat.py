"""Code written for other packages, run unchanged under `compat.install()`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay import compat, evaluation_test
from assay import types as models
from assay.runner import EvalReport
from assay.scorers import reward_function
from assay.types.manifest import Manifest
from manifest_files import written

FOREIGN = ("coreason_manifest", "eval_protocol", "rollouts")


@pytest.fixture(autouse=True)
def no_trace_is_left() -> Iterator[None]:
    forget()
    yield
    forget()


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in FOREIGN]:
        del sys.modules[name]


def run(code: str) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(compile(code, "<user code>", "exec"), names)
    return names


def test_the_names_are_assays_own_classes() -> None:
    assert compat.install() == FOREIGN

    names = run(
        "from eval_protocol.models import EvaluationRow, EvaluateResult, MetricResult\n"
        "from rollouts import Sample, Score, Metric\n"
        "from rollouts.training.types import Status\n"
        "import rollouts.dtypes"
    )

    assert names["EvaluationRow"] is names["Sample"] is models.Sample
    assert names["EvaluateResult"] is names["Score"] is models.EvaluateResult
    assert names["MetricResult"] is names["Metric"] is models.Metric
    assert names["Status"] is models.Status


def test_trajectories_and_reports_are_answered_where_proposals_import_them() -> None:
    compat.install()

    names = run(
        "from eval_protocol.mcp.types import Trajectory\n"
        "from rollouts import EvalReport\n"
        "from rollouts.evaluation import EvalReport as second\n"
    )

    assert names["Trajectory"] is models.Trajectory
    assert names["EvalReport"] is names["second"] is EvalReport


def test_evaluations_are_answered_under_each_name_they_had() -> None:
    compat.install()

    names = run(
        "from eval_protocol import evaluation_test, reward_function\n"
        "from eval_protocol.pytest import evaluation_test as second\n"
        "from eval_protocol.pytest_utils import evaluation_test as third\n"
        "@reward_function\n"
        "def judge(messages): return 0.5\n"
    )

    assert names["evaluation_test"] is names["second"] is names["third"] is evaluation_test
    assert names["reward_function"] is reward_function
    judge = names["judge"]
    assert callable(judge)
    assert judge([]).score == 0.5


def test_a_manifest_is_loaded_under_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compat.install()
    monkeypatch.chdir(written(tmp_path).parent)

    names = run(
        "from coreason_manifest import AgentDefinition, EvaluationProfile, Manifest\n"
        "from coreason_manifest import SuccessCriterion\n"
        "manifest = Manifest.load('agent.yaml')\n"
        "teller = manifest.definitions['teller']\n"
        "assert isinstance(teller, AgentDefinition)\n"
        "profile = EvaluationProfile(grading_rubric=[\n"
        "    SuccessCriterion(name='a', description='b', threshold=0.9)])\n"
        "seen = [criterion.name for criterion in teller.evaluation.grading_rubric]\n"
    )

    assert names["seen"] == ["accuracy", "politeness"]
    assert names["Manifest"] is Manifest


def test_every_name_that_is_offered_is_there() -> None:
    compat.install()

    for name in [name for name in sys.modules if name.partition(".")[0] in FOREIGN]:
        assert run(f"from {name} import *").keys() >= set(sys.modules[name].__all__)


def test_installing_twice_changes_nothing() -> None:
    compat.install()
    first = sys.modules["rollouts"]

    assert compat.install() == FOREIGN
    assert sys.modules["rollouts"] is first


def test_a_name_assay_does_not_have_is_an_import_error() -> None:
    compat.install()

    with pytest.raises(ImportError, match=r"assay does not support `rollouts\.no_such_thing`"):
        run("from rollouts import no_such_thing")
    with pytest.raises(AttributeError, match=r"does not support `rollouts\.no_such_thing`"):
        run("import rollouts\nrollouts.no_such_thing")
    assert run("import rollouts\nfound = hasattr(rollouts, 'no_such_thing')")["found"] is False


@pytest.mark.parametrize(
    "name",
    [
        "eval_protocol.load_jsonl",
        "eval_protocol.rewards",
        "eval_protocol.models.ErrorInfo",
        "eval_protocol.models.Status",
        "eval_protocol.pytest.RemoteRolloutProcessor",
        "eval_protocol.pytest.types.ServerMode",
    ],
)
def test_a_name_of_eval_protocol_that_is_not_supported_is_refused_by_name(name: str) -> None:
    compat.install()
    module, _, attribute = name.rpartition(".")

    with pytest.raises(ImportError, match=f"assay does not support `{name}`; install the package"):
        run(f"from {module} import {attribute}")


def test_retry_settings_are_answered_under_each_name_they_had() -> None:
    compat.install()

    names = run(
        "from eval_protocol.pytest import BackoffConfig, ExceptionHandlerConfig\n"
        "from eval_protocol.pytest.exception_config import ExceptionHandlerConfig as second\n"
        "from eval_protocol.pytest.exception_config import DEFAULT_RETRYABLE_EXCEPTIONS\n"
        "config = ExceptionHandlerConfig(backoff_config=BackoffConfig(max_tries=5))\n"
        "same = config.retryable_exceptions == DEFAULT_RETRYABLE_EXCEPTIONS\n"
    )

    assert names["ExceptionHandlerConfig"] is names["second"]
    assert names["same"]


def test_a_state_of_an_agent_is_refused_with_what_replaces_it() -> None:
    compat.install()

    with pytest.raises(ImportError, match=r"`rollouts\.AgentState`; `run_agent` takes a client"):
        run("from rollouts import AgentState")


def test_the_real_package_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts" / "__init__.py").write_text("Sample = 'the real one'\n")
    monkeypatch.syspath_prepend(tmp_path)

    assert compat.install() == ("coreason_manifest", "eval_protocol")
    assert run("from rollouts import Sample")["Sample"] == "the real one"


def test_a_folder_with_the_name_of_a_package_is_not_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rollouts").mkdir()
    monkeypatch.syspath_prepend(tmp_path)

    assert "rollouts" in compat.install()


def test_a_module_without_a_stand_in_is_refused_by_name() -> None:
    compat.install()

    with pytest.raises(ModuleNotFoundError, match=r"not support `eval_protocol\.rewards`; install"):
        run("import eval_protocol.rewards")


def test_a_decorator_and_the_module_that_it_is_in_share_a_name() -> None:
    compat.install()

    names = run(
        "from eval_protocol.pytest.evaluation_test import evaluation_test as first\n"
        "from eval_protocol.pytest import evaluation_test as second, default_dataset_adapter\n"
        "from eval_protocol.pytest.default_dataset_adapter import default_dataset_adapter as same\n"
    )

    assert names["first"] is names["second"] is evaluation_test
    assert names["default_dataset_adapter"] is names["same"]


def test_the_imports_of_eval_protocols_benchmarks_are_answered() -> None:
    compat.install()

    names = run(
        "from eval_protocol.models import ChatCompletionContentPartParam, InputMetadata\n"
        "from eval_protocol.models import ChatCompletionContentPartTextParam as Part, Message\n"
        "from eval_protocol.pytest import AgentRolloutProcessor, NoOpRolloutProcessor\n"
        "from eval_protocol.pytest.default_mcp_gym_rollout_processor import "
        "MCPGymRolloutProcessor\n"
        "from eval_protocol.pytest.default_single_turn_rollout_process import "
        "SingleTurnRolloutProcessor\n"
        "from eval_protocol.pytest.rollout_processor import RolloutProcessor\n"
        "from eval_protocol.pytest.types import RolloutProcessorConfig\n"
        "message = Message(role='user', content=[Part(text='a'), {'type': 'text', 'text': 'b'}])\n"
        "parts = [part.text for part in message.content if isinstance(part, Part)]\n"
        "def join(content: str | list[ChatCompletionContentPartParam] | None) -> str: ...\n"
    )

    assert names["parts"] == ["a", "b"]


def test_the_modules_of_rollouts_are_answered() -> None:
    compat.install()

    names = run(
        "from rollouts.evaluation import EvalConfig, EvalReport, evaluate\n"
        "from rollouts.agents import run_agent\n"
        "from rollouts.store import AgentSession, Endpoint, Message\n"
        "from rollouts.training.agent_integration import agent_rollout_to_sample\n"
        "from rollouts.training.types import Sample, Score, Status, Trajectory\n"
    )

    assert names["AgentSession"] is models.AgentSession


def test_without_installing_the_names_are_not_answered() -> None:
    with pytest.raises(ModuleNotFoundError):
        run("import eval_protocol")


def test_a_score_function_serves_a_conversation_and_a_single_turn() -> None:
    compat.install()
    names = run(
        "from rollouts import Metric, Sample, Score\n"
        "def score_fn(sample: Sample) -> Score:\n"
        "    if sample.trajectory:\n"
        "        answer = sample.trajectory.messages[-1].content\n"
        "    else:\n"
        "        answer = sample.response\n"
        "    right = answer.strip() == sample.ground_truth\n"
        "    return Score(metrics=(Metric('correct', float(right), weight=1.0),))\n"
    )
    score_fn = names["score_fn"]
    assert callable(score_fn)
    asked, said = (
        models.Message(role="user", content="2+2?"),
        models.Message(role="assistant", content=" 4 "),
    )

    single = models.Sample(prompt=[asked, said], ground_truth="4")
    multi = models.Sample(trajectory=models.Trajectory(messages=[asked, said]), ground_truth="5")

    assert score_fn(single).reward == 1.0
    assert score_fn(multi).reward == 0.0


def test_the_steps_of_an_episode_become_one_result_on_the_trajectory() -> None:
    compat.install()

    names = run(
        "from eval_protocol.models import EvaluateResult, StepOutput\n"
        "from rollouts import Trajectory\n"
        "trajectory = Trajectory(termination_reason='control_plane_signal')\n"
        "outputs = []\n"
        "for step, (reward, ended) in enumerate([(0.0, False), (1.0, True)]):\n"
        "    outputs.append(StepOutput(step_index=step, base_reward=reward, terminated=ended,\n"
        "        control_plane_info={'reward': reward}, metrics={'tool_calls': ['move']}))\n"
        "trajectory.evaluation_result = EvaluateResult(score=1.0, step_outputs=outputs,\n"
        "    final_control_plane_info=outputs[-1].control_plane_info,\n"
        "    reason=trajectory.termination_reason)\n"
    )
    trajectory = names["trajectory"]
    assert isinstance(trajectory, models.Trajectory)

    assert models.Sample(trajectory=trajectory).is_trajectory_evaluation()
    assert models.Trajectory.from_json(trajectory.to_json()) == trajectory
