"""Test files in the shapes of eval-protocol's own benchmarks, run unchanged as whole sessions."""

import json
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from evaluation_sessions import Session, call_pytest
from misbehaving import Exchange, MisbehavingServer
from started import Started

SUPPORT = Path(__file__).parents[1] / "support"

REAL = ("test_aime25.py", "test_gpqa.py", "test_frozen_lake.py")


def find_real_files() -> list[Path]:
    """The benchmarks of the real package; none where it is not installed."""
    spec = find_spec("eval_protocol")
    if spec is None or spec.origin is None:
        return []
    return [Path(spec.origin).parent / "benchmarks" / name for name in REAL]


CONFTEST = """
import assay.compat

assay.compat.install()
"""

MATHS = r"""
from typing import Any, Dict, List

from eval_protocol.models import (
    ChatCompletionContentPartParam,
    ChatCompletionContentPartTextParam,
    EvaluateResult,
    EvaluationRow,
    Message,
    MetricResult,
)
from eval_protocol.pytest.default_single_turn_rollout_process import SingleTurnRolloutProcessor
from eval_protocol.pytest.evaluation_test import evaluation_test

def text_of(content: str | list[ChatCompletionContentPartParam] | None) -> str:
    if isinstance(content, list):
        return "".join(
            part.text for part in content if isinstance(part, ChatCompletionContentPartTextParam)
        )
    return str(content or "")

def sums(rows: List[Dict[str, Any]]) -> List[EvaluationRow]:
    return [
        EvaluationRow(
            messages=[
                Message(role="system", content="You add."),
                Message(role="user", content=str(row["question"])),
            ],
            ground_truth=str(row["answer"]),
        )
        for row in rows
    ]

@evaluation_test(
    input_dataset=["sums.jsonl", "ADDRESS/more.jsonl"],
    dataset_adapter=sums,
    completion_params=[
        {"max_tokens": 131000, "extra_body": {"reasoning_effort": "low"},
         "model": "fireworks_ai/accounts/fireworks/models/gpt-oss-120b"}
    ],
    rollout_processor=SingleTurnRolloutProcessor(),
    aggregation_method="mean",
    passed_threshold=0.6,
    num_runs=1,
    max_concurrent_rollouts=16,
    mode="pointwise",
)
def test_sums(row: EvaluationRow) -> EvaluationRow:
    said = [message for message in row.messages if message.role == "assistant"]
    right = text_of(said[-1].content if said else "") == row.ground_truth
    row.evaluation_result = EvaluateResult(
        score=float(right),
        reason="right" if right else "wrong",
        is_score_valid=True,
        metrics={"exact_match": MetricResult(
            score=float(right), is_score_valid=True, reason="compared", data={"by": "text"})},
    )
    return row
"""

CHOICES = """
import asyncio

from eval_protocol.models import EvaluateResult, EvaluationRow, Message
from eval_protocol.pytest.default_single_turn_rollout_process import SingleTurnRolloutProcessor
from eval_protocol.pytest.evaluation_test import evaluation_test
from eval_protocol.pytest.rollout_processor import RolloutProcessor
from eval_protocol.pytest.types import RolloutProcessorConfig

QUESTIONS = [[
    [Message(role="system", content="TRUTH:A"), Message(role="user", content=question)]
    for question in ("first", "second", "third")
]]

class TruthFromMessages(RolloutProcessor):
    def __init__(self):
        super().__init__()
        self.single_turn = SingleTurnRolloutProcessor()

    def __call__(
        self, rows: list[EvaluationRow], config: RolloutProcessorConfig
    ) -> list[asyncio.Task[EvaluationRow]]:
        for row in rows:
            row.ground_truth = row.messages[0].content.partition(":")[2]
            row.messages = row.messages[1:]
        return self.single_turn(rows, config)

@evaluation_test(
    input_messages=QUESTIONS,
    completion_params=[{"model": "openai/any"}],
    rollout_processor=TruthFromMessages(),
    passed_threshold=0.6,
    num_runs=3,
    max_dataset_rows=2,
    mode="pointwise",
)
def test_choices(row: EvaluationRow) -> EvaluationRow:
    said = row.last_assistant_message()
    assert [message.role for message in row.messages] == ["user", "assistant"]
    row.evaluation_result = EvaluateResult(score=float(said.content == row.ground_truth))
    return row
"""

