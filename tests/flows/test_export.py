"""`assay export`, whole: from an evaluation to files, and back again as samples."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.datasets import load_samples
from assay.export import FORMATS
from assay.formats.atif import from_atif
from assay.formats.eval_record import from_eval_record
from assay.formats.openenv_trace import from_openenv_trace
from assay.formats.sharegpt import from_sharegpt
from assay.formats.trl import from_trl
from assay.formats.vertex import from_vertex
from assay.types import EvaluateResult, Message, ModelCall, Sample, Trajectory
from commands import call_main, run_process
from evaluation_sessions import call_pytest
from make import answered, asked, called, said
from openai_rules import check_row

EVALUATION = """
from assay import Endpoint
from assay.runner import EvalConfig
from assay.environments import CalculatorEnvironment
from assay.scorers import exact_answer

call = {"id": "1", "name": "calculate", "arguments": {"expression": "2 + 3"}}
replies = [
    {"tool_calls": [call]},
    "5",
    {"tool_calls": [call]},
    "6",
]
config = EvalConfig(
    endpoint=Endpoint(
        provider="mock", model="script", extra_params={"replies": replies, "loop": True}
    ),
    environment=lambda sample: CalculatorEnvironment(),
    score_fn=exact_answer(),
    name="sums",
    repeats=2,
    concurrency=1,
)
dataset = [{"id": "sum", "question": "2 + 3?", "answer": "5"}]
"""
TOOLS = [{"name": "look", "parameters": {"type": "object", "properties": {}}}]


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run: a sum that was worked out twice, once wrongly."""
    path = tmp_path_factory.mktemp("export")
    (path / "sums.py").write_text(EVALUATION)
    done = call_main(path, "eval", "sums.py", "--quiet")
    assert done.returncode == 0, done.stderr
    return path


def test_a_run_becomes_an_sft_file_with_the_tools_that_the_model_was_told_of(folder: Path) -> None:
    done = run_process(
        folder, "export", "trl-sft", "latest", "-o", "sft.jsonl", "--min-score", "0.5"
    )

    (row,) = rows(folder / "sft.jsonl")
    assert (done.returncode, done.stderr) == (0, "left out      1 score too low\n")
    assert [each["role"] for each in row["completion"]] == ["assistant", "tool", "assistant"]
    (tool,) = json.loads(row["tools"])
    assert tool["function"]["name"] == "calculate"
    assert tool["function"]["parameters"]["required"] == ["expression"]


def test_a_run_becomes_a_preference(folder: Path) -> None:
    done = call_main(folder, "export", "trl-preference", "latest", "-o", "pairs.jsonl")

    (row,) = rows(folder / "pairs.jsonl")
    assert done.returncode == 0, done.stderr
    assert (row["chosen"][-1]["content"], row["rejected"][-1]["content"]) == ("5", "6")


def test_openai_takes_what_is_written_for_it(folder: Path) -> None:
    for kind in ("sft", "rft"):
        done = call_main(folder, "export", f"openai-{kind}", "latest", "-o", f"openai-{kind}.jsonl")
        assert done.returncode == 0, done.stderr
        for row in rows(folder / f"openai-{kind}.jsonl"):
            check_row(row, kind)


def test_a_file_that_is_there_is_kept(folder: Path) -> None:
    (folder / "there.jsonl").write_text("kept\n")

    done = call_main(folder, "export", "trl-sft", "latest", "-o", "there.jsonl")

    assert done.returncode == 2
    assert (folder / "there.jsonl").read_text() == "kept\n"


ENDLESS = """
import sys

import assay.cli.export as export
from assay.cli import main
from assay.cli.sample_input import SampleInput
from assay.types import EvaluateResult, Message, Sample, Trajectory


def samples():
    while True:
        talk = [Message(role="user", content="?"), Message(role="assistant", content="x")]
        trajectory = Trajectory(messages=talk)
        yield Sample(prompt="?", trajectory=trajectory, score=EvaluateResult(score=1.0))
        print("under way", flush=True)


export.open_sample_input = lambda args, stack: SampleInput("endless", samples())
sys.exit(main(["export", "trl-sft", "endless", "-o", "o.jsonl"]))
"""


