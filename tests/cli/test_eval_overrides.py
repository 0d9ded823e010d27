"""Options over the file's configuration."""

from argparse import ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any

import pytest

from assay.cli.arguments import parse_count, parse_dollars, parse_seconds
from assay.cli.eval_overrides import (
    override_config,
    parse_failure_limit,
    read_resume_options,
    replace_model,
)
from assay.errors import ConfigError
from assay.providers import ClientSettings, parse_model
from assay.runner import EvalConfig, Resume, RunLimits
from assay.types import Endpoint

NONE = dict.fromkeys(("model", "max_samples", "repeats", "concurrency", "seed", "name"))


def given(**options: Any) -> Namespace:
    return Namespace(**{**NONE, **options})


def config(**fields: Any) -> EvalConfig:
    return EvalConfig(score_fn=lambda sample: 1.0, **fields)


def test_without_options_the_configuration_stays() -> None:
    own = config(repeats=3, seed=4)

    assert override_config(own, given()) == own


def test_an_agent_gets_its_turns_and_workspace_by_options(tmp_path: Path) -> None:
    options = given(max_turns=7, workspace=str(tmp_path), setup="true", check="false")

    changed = override_config(config(agent="cmd:cat"), options)

    assert changed.limits.max_turns == 7
    assert (changed.workspace, changed.setup, changed.check) == (tmp_path, "true", "false")


def test_each_option_replaces_what_the_file_says() -> None:
    own = config(client=ClientSettings(max_retries=1))

    changed = override_config(own, given(max_samples=2, repeats=3, concurrency=4, seed=0, name="n"))

    assert (changed.max_samples, changed.repeats, changed.seed, changed.name) == (2, 3, 0, "n")
    assert (changed.concurrency, changed.client) == (
        4,
        ClientSettings(concurrency=4, max_retries=1),
    )


def test_another_model_keeps_the_sampling_settings() -> None:
    own = Endpoint(provider="openai", model="a", temperature=0.5, max_tokens=9, seed=3)

    changed = override_config(config(endpoint=own), given(model="mock:echo")).endpoint

    assert changed == Endpoint(provider="mock", model="echo", temperature=0.5, max_tokens=9, seed=3)


def test_a_model_is_given_where_the_file_has_none() -> None:
    changed = override_config(config(), given(model="mock:echo"))

    assert changed.endpoint == Endpoint(provider="mock", model="echo")


SECRET = Endpoint(
    provider="openai",
    model="a",
    api_base="http://one/v1",
    api_key="canary",
    headers={"X-Key": "canary"},
    extra_params={"canary": 1},
    custom="canary",
)


@pytest.mark.parametrize("model", ["openai:b@http://two/v1", "anthropic:b", "mock:echo"])
def test_no_key_goes_to_another_server(model: str) -> None:
    changed = replace_model(SECRET, parse_model(model))

    assert "canary" not in str(changed.to_dict(exclude_secrets=False))


def test_another_model_of_the_same_server_is_asked_with_its_key() -> None:
    changed = replace_model(SECRET, parse_model("openai:b"))

    assert changed == SECRET.model_copy(update={"model": "b"})


def test_the_run_to_resume_comes_with_what_may_differ() -> None:
    plain = {"allow_changed_dataset": False, "take_over": False}

    assert read_resume_options(Namespace(resume=None, **plain)) is None
    assert read_resume_options(Namespace(resume="r", **plain)) == Resume("r")
    both = Namespace(resume="r", allow_changed_dataset=True, take_over=True)
    assert read_resume_options(both) == Resume("r", allow_changed_dataset=True, take_over=True)
    assert read_resume_options(Namespace(resume="r", rescore=True, **plain)) == Resume(
        "r", rescore=True
    )


@pytest.mark.parametrize("option", ["allow_changed_dataset", "take_over", "rescore"])
def test_options_of_a_resumed_run_need_one(option: str) -> None:
    args = {"resume": None, "allow_changed_dataset": False, "take_over": False, option: True}

    with pytest.raises(ConfigError, match="has no effect without --resume"):
        read_resume_options(Namespace(**args))


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "", "x", "1_0"])
def test_a_count_is_1_or_more(text: str) -> None:
    assert parse_count("12") == 12

    with pytest.raises(ArgumentTypeError):
        parse_count(text)


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "", "x"])
def test_seconds_are_0_or_more(text: str) -> None:
    assert (parse_seconds("0"), parse_seconds("1.5")) == (0.0, 1.5)

    with pytest.raises(ArgumentTypeError):
        parse_seconds(text)


def test_plain_http_is_allowed_for_whichever_model_is_asked() -> None:
    own = Endpoint(provider="openai", model="m", api_base="http://gpu-box/v1")
    mine = config(endpoint=own)

    asked = [
        override_config(mine, given(allow_plain_http=True)),
        override_config(mine, given(allow_plain_http=True, model="openai:m@http://other/v1")),
        override_config(mine, given(allow_plain_http=False)),
    ]

    assert [each.endpoint and each.endpoint.allow_plain_http for each in asked] == [
        True,
        True,
        None,
    ]


def test_a_key_is_read_from_the_variable_that_is_named() -> None:
    own = Endpoint(provider="openai", model="a", api_key="k-old", oauth_token="")

    changed = override_config(config(endpoint=own), given(key_env="MY_KEY")).endpoint

    assert changed is not None
    assert (changed.key_env, changed.api_key) == ("MY_KEY", "")


def test_a_key_without_an_endpoint_is_refused() -> None:
    with pytest.raises(ConfigError, match="--key-env has no effect"):
        override_config(config(), given(key_env="MY_KEY"))


def test_the_limits_of_a_run_replace_those_of_the_file() -> None:
    changed = override_config(config(fail_on_error=3), given(fail_on_error=0.1, max_cost_usd=2.0))

    assert (changed.fail_on_error, changed.max_cost_usd) == (0.1, 2.0)


def test_each_limit_of_the_whole_run_replaces_that_of_the_file() -> None:
    before = config(run_limits=RunLimits(max_turns=5, max_tokens=10))
    options = given(max_run_turns=7, max_run_seconds=1.5, max_run_cost_usd=2.0)

    expected = RunLimits(max_turns=7, max_tokens=10, max_seconds=1.5, max_cost_usd=2.0)
    assert override_config(before, options).run_limits == expected
    assert override_config(before, given()).run_limits == before.run_limits


@pytest.mark.parametrize(("text", "value"), [("0.1", 0.1), ("5", 5), ("true", True)])
def test_failures_are_a_share_or_a_count(text: str, value: float) -> None:
    found = parse_failure_limit(text)

    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "eval.py", "nan"])
def test_other_limits_of_failures_are_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="neither a share between 0 and 1 nor a count"):
        parse_failure_limit(text)


@pytest.mark.parametrize("text", ["0", "-1", "x", "inf"])
def test_other_limits_of_costs_are_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="not an amount of US dollars"):
        parse_dollars(text)