CORRIDOR = """
from typing import Any, Dict, List

from eval_protocol.models import EvaluateResult, EvaluationRow, InputMetadata, Message
from eval_protocol.pytest import evaluation_test
from eval_protocol.pytest.default_mcp_gym_rollout_processor import MCPGymRolloutProcessor

def walks(data: List[Dict[str, Any]]) -> List[EvaluationRow]:
    return [
        EvaluationRow(
            messages=[Message(role="system", content=row["system_prompt"])],
            input_metadata=InputMetadata(
                row_id=row["id"],
                dataset_info={
                    "environment_context": row["environment_context"],
                    "user_prompt_template": row["user_prompt_template"],
                },
            ),
        )
        for row in data
    ]

@evaluation_test(
    input_dataset=["walks.jsonl"],
    dataset_adapter=walks,
    completion_params=[{"temperature": 0.0, "max_tokens": 4096, "model": "gpt-walker"}],
    rollout_processor=MCPGymRolloutProcessor(),
    passed_threshold=0.66,
    num_runs=2,
    max_concurrent_rollouts=3,
    mode="pointwise",
    server_script_path="eval_protocol/server.py",
    steps=5,
)
def test_walk(row: EvaluationRow) -> EvaluationRow:
    row.evaluation_result = EvaluateResult(score=row.get_total_reward(), reason="walked")
    return row

@evaluation_test(
    input_dataset=["walks.jsonl"],
    dataset_adapter=walks,
    completion_params=[{"model": "gpt-walker"}],
    rollout_processor=MCPGymRolloutProcessor(),
    server_script_path="foreign_server.py",
)
def test_foreign_server(row: EvaluationRow) -> EvaluationRow:
    return row
"""

OTHERS = """
from eval_protocol.models import EvaluateResult, EvaluationRow, Message
from eval_protocol.pytest import (
    AgentRolloutProcessor, NoOpRolloutProcessor, SingleTurnRolloutProcessor, evaluation_test
)

ROWS = [[
    EvaluationRow(messages=[
        Message(role="user", content=f"question {n}"), Message(role="assistant", content=f"{n}")
    ])
    for n in range(3)
]]

def score(row, value):
    row.evaluation_result = EvaluateResult(score=value)
    return row

@evaluation_test(
    input_rows=ROWS, rollout_processor=NoOpRolloutProcessor(), mode="all", passed_threshold=0.5
)
def test_all(rows: list[EvaluationRow]) -> list[EvaluationRow]:
    assert len(rows) == 3
    return [score(row, float(row.last_assistant_message().content != "0")) for row in rows]

@evaluation_test(
    input_rows=ROWS,
    completion_params=[
        {"model": "openai/each", "temperature": 0.5, "api_key": "sk-not-to-be-recorded"}
    ],
    mode="all",
    num_runs=2,
)
def test_each_run(rows: list[EvaluationRow]) -> list[EvaluationRow]:
    assert len(rows) == len({row.input_metadata.row_id for row in rows}) == 3
    asked = {"model": "openai/each", "temperature": 0.5}
    return [score(row, float(row.input_metadata.completion_params == asked)) for row in rows]

@evaluation_test(
    input_rows=ROWS,
    completion_params=[{"model": "openai/one"}, {"model": "openai/two"}],
    mode="groupwise",
    num_runs=2,
)
async def test_groups(rows: list[EvaluationRow]) -> list[EvaluationRow]:
    assert len({row.input_metadata.row_id for row in rows}) == 1
    models = [row.input_metadata.completion_params["model"] for row in rows]
    assert models == ["openai/one", "openai/two"]
    # The recorded answer is dropped, and the model asked for another one.
    return [score(row, float(row.messages[-1].content == "A")) for row in rows]

@evaluation_test(
    input_messages=[[[Message(role="user", content="add")]]],
    completion_params=[{"model": "openai/caller"}],
    rollout_processor=AgentRolloutProcessor(),
    mcp_config_path="mcp.json",
)
def test_agent(row: EvaluationRow) -> EvaluationRow:
    return score(row, float(row.messages[-1].content == "the tool said 5"))
"""