def test_ctrl_c_leaves_nothing_half_written(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    started = subprocess.Popen(
        [sys.executable, "endless.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert started.stdout is not None
    started.stdout.readline()

    started.send_signal(signal.SIGINT)
    _, complaint = started.communicate(timeout=300)

    assert (started.returncode, complaint) == (130, b"interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == ["endless.py"]


def whole() -> list[Sample]:
    """Samples with everything that most formats can hold."""
    found = []
    for number in range(3):
        talk = [
            asked(f"where is {number}?"),
            said("I look.", called("look", "1", at=number), called("look", "2")),
            answered("north", "1").model_copy(update={"name": "look"}),
            answered("south", "2").model_copy(update={"name": "look"}),
            said(f"There: {number}."),
        ]
        calls = [
            ModelCall(
                prompt_ids=(1, 2), completion_ids=(3, 4), logprobs=(-0.5, -0.25), message_index=at
            )
            for at in (1, 4)
        ]
        found.append(
            Sample(
                id=f"s{number}",
                index=number,
                prompt=talk[:1],
                ground_truth="there",
                trajectory=Trajectory(messages=talk, calls=calls, terminated=True, tools=TOOLS),
                score=EvaluateResult(score=0.5, reason="fair"),
                status="completed",
            )
        )
    return found


def exported(form: str, folder: Path, given: list[Sample]) -> Path:
    (folder / "in.jsonl").write_text("".join(f"{each.to_json()}\n" for each in given))
    target = folder / f"{form}{'.parquet' if FORMATS[form].only_parquet else '.jsonl'}"
    assert main(["export", form, str(folder / "in.jsonl"), "-o", str(target)]) == 0
    return target


def words(messages: list[Message]) -> list[Any]:
    return [
        (message.role, message.text, [(call.name, call.arguments) for call in message.tool_calls])
        for message in messages
    ]


def test_assays_own_form_is_read_again_as_the_same_samples(tmp_path: Path) -> None:
    assert list(load_samples(exported("sample", tmp_path, whole()))) == whole()


def test_atif_is_read_again_as_the_same_samples(tmp_path: Path) -> None:
    path = exported("atif", tmp_path, whole())

    assert [from_atif(row) for row in rows(path)] == whole()


def test_other_formats_are_read_again_as_far_as_they_hold_a_sample(tmp_path: Path) -> None:
    given = whole()[:1]
    readers: dict[str, Any] = {
        "trl-sft": lambda row: from_trl(row)[0],
        "sharegpt": from_sharegpt,
        "vertex": from_vertex,
        "eval": from_eval_record,
    }
    for form, reader in readers.items():
        (row,) = rows(exported(form, tmp_path, given))

        assert words(reader(row).messages) == words(given[0].messages), form
    (trace,) = rows(exported("openenv", tmp_path, given))
    read = from_openenv_trace(trace)
    assert read.trajectory is not None
    assert [call.completion_ids for call in read.trajectory.calls] == [(3, 4), (3, 4)]


@pytest.mark.parametrize("form", ["trl-grpo", "openai-rft", "fireworks-rft", "verl", "skyrl"])
def test_prompts_are_read_again_as_a_dataset(tmp_path: Path, form: str) -> None:
    given = whole()

    read = list(load_samples(exported(form, tmp_path, given)))

    assert [words(each.messages) for each in read] == [words(each.messages[:1]) for each in given]
    assert [each.ground_truth for each in read] == ["there"] * 3


def test_the_summary_of_a_pytest_session_is_exported(tmp_path: Path) -> None:
    (tmp_path / "test_sums.py").write_text(
        "from assay.types import EvaluateResult\n"
        "from assay.pytest_plugin import evaluation_test\n"
        "ROWS = [{'id': 'a', 'messages': [{'role': 'user', 'content': '?'},\n"
        "         {'role': 'assistant', 'content': 'x'}]}]\n"
        "@evaluation_test(ROWS)\n"
        "def test_one(sample):\n"
        "    return EvaluateResult(score=1.0)\n"
        "@evaluation_test(ROWS)\n"
        "def test_two(sample):\n"
        "    return EvaluateResult(score=0.0)\n"
    )
    session = call_pytest(tmp_path, "--assay-summary=e.json")
    assert (tmp_path / "e.json").exists(), session.output

    done = call_main(tmp_path, "export", "trl-sft", "e.json", "-o", "o.jsonl", "--min-score", "1")

    assert done.returncode == 0, done.stderr
    assert "samples       2 read, 1 used" in done.stdout
