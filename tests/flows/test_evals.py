"""`examples/evals`: each ready evaluation scores right work as right, and nothing else."""

import base64
import csv
import hashlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from assay.cli.ready_evals import find_own_evals
from assay.datasets import load_samples
from assay.errors import BadRow
from assay.runner import expect_endpoint
from assay.scorers import import_file
from assay.types import Message, Sample, Trajectory
from coding_agent_runs import find_program, run_commands
from commands import call_main

FILES = find_own_evals()


def load(name: str) -> ModuleType:
    with expect_endpoint():
        return import_file(FILES[name])


def rows(name: str) -> list[dict[str, Any]]:
    lines = FILES[name].with_suffix(".jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def evaluate(folder: Path, *words: str) -> tuple[float, int]:
    """Run an evaluation; return its mean score and the number of its samples."""
    done = call_main(folder, "eval", *words, "--json", "--quiet")

    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)["summary"]
    return summary["score"]["interval"]["mean"], summary["judged_samples"]


SOLVER = """
import json
from pathlib import Path

ROWS = [json.loads(line) for line in Path({file!r}).read_text("utf-8").splitlines()]
FORMS = ["#### {{}}", "The answer is **${{}}**.", "So it is {{}} km.", r"\\boxed{{{{{{}}}}}}"]


def solve(sample):
    number, row = next(
        pair for pair in enumerate(ROWS) if pair[1]["question"] == sample["question"]
    )
    answer = row["answer"].rpartition("#### ")[2]
    return f"First {{number + 3}}, then 7. " + FORMS[number % 4].format(answer)


def guess(sample):
    return "#### 1"


def fix(sample, context):
    row = next(each for each in ROWS if each["id"] == sample.id)
    for name, text in row["solution"].items():
        (context.workspace / name).write_text(text)
    return "done"


def cheat(sample, context):
    (context.workspace / "test_task.py").write_text("")
    return "all tests pass"
"""


def write_solver(folder: Path, name: str) -> None:
    (folder / "solver.py").write_text(SOLVER.format(file=str(FILES[name].with_suffix(".jsonl"))))


def test_gsm8k_reads_the_answer_in_every_form(tmp_path: Path) -> None:
    write_solver(tmp_path, "gsm8k")

    report = evaluate(tmp_path, "gsm8k", "--agent", "solver.py:solve")

    assert report == (1.0, 15)


def test_gsm8k_scores_other_numbers_as_wrong(tmp_path: Path) -> None:
    write_solver(tmp_path, "gsm8k")

    words = ["--max-samples", "4", "--repeats", "2", "--seed", "1"]
    report = evaluate(tmp_path, "gsm8k", "--agent", "solver.py:guess", *words)

    assert report == (0.0, 4)


def test_gsm8k_reads_a_split_of_a_dataset_folder(tmp_path: Path) -> None:
    import datasets  # type: ignore[import-not-found, unused-ignore]  # takes seconds to import

    write_solver(tmp_path, "gsm8k")
    splits = {
        name: datasets.Dataset.from_list(
            [{"question": f"{name}?", "answer": f"1 + 1\n#### {each}"}]
        )
        for name, each in {"train": 1, "test": 2}.items()
    }
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "public"))
    words = ["gsm8k", "--agent", "solver.py:guess", "--dataset", "public", "--split"]

    assert evaluate(tmp_path, *words, "train") == (1.0, 1)
    assert evaluate(tmp_path, *words, "test") == (0.0, 1)


def encrypt_as_published(text: str, canary: str) -> str:
    """Encrypt as the publishers describe it, byte by byte, independently of the example."""
    data, key = text.encode(), hashlib.sha256(canary.encode()).digest()
    mixed = [data[index] ^ key[index % len(key)] for index in range(len(data))]
    return base64.b64encode(bytes(mixed)).decode()


@pytest.mark.parametrize("text", ["", "Poland", "Ørsted\n" * 40, "x" * 32, "x" * 33])
def test_browsecomp_decrypts_the_published_form(text: str) -> None:
    example = load("browsecomp")
    published = encrypt_as_published(text, "canary:1")

    assert example.decrypt(published, "canary:1") == text
    assert example.encrypt(text, "canary:1") == published


