"""Trainings of the model behind an agent of any kind: what it learns from, and what is refused."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from assay.agents import RunContext
from assay.errors import ConfigError, DatasetError, TokenError
from assay.runner import EvalConfig, evaluate
from assay.store import Store
from assay.train import GRPOConfig, GRPOResult, TrainingSession, grpo_train, tokenize_sample
from assay.types import Sample
from lamps import numbers, same, share_of_a, weights
from model_apis import ModelApi
from word_models import word_model

SCRIPT = Path(__file__).parents[2] / "examples" / "train" / "second_look.sh"
PROMPTS = [{"id": "1", "prompt": "say a"}, {"id": "2", "prompt": "say a again"}]
WORDS = ("a", "b", "c", "aa")

# A service in another language. It asks in Anthropic's API, first for a title.
SERVICE = """
const server = require("http").createServer(async (request, response) => {
  let text = "";
  for await (const part of request) text += part;
  const {prompt, url, key} = JSON.parse(text);
  const ask = async (body) => {
    const answer = await fetch(url + "/messages", {
      method: "POST",
      headers: {"x-api-key": key, "content-type": "application/json"},
      body: JSON.stringify({model: "any", max_tokens: 50, ...body}),
    });
    return (await answer.json()).content.map((block) => block.text).join("");
  };
  const messages = [{role: "user", content: prompt}];
  await ask({system: "You are a title generator.", messages});
  const answer = await ask({messages});
  response.end(JSON.stringify({answer}));
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
"""


def post(context: RunContext, messages: list[dict[str, str]], **settings: Any) -> str:
    assert context.base_url is not None
    request = Request(
        f"{context.base_url}/chat/completions",
        json.dumps({"model": "any", "messages": messages, **settings}).encode(),
        {"Authorization": f"Bearer {context.api_key}", "Content-Type": "application/json"},
    )
    with urlopen(request) as response:
        return str(json.load(response)["choices"][0]["message"]["content"] or "")


def ask(sample: Sample, context: RunContext) -> str:
    """Sends a seed, as some agents always do."""
    return post(context, [{"role": "user", "content": context.messages[0].text}], seed=1)


def ask_in_branches(sample: Sample, context: RunContext) -> str:
    """A title, a turn, another answer to it, and one after a summary."""
    question = {"role": "user", "content": context.messages[0].text}
    post(context, [{"role": "system", "content": "You are a title generator."}, question])
    first = post(context, [question])
    post(context, [question])
    more = {"role": "user", "content": "Create a detailed summary of our conversation."}
    summary = post(context, [question, {"role": "assistant", "content": first}, more])
    return post(context, [{"role": "user", "content": f"before: {summary}"}])


def ask_every_second_time(sample: Sample, context: RunContext) -> str:
    return ask(sample, context) if context.repeat % 2 else "b"


def train(folder: Path, agent: Any, **fields: Any) -> GRPOResult:
    settings: dict[str, Any] = {"num_steps": 1, "prompts_per_step": 2, "group_size": 4}
    config = GRPOConfig(
        model_name="letters",
        output=folder / "out",
        max_tokens=4,
        learning_rate=1e-2,
        **{**settings, **fields},
    )
    return grpo_train(
        config,
        PROMPTS,
        share_of_a,
        agent=agent,
        model=word_model(WORDS, seed=1, bias=6.0),
        session=TrainingSession(store=folder / "store.db"),
    )


class WorkspaceReader:
    """An agent that works in a folder, as coding agents do."""

    name = identity = "reader"
    needs_workspace = True

    async def run(self, sample: Sample, context: RunContext) -> Any:
        assert context.workspace is not None
        text = (context.workspace / "task.txt").read_text("utf-8")
        return await asyncio.to_thread(post, context, [{"role": "user", "content": text}])


def train_reader(folder: Path, path: str) -> GRPOResult:
    return grpo_train(
        GRPOConfig(
            model_name="letters",
            output=folder / "out",
            max_tokens=4,
            num_steps=1,
            prompts_per_step=1,
            group_size=2,
        ),
        [{"id": "1", "prompt": "read task.txt", "files": {path: "say a"}}],
        share_of_a,
        agent=WorkspaceReader(),
        model=word_model(WORDS, seed=1, bias=6.0),
        session=TrainingSession(store=folder / "store.db"),
    )


def test_an_agent_with_a_workspace_has_the_files_of_its_row(tmp_path: Path) -> None:
    result = train_reader(tmp_path, "task.txt")

    for sample in recorded(tmp_path, result):
        assert sample.failure is None
        assert sample.trajectory is not None
        assert "say a" in [message.text for message in sample.trajectory.messages]


def test_a_row_with_a_file_outside_of_the_workspace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="outside"):
        train_reader(tmp_path, "../task.txt")


def recorded(folder: Path, result: GRPOResult) -> list[Sample]:
    with Store.open(folder / "store.db") as store:
        return list(store.run(result.run_id).samples())


def count_sampled(samples: list[Sample], *purposes: str) -> int:
    calls = [call for each in samples if each.trajectory for call in each.trajectory.calls]
    return sum(len(call.completion_ids or ()) for call in calls if call.purpose in purposes)


@contextmanager
def serve_with_node() -> Iterator[str]:
    """The address of a service, with the request that tells it where its model is."""
    if shutil.which("node") is None:
        pytest.skip("needs node")
    program = [shutil.which("node") or "", "-e", SERVICE]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            body = {"prompt": "{prompt}", "url": "{base_url}", "key": "{api_key}"}
            yield f"http://127.0.0.1:{port}/ask#answer=answer&request={quote(json.dumps(body))}"
        finally:
            process.kill()


def test_a_shell_script_is_trained_the_same_to_the_bit_each_time(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    agent = f"cmd:sh {SCRIPT}"

    one, other = (train(tmp_path / name, agent, num_steps=2) for name in ("one", "other"))

    assert numbers(one.steps) == numbers(other.steps)
    assert same(weights(one.model), weights(other.model))
    assert [(step.valid, step.failed, step.turns) for step in one.steps] == [(8, {}, 2.0)] * 2
    samples = recorded(tmp_path / "one", one)
    assert sum(step.trained_tokens for step in one.steps) == count_sampled(samples, "turn")
    assert all(each.trajectory and each.trajectory.calls[0].wire for each in samples)
    for step in one.steps:
        assert step.importance_weight == pytest.approx(1.0, abs=1e-4)


def test_a_service_in_another_language_is_trained(tmp_path: Path) -> None:
    with serve_with_node() as agent:
        result = train(tmp_path, agent)

    (step,) = result.steps
    samples = recorded(tmp_path, result)
    assert (step.valid, step.failed, step.updated) == (8, {}, True)
    assert step.trained_tokens == count_sampled(samples, "turn")
    assert count_sampled(samples, "title") > 0


def test_each_token_of_a_turn_is_trained_once_over_all_branches(tmp_path: Path) -> None:
    result = train(tmp_path, ask_in_branches)

    (step,) = result.steps
    samples = recorded(tmp_path, result)
    assert (step.valid, step.turns) == (8, 3.0)
    assert step.trained_tokens == count_sampled(samples, "turn")
    assert count_sampled(samples, "title", "summary") > 0
    assert all(len(tokenize_sample(each)) == 3 for each in samples)


def test_the_seed_of_an_agent_does_not_make_the_rollouts_of_a_group_equal(tmp_path: Path) -> None:
    result = train(tmp_path, ask)

    assert len({each.response for each in recorded(tmp_path, result)}) > 2


def test_rollouts_without_a_call_are_left_out_of_the_loss(tmp_path: Path) -> None:
    result = train(tmp_path, ask_every_second_time)

    (step,) = result.steps
    assert (step.valid, step.trained_rollouts) == (8, 4)


@pytest.mark.parametrize("zero_variance", ["keep", "drop"])
def test_an_agent_that_calls_another_model_is_refused_before_an_update(
    zero_variance: str, tmp_path: Path
) -> None:
    with pytest.raises(TokenError, match="answered in none of the 8 rollouts") as refused:
        train(tmp_path, "cmd:cat", zero_variance=zero_variance)

    assert "OPENAI_BASE_URL" in str(refused.value)
    assert (tmp_path / "out" / "metrics.jsonl").read_text("utf-8") == ""


@pytest.mark.parametrize(
    "agent", ["http://127.0.0.1:1/ask", "mock:echo", lambda sample: "no context"]
)
def test_an_agent_that_cannot_call_the_policy_is_refused_at_once(
    agent: Any, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="does not call the model that is trained"):
        train(tmp_path, agent)

    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("ids", [True, False])
def test_a_server_is_trained_on_only_if_it_returns_token_ids(ids: bool, tmp_path: Path) -> None:
    async def scenario() -> Sample:
        async with ModelApi() as api:
            api.token_ids = ids
            endpoint = api.endpoint(extra_params={"return_token_ids": True, "logprobs": True})
            config = EvalConfig(agent=ask, endpoint=endpoint, score_fn=share_of_a)
            report = await evaluate(PROMPTS[:1], config, store=tmp_path / "store.db")
            return next(iter(report.samples))

    sample = asyncio.run(scenario())

    if not ids:
        with pytest.raises(TokenError, match="sample 1, call 1: the engine returned no `prompt_"):
            tokenize_sample(sample)
        return
    (made,) = tokenize_sample(sample)
    assert made.tokens[-1] == 1001
    assert made.loss_mask == [0.0, 1.0]


def test_usage_that_a_program_reports_is_not_another_call(tmp_path: Path) -> None:
    program = tmp_path / "agent.py"
    program.write_text(
        "import json, os, urllib.request as u\n"
        "body = json.dumps({'model': 'm', 'messages': [{'role': 'user', 'content': 'say a'}]})\n"
        "headers = {'Authorization': 'Bearer ' + os.environ['OPENAI_API_KEY'],\n"
        "           'Content-Type': 'application/json'}\n"
        "url = os.environ['OPENAI_BASE_URL'] + '/chat/completions'\n"
        "print(u.urlopen(u.Request(url, body.encode(), headers)).read().decode())\n",
        "utf-8",
    )

    result = train(tmp_path, f"cmd:{sys.executable} {program}", prompts_per_step=1, group_size=2)

    assert [
        len(each.trajectory.calls) for each in recorded(tmp_path, result) if each.trajectory
    ] == [
        1,
        1,
    ]