async def answer(exchange: Exchange) -> None:
    """Serve a dataset; add, choose, walk or call a tool, as the question asks for."""
    if exchange.call.path.endswith("more.jsonl"):
        line = {"question": "unknown", "answer": "3"}
        return await exchange.answer(200, json.dumps(line).encode())
    body = json.loads(exchange.call.body)
    names = [tool["function"]["name"] for tool in body.get("tools", ())]
    last = body["messages"][-1]
    if "move" in names:
        return await call(exchange, "move", direction="right")
    if "add" in names and last["role"] == "user":
        return await call(exchange, "add", first=2, second=3)
    if "add" in names:
        return await exchange.say(f"the tool said {last['content']}")
    return await exchange.say({"1 + 1": "2", "2 + 2": "4"}.get(last["content"], "A"))


async def call(exchange: Exchange, name: str, **arguments: object) -> None:
    function = {"name": name, "arguments": json.dumps(arguments)}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    await exchange.answer(200, {"model": "m", "choices": [choice]})


def write_lines(path: Path, *rows: object) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@dataclass(frozen=True)
class Ended:
    """A session, and what its model was asked."""

    session: Session
    asked: list[dict[str, Any]]

    def requests(self, model: str) -> list[dict[str, Any]]:
        return [body for body in self.asked if body["model"] == model]


def write_datasets(folder: Path) -> None:
    write_lines(
        folder / "sums.jsonl",
        {"question": "1 + 1", "answer": "2"},
        {"question": "2 + 2", "answer": "4"},
    )
    walk = {
        "system_prompt": "You walk.",
        "user_prompt_template": "Before you: {observation} Seed {seed}.",
    }
    write_lines(
        folder / "walks.jsonl",
        *({"id": f"walk_{n}", "environment_context": {"seed": n}, **walk} for n in (0, 7)),
    )


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    if find_real_files():
        pytest.skip("eval-protocol is installed, and is left alone")
    folder = tmp_path_factory.mktemp("files")
    (folder / "conftest.py").write_text(CONFTEST)
    write_datasets(folder)
    # A folder with the name of a package that is not installed is not the package.
    (folder / "eval_protocol").mkdir()
    shutil.copy(SUPPORT / "control_plane_server.py", folder / "eval_protocol" / "server.py")
    (folder / "foreign_server.py").write_text("from eval_protocol.mcp import McpGym\n")
    with MisbehavingServer(answer) as model, Started(SUPPORT / "mcp_sdk_server.py") as tools:
        servers = {"calculator": {"url": f"{tools.url}/mcp"}}
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        for name, text in (
            ("test_maths.py", MATHS.replace("ADDRESS", f"http://{model.host}")),
            ("test_choices.py", CHOICES),
            ("test_corridor.py", CORRIDOR),
            ("test_others.py", OTHERS),
        ):
            (folder / name).write_text(text, encoding="utf-8")
        session = call_pytest(folder, env={"EP_LLM_API_BASE": model.url})
        return Ended(session, [json.loads(call.body) for call in model.calls if call.body])


def test_a_single_turn_over_files_and_urls_is_scored_by_its_rows(ended: Ended) -> None:
    test = ended.session.tests["test_sums"]
    rows = ended.session.rows("test_sums")

    assert ended.session.outcomes["test_sums"] == "passed"
    assert (test["samples"], round(test["score"], 3)) == (3, 0.667)
    assert [row.ground_truth for row in rows] == ["2", "4", "3"]
    assert rows[0].score is not None
    assert rows[0].score.metrics["exact_match"].model_extra == {"data": {"by": "text"}}


def test_the_model_is_asked_with_the_completion_params(ended: Ended) -> None:
    first, *_ = ended.requests("accounts/fireworks/models/gpt-oss-120b")

    assert (first["max_tokens"], first["reasoning_effort"]) == (131000, "low")
    assert [message["role"] for message in first["messages"]] == ["system", "user"]


def test_a_custom_processor_prepares_rows_and_delegates(ended: Ended) -> None:
    rows = ended.session.rows("test_choices")

    assert ended.session.outcomes["test_choices"] == "passed"
    assert len(rows) == len(ended.requests("any")) == 6
    assert {row.ground_truth for row in rows} == {"A"}
    assert all(row.trajectory and row.trajectory.calls[0].usage for row in rows)


