"""Options that got the name of their setting in Python: both names work, one is listed."""

from argparse import Action, Namespace
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import pytest

import assay.cli
from assay.cli import main

RENAMED = [
    ("gate", "latest", "--threshold", "--min", "0.5"),
    ("eval", "e.py", "--grace-s", "--grace", "2"),
    ("score", "latest --scorer exact_answer", "--grace-s", "--grace", "2"),
    ("certify", "run m.yaml -o out", "--grace-s", "--grace", "2"),
    ("runs", "wait nightly", "--timeout-s", "--timeout", "3"),
    ("env", "serve calculator", "--idle-s", "--idle", "4"),
    ("train", "grpo t.py", "--num-steps", "--steps", "5"),
    ("train", "grpo t.py", "--grace-s", "--grace", "6"),
]


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Namespace]:
    """The arguments that commands were called with; their work is not done."""
    found: list[Namespace] = []

    def run(args: Namespace) -> int:
        found.append(args)
        return 0

    for name in {each[0] for each in RENAMED}:
        monkeypatch.setattr(import_module(f"assay.cli.{name}"), "main", run)
    return found


@pytest.mark.parametrize(("command", "words", "name", "former", "value"), RENAMED)
def test_the_former_name_of_an_option_means_the_same(
    command: str, words: str, name: str, former: str, value: str, parsed: list[Namespace]
) -> None:
    for spelling in (name, former):
        assert main([command, *words.split(), spelling, value]) == 0

    first, second = map(vars, parsed)
    assert first == second
    assert first[name.removeprefix("--").replace("-", "_")] == float(value)


@pytest.mark.parametrize("renamed", RENAMED)
def test_both_names_of_an_option_together_are_refused(
    renamed: tuple[str, ...], parsed: list[Namespace], capsys: pytest.CaptureFixture[str]
) -> None:
    command, words, name, former, value = renamed
    for pair in ((name, former), (former, name)):
        given = [word for spelling in pair for word in (spelling, value)]

        assert main([command, *words.split(), *given]) == 2

        text = f"argument {name}: {former} is the old name of this option; pass one of the two"
        assert text in capsys.readouterr().err
    assert parsed == []


@pytest.mark.parametrize("name", ["--threshold", "--min"])
def test_one_name_given_twice_is_refused_as_before(
    name: str, parsed: list[Namespace], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gate", "latest", name, "0.1", name, "0.2"]) == 2

    assert "argument --threshold: the option is given more than once" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["--num-steps", "--steps"])
def test_an_appended_option_of_a_training_still_overrides_the_first(
    name: str, parsed: list[Namespace]
) -> None:
    assert main(["train", "grpo", "t.py", name, "5", name, "7"]) == 0

    assert parsed[0].num_steps == 7


def test_no_help_and_no_suggestion_names_a_former_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command, words, name, former, _ in RENAMED:
        action = words.split()[:1] if command in ("certify", "runs", "env", "train") else []
        assert main([command, *action, "--help"]) == 0

        listed = capsys.readouterr().out.replace(",", " ").split()
        assert name in listed or f"[{name}" in listed
        assert not {former, f"[{former}"} & set(listed)

    assert main(["gate", "latest", "--minn", "0.5"]) == 2
    assert "--min?" not in capsys.readouterr().err


def test_every_option_of_a_time_has_its_unit_in_its_name() -> None:
    wrong = []
    for name in assay.cli.COMMANDS:
        parser = assay.cli._StoreOnceParser(prog=name)
        import_module(f"assay.cli.{name}").configure(parser)
        for action in _walk(parser._actions):
            spelled = action.option_strings[-1:]
            if action.metavar == "SECONDS" and not spelled[0].endswith(("-s", "-seconds")):
                wrong.append((name, *spelled))

    assert wrong == []


def _walk(actions: Iterable[Action]) -> Iterable[Action]:
    for action in actions:
        yield action
        choices: Any = action.choices
        if isinstance(choices, dict):
            for parser in choices.values():
                yield from _walk(parser._actions)
