"""The command that goes on with a run."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import pytest

import assay.cli.certify_run
import assay.cli.eval
import assay.cli.judge
import assay.cli.resume
from assay.cli.resume import build_resume_command, redact_option_value


def given(**options: Any) -> Namespace:
    none: dict[str, Any] = dict.fromkeys(
        ("model", "max_samples", "repeats", "concurrency", "seed", "name", "store")
    )
    return Namespace(file="my eval.py:fast", json=True, **{**none, **options})


def test_it_repeats_what_decides_the_run() -> None:
    args = given(model="mock:echo", max_samples=3, seed=0, name="first try")

    assert build_resume_command(args, "run-1") == (
        "assay eval 'my eval.py:fast' --model mock:echo --max-samples 3 --seed 0 "
        "--name 'first try' --resume run-1"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("openai:gpt@2", "openai:gpt@2"),
        ("runs/a@b.db", "runs/a@b.db"),
        ("openai:m@http://host/v1", "openai:m@http://host/v1"),
        ("openai:m@http://canary:p/ss@host/v1", "openai:m@http://***@host/v1"),
        ("openai:m@https://host/v1?key=canary", "openai:m@https://host/v1?***"),
        ("postgresql://me:canary@db/x?password=canary", "postgresql://***@db/x?***"),
        ("postgresql://me:canary and more@db/x?a=canary b", "postgresql://***@db/x?***"),
        ("postgresql://me:canary@and\nmore@db/x", "postgresql://***@db/x"),
        ("postgresql://db/x?password=canary@canary", "postgresql://***"),
        ("postgresql:/me:canary@db/x", "postgresql:/***@db/x"),
        ("postgres+psycopg:me:canary@db/x", "postgres+psycopg:***@db/x"),
    ],
)
def test_secrets_in_addresses_are_not_shown(text: str, shown: str) -> None:
    assert redact_option_value(text) == shown


def test_the_command_shows_no_password() -> None:
    args = given(model="openai:m@http://me:canary@h/v1", store="postgresql://me:canary@db/x")

    assert "canary" not in build_resume_command(args, "r")


def test_the_limits_of_the_run_and_its_key_are_repeated() -> None:
    args = given(fail_on_error=True, max_cost_usd=2.5, max_run_turns=7, key_env="MY_KEY")

    command = build_resume_command(args, "r")

    assert "--fail-on-error --max-cost-usd 2.5 --max-run-turns 7" in command
    assert "--key-env MY_KEY" in command


def test_each_option_of_an_evaluation_is_repeated_or_not_about_the_run() -> None:
    parser = ArgumentParser()
    assay.cli.eval.configure(parser)
    declared = {action.dest for action in parser._actions}

    left = declared - set(assay.cli.resume._EVAL_RESUME_OPTIONS)

    assert left == {
        *("help", "file", "bundle", "trust", "list"),  # the evaluation itself
        *("resume", "rescore", "take_over", "allow_changed_dataset"),  # how it is resumed
        *("shard", "run"),  # which name the run themselves
        *("json", "quiet", "grace_s"),
    }


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (assay.cli.eval, assay.cli.resume._EVAL_RESUME_OPTIONS),
        (assay.cli.judge, assay.cli.judge._JUDGE_RESUME_OPTIONS),
        (assay.cli.certify_run, assay.cli.certify_run._CERTIFY_RESUME_OPTIONS),
        (assay.cli.certify_run, assay.cli.certify_run._CERTIFY_RESUME_FLAGS),
    ],
)
def test_every_repeated_option_is_one_of_its_command(
    command: ModuleType, options: Iterable[str]
) -> None:
    parser = ArgumentParser()
    command.configure(parser)

    declared = {word for action in parser._actions for word in action.option_strings}

    assert {f"--{name.replace('_', '-')}" for name in options} <= declared