def test_a_gym_is_started_prompted_seeded_and_rewarded(ended: Ended) -> None:
    rows = ended.session.rows("test_walk")

    assert ended.session.outcomes["test_walk"] == "passed"
    assert [row.id for row in rows] == ["walk_0", "walk_0", "walk_7", "walk_7"]
    assert all(row.is_trajectory_evaluation() and row.reward == 1.5 for row in rows)
    prompts = [row.messages[1].text for row in rows]
    assert prompts[0] == prompts[1]
    assert prompts[2] == prompts[3]
    assert prompts[0].startswith("Before you: ")
    assert prompts[2].endswith(" Seed 7.")


def test_a_server_script_that_needs_the_real_package_is_refused(ended: Ended) -> None:
    assert ended.session.outcomes["test_foreign_server"] == "failure"
    assert "foreign_server.py: the server script imports `eval_protocol`" in ended.session.output


def test_rows_are_scored_as_they_are_in_one_call(ended: Ended) -> None:
    assert ended.session.outcomes["test_all"] == "passed"
    assert [row.reward for row in ended.session.rows("test_all")] == [0.0, 1.0, 1.0]


def test_each_run_is_judged_in_a_call_of_its_own(ended: Ended) -> None:
    rows = ended.session.rows("test_each_run")

    assert ended.session.outcomes["test_each_run"] == "passed", ended.session.output
    assert [row.reward for row in rows] == [1.0] * 6
    assert "sk-not-to-be-recorded" not in "".join(row.to_json() for row in rows)


def test_groups_have_one_row_of_each_model(ended: Ended) -> None:
    assert ended.session.outcomes["test_groups"] == "passed", ended.session.output
    assert len(ended.requests("one")) == len(ended.requests("two")) == 6
    # The recorded answer was dropped before the model was asked.
    assert all(len(body["messages"]) == 1 for body in ended.requests("one"))


def test_an_agent_calls_the_tools_of_the_configured_servers(ended: Ended) -> None:
    assert ended.session.outcomes["test_agent"] == "passed"
    assert len(ended.requests("caller")) == 2


@pytest.mark.skipif(bool(find_real_files()), reason="eval-protocol is installed")
def test_another_model_can_be_asked_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_choices.py").write_text(CHOICES)

    with MisbehavingServer(answer) as model:
        session = call_pytest(tmp_path, f"--assay-model=openai-compatible:other@{model.url}")
        asked = [json.loads(call.body)["model"] for call in model.calls]

    assert session.outcomes == {"test_choices": "passed"}
    assert asked == ["other"] * 6


WITHOUT_NETWORK = """
import csv, io, sys, types
from pathlib import Path
import assay.compat
from assay.pytest_plugin.eval_protocol import dataset

assay.compat._is_installed = lambda package: False
assay.compat.install()

dataset._URLS = ("no address is fetched",)
dataset.find_beside = lambda path, folder: Path(folder) / Path(path).name

def get(*_, **__):
    table = "Question,Correct Answer,Incorrect Answer 1\\nWhich?,this,that\\n"
    return types.SimpleNamespace(text=table, raise_for_status=lambda: None)

sys.modules["requests"] = types.SimpleNamespace(get=get)
"""


@pytest.mark.skipif(not find_real_files(), reason="eval-protocol is not installed")
def test_the_benchmarks_of_the_real_package_run(tmp_path: Path) -> None:
    for path in find_real_files():
        shutil.copy(path, tmp_path)
    (tmp_path / "conftest.py").write_text(WITHOUT_NETWORK)
    write_datasets(tmp_path)
    for name in ("aime2025-I.jsonl", "aime2025-II.jsonl"):
        write_lines(tmp_path / name, {"question": "1 + 1", "answer": "2"})
    shutil.copy(tmp_path / "walks.jsonl", tmp_path / "frozen_lake_dataset.jsonl")
    server = tmp_path / "eval_protocol" / "mcp_servers" / "frozen_lake" / "server.py"
    server.parent.mkdir(parents=True)
    shutil.copy(SUPPORT / "control_plane_server.py", server)

    with MisbehavingServer(answer) as model:
        session = call_pytest(tmp_path, env={"EP_LLM_API_BASE": model.url})

    assert session.outcomes == dict.fromkeys(
        ("test_aime25_pointwise", "test_gpqa_pointwise", "test_frozen_lake_evaluation"), "passed"
    ), session.output