def test_browsecomp_reads_a_published_file(tmp_path: Path) -> None:
    with (tmp_path / "browse_comp_test_set.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["problem", "answer", "problem_topic", "canary"])
        for number in range(3):
            key = f"canary:{number}"
            texts = (encrypt_as_published(each, key) for each in (f"Who, {number}?", "Nora"))
            writer.writerow([*texts, "Art", key])
    (tmp_path / "agent.py").write_text(
        "def answer(sample):\n"
        "    assert sorted(sample.input) == ['problem', 'problem_topic']\n"
        "    assert sample['problem'].startswith('Who, ')\n"
        "    assert 'Exact answer:' in sample.messages[-1].text\n"
        "    return 'Confidence: 70%\\nExact answer: nora.'\n"
    )

    words = ["--agent", "agent.py:answer", "--dataset", "browse_comp_test_set.csv"]
    report = evaluate(tmp_path, "browsecomp", *words)

    assert report == (1.0, 3)


def test_browsecomp_refuses_a_row_with_another_canary() -> None:
    row = {
        "problem": encrypt_as_published("Who painted the largest of them, and when?", "a"),
        "answer": encrypt_as_published("Nora", "a"),
        "canary": "b",
    }

    with pytest.raises(BadRow, match="not encrypted with the `canary` of its row"):
        list(load_samples([row], adapter=load("browsecomp").adapter))


def test_browsecomp_is_graded_by_a_judge(tmp_path: Path) -> None:
    grade = {"criteria": {"correct": {"reason": "Same person.", "evidence": [], "score": 1}}}
    judge = {
        "provider": "mock",
        "model": "script",
        "extra_params": {"replies": [json.dumps(grade)]},
    }
    (tmp_path / "judge.json").write_text(json.dumps(judge))
    (tmp_path / "agent.py").write_text("def answer(sample):\n    return 'The metal of Curie'\n")

    words = ["--agent", "agent.py:answer", "--judge", "judge.json", "--max-samples", "1"]
    report = evaluate(tmp_path, "browsecomp", *words)

    assert report == (1.0, 1)
    assert load("browsecomp").rubric.reference


def test_the_sample_of_browsecomp_is_not_in_plain_text() -> None:
    text = FILES["browsecomp"].with_suffix(".csv").read_text()

    assert not any(word in text for word in ("Polonium", "Which", "What"))


TOOLS = [
    {
        "name": "book",
        "description": "Book a room.",
        "parameters": {
            "city": {"type": "str", "description": "The city."},
            "nights": {"type": "int, optional", "default": 1},
            "tags": {"type": "List[str], optional"},
            "beds": {"type": "Tuple[int, int]", "required": False},
        },
    },
    {"name": "pay", "parameters": {"type": "object", "properties": {"now": {"type": "boolean"}}}},
]
EXPECTED = [{"name": "book", "arguments": {"city": "Oslo"}}, {"name": "pay", "arguments": {}}]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": name, "name": name, "arguments": arguments}


CALLS: dict[str, tuple[list[dict[str, Any]], float, float]] = {
    "as expected": ([call("book", city="Oslo"), call("pay")], 1.0, 1.0),
    "in another order": ([call("pay"), call("book", city="Oslo")], 1.0, 1.0),
    "with a default": ([call("book", city="Oslo", nights=1), call("pay")], 1.0, 1.0),
    "in another case": ([call("book", city=" oslo"), call("pay")], 1.0, 1.0),
    "another argument": ([call("book", city="Rome"), call("pay")], 0.0, 1.0),
    "an argument more": ([call("book", city="Oslo", nights=2), call("pay")], 0.0, 1.0),
    "a call too few": ([call("book", city="Oslo")], 0.0, 0.0),
    "a call too many": ([call("book", city="Oslo"), call("pay"), call("pay")], 0.0, 0.0),
    "another tool": ([call("book", city="Oslo"), call("cancel")], 0.0, 0.0),
    "no call": ([], 0.0, 0.0),
}


def build_tool_sample(calls: list[dict[str, Any]]) -> Sample:
    row = {"query": "?", "tools": json.dumps(TOOLS), "answers": json.dumps(EXPECTED)}
    (sample,) = load_samples([row], adapter=load("tool_calls").adapter)
    # One call in each message: in how many messages they are made does not count.
    made = [Message(role="assistant", tool_calls=[each]) for each in calls]
    answer = Message(role="assistant", content="Done.")
    sample.trajectory = Trajectory(messages=[*sample.messages, *made, answer])
    return sample


@pytest.mark.parametrize(("calls", "score", "tools"), CALLS.values(), ids=CALLS)
def test_tool_calls_are_compared_as_a_set(
    calls: list[dict[str, Any]], score: float, tools: float
) -> None:
    result = load("tool_calls").score_fn(build_tool_sample(calls))

    assert (result.score, result.metrics["tools"].score) == (score, tools), result.reason


def test_a_call_with_broken_arguments_is_not_the_expected_one() -> None:
    broken = {"id": "2", "function": {"name": "pay", "arguments": "{not json"}}

    result = load("tool_calls").score_fn(build_tool_sample([call("book", city="Oslo"), broken]))

    assert result.score == 0.0
    assert "not expected pay(='{not json')" in str(result.reason)


def test_true_is_not_one_for_a_tool() -> None:
    score = load("tool_calls")._normalize_value

    assert score(True) != score(1)
    assert score(1) == score(1.0)


def test_the_types_of_tools_become_a_schema() -> None:
    schema = build_tool_sample([])["tools"][0]["parameters"]

    assert schema["required"] == ["city"]
    assert schema["properties"]["nights"] == {"type": "integer", "default": 1}
    assert schema["properties"]["tags"]["type"] == "array"
    assert schema["properties"]["beds"] == {"type": "array"}


def test_a_model_is_offered_the_tools_and_may_call_one_after_the_other(tmp_path: Path) -> None:
    first = rows("tool_calls")[0]
    (expected,) = json.loads(first["answers"])
    call = {"id": "1", "name": expected["name"], "arguments": expected["arguments"]}
    replies = [{"role": "assistant", "tool_calls": [call]}, "It will rain."]
    (tmp_path / "models.py").write_text(
        "from assay.types import Endpoint\n"
        "scripted = Endpoint(provider='mock', model='script', "
        f"extra_params={{'replies': {replies!r}}})\n"
    )

    report = evaluate(tmp_path, "tool_calls", "--agent", "models.py:scripted", "--max-samples", "1")

    assert report == (1.0, 1)


@pytest.mark.parametrize(("agent", "mean"), [("fix", 1.0), ("cheat", 0.0)])
def test_the_check_of_fix_tests_decides(tmp_path: Path, agent: str, mean: float) -> None:
    write_solver(tmp_path, "fix_tests")

    report = evaluate(tmp_path, "fix_tests", "--agent", f"solver.py:{agent}")

    assert report == (mean, 10)


def test_a_model_alone_cannot_fix_tests(tmp_path: Path) -> None:
    done = call_main(tmp_path, "eval", "fix_tests", "--agent", "mock:echo")

    assert done.returncode == 2
    assert "`check` needs an agent that works in a folder, which a model alone does" in done.stderr
    assert "such as claude-code or cmd:COMMAND" in done.stderr


@pytest.mark.slow
def test_the_real_claude_code_fixes_the_first_program(tmp_path: Path) -> None:
    if find_program("claude-code") is None:
        pytest.skip("claude-code is not installed: `make .npm-agents/.installed`")
    model = "--model anthropic:claude-sonnet-4-5"

    # The scripted model runs the one command that repairs the cart.
    command = f"$ assay eval fix_tests --agent claude-code {model} --max-samples 1 --quiet"
    output = run_commands([command], tmp_path)

    assert "score         1.000" in output


def test_fix_tests_reads_rows_of_humanevalfix(tmp_path: Path) -> None:
    row = {
        "task_id": "Python/0",
        "declaration": "def double(number):\n",
        "buggy_solution": "    return number + number + number\n",
        "canonical_solution": "    return 2 * number\n",
        "entry_point": "double",
        "example_test": "assert double(0) == 0\n",
        "test": "def check(double):\n    assert double(2) == 4\n\ncheck(double)\n",
    }
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    words = ["fix_tests", "--dataset", "rows.jsonl", "--agent"]

    fixed = evaluate(tmp_path, *words, "cmd:sed -i 's/ + number$//' solution.py")
    unchanged = evaluate(tmp_path, *words, "cmd:python3 test_task.py")

    assert (fixed, unchanged) == ((1.0, 1), (0.0, 1))


def test_a_program_that_never_ends_fails(tmp_path: Path) -> None:
    code = FILES["fix_tests"].read_text("utf-8")
    (tmp_path / "fix_quickly.py").write_text(code.replace("SECONDS = 60", "SECONDS = 1"))
    row = {
        "question": "Repair it.",
        "files": {"solution.py": "def wait():\n    while True:\n        pass\n"},
        "check_files": {"test_task.py": "from solution import wait\n\nwait()\n"},
    }
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")

    words = ["fix_quickly.py", "--dataset", "rows.jsonl", "--agent", "cmd:true"]
    report = evaluate(tmp_path, *words)

    assert report == (0.0, 1)
    (sample,) = json.loads(call_main(tmp_path, "show", "latest", "--json").stdout)["samples"]
    assert "Timeout (0:00:01)!" in sample["reason"]
