"""The commands to run next: they work as they are pasted, and contain no password."""

import os
import subprocess
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import pytest

import assay.cli.certify_run
import assay.cli.check
import assay.cli.eval
import assay.cli.judge
import assay.cli.resume
from assay.cli.output import sanitize_lines
from assay.cli.resume import (
    build_next_command,
    build_resume_command,
    join_command,
    redact_option_value,
)

ADDRESS = "postgresql://me:canary@db/x?sslmode=require"


def run_in_shell(command: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command in bash, where `assay` prints its arguments, each ended by a NUL."""
    script = f"assay() {{ printf '%s\\0' \"$@\"; }}\n{command}"
    known = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        ["bash", "-c", script], env={**known, **environment}, capture_output=True, timeout=60
    )


def read_words(command: str, **environment: str) -> list[str]:
    ended = run_in_shell(command, **environment)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.decode("utf-8", "surrogatepass").split("\0")[:-1]


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_STORE", raising=False)


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
        (assay.cli.check, assay.cli.check._CHECK_RESUME_OPTIONS),
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


HOSTILE = [
    "a b",
    "it's",
    '$HOME `id` "x" \\\\',
    "!history",
    "*?[a]{b,c}",
    "#2",
    "~",
    "",
    "two\nlines\there",
    "esc\x1b[31m\x07 \x7f \x9b2J",
    "\u202eright to left\u2028",
    "漢字 e\u0301 \U0001f468\u200d\U0001f469",
    "a'\x00b".replace("\x00", "\x01") + "f",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_shell_reads_each_word_as_it_was(text: str) -> None:
    command = join_command(["assay", "show", text, "end"])

    assert read_words(command) == ["show", text, "end"]
    # So that the terminal shows the command as it is.
    assert sanitize_lines(command) == command
    assert "\n" not in command


def test_the_next_command_names_the_store() -> None:
    assert build_next_command(given(), "show", "a run") == "assay show 'a run'"
    assert build_next_command(given(store=""), "show", "r") == "assay show r"

    command = build_next_command(given(store="my store.db"), "show", "r", "-x")

    assert read_words(command) == ["show", "r", "--store", "my store.db", "--", "-x"]


@pytest.mark.parametrize(
    "address", ["postgresql://db/team", "postgresql://me@db:5432/team", "postgresql:///team"]
)
def test_an_address_without_a_secret_is_part_of_the_command(address: str) -> None:
    command = build_next_command(given(store=address), "show", "r")

    assert read_words(command) == ["show", "r", "--store", address]


@pytest.mark.parametrize(
    "address",
    [
        ADDRESS,
        "postgresql://me:canary@db/x",
        "postgresql://db/x?password=canary",
        "postgresql:/me:canary@db/x",
        "postgres+psycopg:me:canary@db/x",
    ],
)
def test_a_password_is_taken_from_the_variable_of_the_store(address: str) -> None:
    for command in (
        build_next_command(given(store=address), "show", "r"),
        build_resume_command(given(store=address), "r"),
    ):
        assert "canary" not in command
        words = read_words(command, ASSAY_STORE=address)
        assert words[words.index("--store") + 1] == address


def test_a_shell_without_the_variable_runs_nothing() -> None:
    ended = run_in_shell(build_next_command(given(store=ADDRESS), "show", "r"))

    assert ended.returncode != 0
    assert ended.stdout == b""
    assert b"ASSAY_STORE" in ended.stderr


def test_a_store_that_a_variable_names_is_named_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM_DATABASE", ADDRESS)
    command = build_next_command(given(store=ADDRESS), "show", "r")
    monkeypatch.setenv("ASSAY_STORE", ADDRESS)
    known = build_next_command(given(store=ADDRESS), "show", "r")

    assert "canary" not in command
    assert read_words(command, TEAM_DATABASE=ADDRESS) == ["show", "r", "--store", ADDRESS]
    assert known == "assay show r"


def test_values_that_start_with_a_dash_are_values() -> None:
    command = build_resume_command(given(name="-first", seed=-5), "r")

    assert read_words(command)[2:4] == ["--seed=-5", "--name=-first"]
