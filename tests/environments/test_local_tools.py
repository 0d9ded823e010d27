"""Rollouts with tools on models in this process: calls of every known format are answered."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from assay.agents import run_agent
from assay.environments import ToolEnvironment, tool
from assay.errors import ConfigError
from assay.providers.in_process import LocalClient
from assay.runner import EvalConfig, evaluate
from assay.store import Store
from assay.train.grpo import grpo_train
from assay.train.training_session import TrainingSession
from assay.types import Endpoint, Message, ToolCall, Trajectory
from lamps import PROMPTS, Lamp, lamp_config, lamp_model, looked_and_said
from make import asked
from saying import Saying
from tiny_models import tiny_model
from trl_templates import FORMATS, template, write_turn

SPECIAL = {
    "deepseek": ("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"),
    "gemma4": ("<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>"),
    "gpt-oss": ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|constrain|>"),
    "lfm2": ("<|tool_call_start|>", "<|tool_call_end|>"),
    "lfm2.5": ("<|tool_call_start|>", "<|tool_call_end|>"),
    "muse": ("<|start|>", "<|message|>", "<|eom|>", "<|eot|>"),
}
FOREIGN = (
    "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}"
    "{% for message in messages %}{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}CALL {{ call.function.name }}{% endfor %}"
    "{% endfor %}"
)
TOOLLESS = "{% for message in messages %}{{ message.content }}{% endfor %}"


class Desk(ToolEnvironment):
    """Knows where orders are."""

    @tool
    def lookup(self, order: str, copies: int = 1) -> str:
        """Find an order.

        Args:
            order: Which one.
            copies: How often.
        """
        return f"{order} in Oslo x{copies}"


def endpoint(**extra_params: Any) -> Endpoint:
    return Endpoint(provider="local", model="tiny", max_tokens=400, extra_params=extra_params)


def roll_out(local: Saying, **extra_params: Any) -> Trajectory:
    client = LocalClient(local, endpoint(**extra_params))
    return asyncio.run(run_agent(client, Desk(), [asked("Where is 007?")]))


def calls_lookup(name: str) -> str:
    call = ToolCall(id="a", name="lookup", arguments={"order": "007", "copies": 2})
    return write_turn(
        name, Message(role="assistant", content="", tool_calls=(call,)), Desk().tools
    )[1]


@pytest.mark.parametrize(("name", "style"), FORMATS.items())
def test_an_episode_goes_on_after_a_call_of_any_known_template(name: str, style: str) -> None:
    answer = write_turn(name, Message(role="assistant", content="Oslo."), ())[1]
    local = Saying(
        "qwen2.5",
        calls_lookup(name),
        answer,
        template=template(name),
        special=SPECIAL.get(style, ()),
    )

    happened = roll_out(local)

    assert [message.role for message in happened.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    called, result, last = happened.messages[1:]
    assert [(call.name, call.arguments) for call in called.tool_calls] == [
        ("lookup", {"order": "007", "copies": 2})
    ]
    assert result.text == "007 in Oslo x2"
    assert last.text == "Oslo."
    assert not called.text
    assert happened.calls[0].finish_reason == "tool_calls"


@pytest.mark.parametrize(
    "name", ["qwen3", "qwen3_5_think", "glm4moe", "gemma4_v5", "lfm2_v2", "gptoss"]
)
def test_a_call_with_arguments_that_cannot_be_read_is_answered_in_words(name: str) -> None:
    called = calls_lookup(name)
    broken = called.replace("007", "007</arg_value><parameter=x")
    for mark, worse in (("copies:2", "copies:{"), ("copies=2", "copies=?"), (": 2}", ": }")):
        broken = broken.replace(mark, worse)
    broken = broken.replace("</function>", "").replace("</arg_value>", "")
    answer = write_turn(name, Message(role="assistant", content="Sorry."), ())[1]
    special = SPECIAL.get(FORMATS[name], ())
    local = Saying("qwen2.5", broken, answer, template=template(name), special=special)

    happened = roll_out(local)

    first, result, last = happened.messages[1:]
    assert [(call.name, call.malformed) for call in first.tool_calls] == [("lookup", True)]
    assert "not a JSON object" in result.text
    assert last.text == "Sorry."


@pytest.mark.parametrize(
    ("source", "problem"),
    [(FOREIGN, "its format of tool calls is unknown"), (TOOLLESS, "it does not render tools")],
)
def test_an_unknown_template_is_refused_before_the_model_is_asked(
    source: str, problem: str
) -> None:
    local = Saying("qwen2.5", "hello", template=source)

    with pytest.raises(ConfigError, match=problem) as caught:
        roll_out(local)

    assert local.batches_seen == []
    assert "tool_format" in str(caught.value.hint)
    assert "'qwen3.5'" in str(caught.value.hint)


def test_a_format_given_by_name_reads_the_calls_of_an_unknown_template() -> None:
    local = Saying("qwen2.5", calls_lookup("qwen3_6"), "Oslo.", template=FOREIGN)

    happened = roll_out(local, tool_format="qwen3.5")

    assert happened.messages[2].text == "007 in Oslo x2"


def test_a_format_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigError, match="tool_format='xml' is not one of 'hermes'"):
        roll_out(Saying("qwen2.5"), tool_format="xml")


def test_an_evaluation_with_an_unknown_template_ends_before_its_first_rollout(
    tmp_path: Path,
) -> None:
    folder = tiny_model(tmp_path)
    (folder / "chat_template.jinja").write_text(FOREIGN)
    config = EvalConfig(
        name="desk",
        endpoint=Endpoint(provider="local", model=str(folder), max_tokens=4),
        score_fn=lambda sample: 1.0,
        environment=lambda sample: Desk(),
    )
    rows = [{"messages": [{"role": "user", "content": f"{n}?"}]} for n in range(3)]

    with pytest.raises(ConfigError, match="its format of tool calls is unknown"):
        asyncio.run(evaluate(rows, config, store=tmp_path / "store.db"))

    with Store.open(tmp_path / "store.db") as store:
        assert store.run().totals.recorded == 0


def test_a_training_with_an_unknown_template_ends_before_its_first_rollout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = lamp_model()
    model.tokenizer.chat_template = model.tokenizer.chat_template.replace("tool_call", "called")
    asked_for: list[int] = []
    monkeypatch.setattr(model, "generate", lambda *args, **options: asked_for.append(1))

    with pytest.raises(ConfigError, match="its format of tool calls is unknown"):
        grpo_train(
            lamp_config(tmp_path),
            PROMPTS,
            looked_and_said,
            Lamp,
            model=model,
            session=TrainingSession(store=tmp_path / "store.db"),
        )

    assert asked_for == []


def test_a_training_takes_a_format_by_name(tmp_path: Path) -> None:
    model = lamp_model()
    model.tokenizer.chat_template = model.tokenizer.chat_template.replace("tool_call", "called")
    config = lamp_config(tmp_path, tool_format="hermes", num_steps=1)

    session = TrainingSession(store=tmp_path / "store.db")

    result = grpo_train(config, PROMPTS, looked_and_said, Lamp, model=model, session=session)

    assert len(result.steps) == 1
