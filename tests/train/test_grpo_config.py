"""`GRPOConfig`: what it refuses, how the learning rate goes, and what a resume must find equal."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from assay.agents import Limits
from assay.errors import ConfigError
from assay.runner import RaySettings
from assay.train.grpo import grpo_train
from assay.train.grpo_config import GRPOConfig, build_server_endpoint
from assay.train.lora import Lora
from assay.train.training_session import TrainingSession
from assay.train.weight_updates import UploadWeights
from assay.types import Endpoint

URL = "http://127.0.0.1:8000/v1"


def endpoint(**fields: Any) -> Endpoint:
    return Endpoint(provider="local", model="folder", **fields)


def config(**fields: Any) -> GRPOConfig:
    return GRPOConfig(model_name="folder", **fields)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"num_step": 3}, "num_step"),
        ({"num_steps": 0}, "num_steps"),
        ({"group_size": 1}, "group_size"),
        ({"temperature": 0.0}, "temperature"),
        ({"loss_type": "ppo"}, "loss_type"),
        ({"importance_cap": 0.5}, "importance_cap"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"beta": -1}, "beta"),
        ({"backend": "vllm"}, "backend"),
        ({"lora": {"rank": 0}}, "rank"),
        ({"top_p": 0.9, "importance_cap": 2.0}, "set importance_cap=None"),
        ({"top_k": 20, "importance_cap": 2.0}, "with `top_k` .* set importance_cap=None"),
        ({"top_k": -1}, "top_k"),
        ({"endpoint": endpoint(temperature=0.0)}, "at temperature 0 .* set `temperature`"),
        ({"endpoint": endpoint(reasoning_effort="low")}, "`endpoint` has `reasoning_effort`"),
        ({"endpoint": endpoint(extra_params={"min_p": 0.1})}, "does not support: min_p"),
        ({"length_constant": 5}, "has no effect with loss_type='dapo'"),
        ({"warmup_steps": 5, "num_steps": 5, "schedule": "linear"}, "leave no step to decay in"),
        ({"max_staleness": 1}, "`max_staleness` has no effect without `server`"),
        ({"update_weights": UploadWeights()}, "`update_weights` has no effect without `server`"),
        ({"engine": "ray"}, "`engine` needs `server`: workers of Ray cannot ask the model in"),
        ({"server": URL, "max_staleness": -1}, "max_staleness"),
        ({"server": "anthropic:claude"}, "'anthropic' models do not answer OpenAI's chat"),
        ({"server": Endpoint(provider="vllm", model="m", top_p=0.5)}, "`server` has top_p: set"),
        ({"server": URL, "backend": "trl"}, "`server` has no effect with backend='trl'"),
        ({"server": URL, "tool_format": "hermes"}, "`tool_format` has no effect with `server`"),
        (
            {"server": URL, "max_staleness": 1, "top_p": 0.9},
            "need `importance_cap`, and no `top_p`",
        ),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_is_loaded(
    fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValidationError, match=problem):
        config(**fields)


@pytest.mark.parametrize(
    "cut",
    [
        {"top_p": 0.9},
        {"top_k": 20},
        {"endpoint": endpoint(top_p=0.9)},
        {"endpoint": endpoint(extra_params={"top_k": 20})},
    ],
)
def test_no_weights_are_made_from_a_cut_distribution(cut: dict[str, Any]) -> None:
    assert config(**cut).importance_cap is None
    assert config(**cut, importance_cap=None) == config(**cut)


def test_an_endpoint_is_named_by_a_model_string_and_a_stop_by_its_text() -> None:
    taken = config(endpoint="local:other", stop="x")

    assert taken.endpoint == Endpoint(provider="local", model="other")
    assert taken.stop == ("x",)
    with pytest.raises(ConfigError, match="a model string has the form `provider:model`"):
        config(endpoint="nothing-known")


def test_the_model_is_the_only_thing_that_must_be_said() -> None:
    with pytest.raises(ValidationError, match="model_name"):
        GRPOConfig()  # type: ignore[call-arg]

    assert GRPOConfig(model_name="folder").backend == "local"


def test_a_constant_rate_is_reached_after_the_warm_up() -> None:
    settings = config(learning_rate=4.0, warmup_steps=3, num_steps=6)

    assert [settings.learning_rate_at(step) for step in range(1, 7)] == [1, 2, 3, 4, 4, 4]


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_falling_rate_starts_whole_and_never_reaches_zero(schedule: str) -> None:
    settings = config(learning_rate=1.0, num_steps=10, schedule=schedule)
    rates = [settings.learning_rate_at(step) for step in range(1, 11)]

    assert rates[0] == 1.0
    assert rates == sorted(rates, reverse=True)
    assert 0 < rates[-1] < 0.2


@pytest.mark.parametrize(
    "fields",
    [
        {"output": Path("elsewhere")},
        {"num_steps": 7},
        {"checkpoint_every": 3},
        {"keep_checkpoints": 5},
        {"concurrency": 2},
        {"device": "cpu"},
        {"name": "other"},
        {"server": URL},
    ],
)
def test_what_decides_nothing_that_is_learned_may_change(fields: dict[str, Any]) -> None:
    assert config(**fields).describe() == config().describe()


@pytest.mark.parametrize(
    "fields",
    [
        {"seed": 1},
        {"learning_rate": 1e-3},
        {"group_size": 4},
        {"limits": Limits(max_turns=2)},
        {"lora": Lora()},
        {"loss_type": "grpo"},
        {"micro_batch_tokens": 100},
        {"server": URL, "max_staleness": 1},
    ],
)
def test_what_decides_what_is_learned_may_not(fields: dict[str, Any]) -> None:
    assert config(**fields).describe() != config().describe()


def test_the_number_of_steps_matters_where_the_rate_follows_it() -> None:
    short, long = (config(schedule="cosine", num_steps=steps) for steps in (10, 20))

    assert short.describe() != long.describe()


def test_the_description_is_plain_values() -> None:
    described = config(lora=Lora(target_modules=("q_proj",))).describe()

    assert described["lora"] == {"rank": 8, "alpha": 16.0, "target_modules": ["q_proj"]}
    assert "output" not in described


def test_the_description_keeps_the_key_of_recorded_trainings_for_the_time_limit() -> None:
    described = config(timeout_s=5.0).describe()

    assert described["rollout_timeout_s"] == 5.0
    assert "timeout_s" not in described


def test_the_settings_of_an_endpoint_are_taken_where_none_are_given_here() -> None:
    evaluated = endpoint(
        temperature=0.7,
        top_p=0.9,
        max_tokens=64,
        stop=("\n\n",),
        extra_params={
            "top_k": 20,
            "chat_template_kwargs": {"enable_thinking": False},
            "stop_token_ids": [3],
            "device": "cpu",
        },
    )

    taken = config(endpoint=evaluated, importance_cap=None, max_tokens=32)

    assert (taken.temperature, taken.top_p, taken.top_k) == (0.7, 0.9, 20)
    assert taken.max_tokens == 32
    assert (taken.stop, taken.stop_token_ids) == (("\n\n",), (3,))
    assert taken.chat_template_kwargs == {"enable_thinking": False}
    assert GRPOConfig.model_validate(dict(taken)) == taken


def test_the_model_of_an_endpoint_is_no_part_of_the_training() -> None:
    one = config(endpoint=endpoint(api_key="secret"))
    other = config(endpoint=Endpoint(provider="openai", model="gpt-5"))

    assert one.describe() == other.describe() == config().describe()
    assert "secret" not in one.model_dump_json()


def test_a_server_is_named_by_its_address_and_asked_with_the_settings_of_the_training() -> None:
    named = build_server_endpoint(config(server=URL, temperature=0.7, top_k=5, stop="x"))

    assert (named.provider, named.model, named.api_base) == ("vllm", "folder", URL)
    assert (named.temperature, named.top_p, named.max_tokens, named.stop) == (0.7, 1, 256, ("x",))
    assert named.extra_params == {"top_k": 5, "logprobs": True, "return_token_ids": True}


def test_an_engine_is_named_by_a_word_and_may_change_on_a_resume() -> None:
    spread = config(server=URL, engine="ray")

    assert spread.engine == RaySettings()
    assert spread.describe() == config(server=URL).describe()
    with pytest.raises(ConfigError, match="engine='dask' is unknown"):
        config(server=URL, engine="dask")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "`engine` needs `server`: workers of Ray cannot ask the model in this process"),
        ({"server": URL}, "Ray workers cannot record into a SQLite file"),
    ],
)
def test_a_training_that_ray_cannot_collect_is_refused_before_anything_is_loaded(
    fields: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    session = TrainingSession(store=tmp_path / "runs.db")

    with pytest.raises(ConfigError, match=problem):
        grpo_train(
            config(**fields), [{"prompt": "a"}], lambda sample: 1.0, engine="ray", session=session
        )

    assert list(tmp_path.iterdir()) == []


def test_a_server_may_have_another_name_for_the_model_and_a_key() -> None:
    server = Endpoint(provider="sglang", model="other", api_base=URL, api_key="sk-1234")

    named = build_server_endpoint(config(server=server))

    assert (named.provider, named.model, named.api_key) == ("sglang", "other", "sk-1234")
    assert config(server=f"vllm:other@{URL}").server == Endpoint(
        provider="vllm", model="other", api_base=URL
    )
    assert "sk-1234" not in repr(config(server=server))
    assert "sk-1234" not in str(config(server=server).describe())
