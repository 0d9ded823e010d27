"""`--shard`, `--run` and `--workers`: which go together, and what a shard prints."""

import json
from pathlib import Path

import pytest

from commands import call_main

EVALUATION = """
from assay.runner import EvalConfig
from assay.types import Endpoint


def score(sample):
    if sample.id == "bad":
        raise ValueError("no score")
    return True


def answer(sample):
    return "yes"


config = EvalConfig(endpoint=Endpoint(provider="mock", model="echo"), score_fn=score)
dataset = [{"id": each, "question": each} for each in ("a", "b", "c", "d", "bad")]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "evaluation.py").write_text(EVALUATION)
    return tmp_path


def test_shards_print_their_own_counts_and_status(folder: Path) -> None:
    done = [
        call_main(
            folder, "eval", "evaluation.py", "--run", "nightly", "--shard", f"{n}/2", "--json"
        )
        for n in (1, 2)
    ]

    found = [json.loads(each.stdout) for each in done]
    assert sorted(each.returncode for each in done) == [0, 3]
    assert sorted(each["failed"] for each in found) == [0, 1]
    assert [each["exit_status"] for each in found] == [each.returncode for each in done]
    assert (found[1]["run_status"], found[1]["recorded"], found[1]["total"]) == ("completed", 4, 5)
    broken = next(each for each in done if each.returncode == 3)
    assert "1 sample of this shard failed. Retry with:\n  assay eval evaluation.py" in broken.stderr
    assert "--run nightly --shard " in broken.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--shard", "1/2"], "--shard needs the id of the run"),
        (["--run", "x"], "--run has no effect without --shard or --workers"),
        (["--shard", "1/2", "--run", "x", "--workers", "2"], "--shard and --workers cannot"),
        (["--shard", "1/2", "--run", "x", "--resume"], "--shard and --resume cannot"),
        (["--shard", "3/2", "--run", "x"], "shard 3/2 does not exist"),
        (["--shard", "half", "--run", "x"], "'half' is not a shard"),
        (["--workers", "2", "--run", "x", "--resume", "y"], "--run and --resume both name a run"),
        (["--workers", "2", "--rescore", "--resume"], "--workers and --rescore cannot"),
        (["--workers", "2", "--take-over", "--resume"], "--workers and --take-over cannot"),
        (["--workers", "0"], "'0' is not a number of 1 or more"),
        (
            [
                "--shard",
                "1/2",
                "--run",
                "x",
                "--agent",
                "mock:echo",
                "--agent",
                "evaluation.py:answer",
            ],
            "--shard takes one agent and one prompt",
        ),
    ],
)
def test_options_that_do_not_fit_together_are_refused(
    words: list[str], message: str, folder: Path
) -> None:
    done = call_main(folder, "eval", "evaluation.py", *words)

    assert done.returncode == 2
    assert message in done.stderr
