"""Which evaluations a command line comes to: dataset or file, agents, prompts, scorers."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.cli import main
from assay.store import Store

Words = Callable[..., int]

CSV = "id,question,topic,answer\na,Paris,city,Paris\nb,Rome,city,Rome\nc,four,number,4\n"
AGENTS = """
from assay.types import Endpoint

def answer(sample):
    return sample.input["topic"]

def score_length(sample):
    return len(sample.response) / 10

fixed = Endpoint(provider="mock", model="fixed", extra_params={"text": "Rome"})
number = 5
"""
FILE = """
from assay.runner import EvalConfig

def score(sample):
    return float(sample.response == sample.ground_truth)

config = EvalConfig(agent="mock:echo", score_fn=score, name="file")
dataset = "questions.csv"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("ASSAY_STORE", raising=False)
    monkeypatch.delenv("ASSAY_HOME", raising=False)
    (tmp_path / "questions.csv").write_text(CSV)
    (tmp_path / "variant_agents.py").write_text(AGENTS)
    (tmp_path / "variant_file.py").write_text(FILE)
    (tmp_path / "ask.txt").write_text("{question}\n")
    return tmp_path


def responses() -> list[str]:
    with Store.open(create=False) as store:
        return [sample.response for sample in store.run().samples()]


def test_a_dataset_is_evaluated_without_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--agent", "mock:echo", "--scorer", "exact_answer", "--prompt", "ask.txt"]

    assert main(["eval", "questions.csv", *words, "--json", "--quiet"]) == 0

    report = json.loads(capsys.readouterr().out)
    assert report["run"].startswith("questions-")
    assert report["summary"]["score"]["interval"]["mean"] == pytest.approx(2 / 3)
    assert responses() == ["Paris", "Rome", "four"]
    with Store.open(create=False) as store:
        config = store.run().spec.config
    assert config["prompt"] == {"name": "ask.txt", "text": "{question}\n"}


def test_several_scorers_are_metrics_with_weights(capsys: pytest.CaptureFixture[str]) -> None:
    scorers = ["contains_answer=3", "variant_agents.py:score_length=1", "json_valid"]
    words = [word for each in scorers for word in ("--scorer", each)]

    assert main(["eval", "questions.csv", "--agent", "mock:echo", *words, "--json"]) == 0

    summary = json.loads(capsys.readouterr().out)["summary"]
    means = {name: found["interval"]["mean"] for name, found in summary["metrics"].items()}
    assert means == pytest.approx(
        {"contains_answer": 2 / 3, "score_length": (5 + 4 + 4) / 30, "json_valid": 0.0}
    )
    assert summary["score"]["interval"]["mean"] == pytest.approx(
        (3 * means["contains_answer"] + means["score_length"]) / 4
    )


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ("variant_agents.py:answer", ["city", "city", "number"]),
        ("variant_agents:answer", ["city", "city", "number"]),
        ("variant_agents.py:fixed", ["Rome"] * 3),
        ("cmd:cat", ["Paris", "Rome", "four"]),
    ],
)
def test_options_replace_agent_and_scorer_of_a_file(agent: str, expected: list[str]) -> None:
    words = ["--agent", agent, "--scorer", "variant_agents.py:score_length", "--quiet"]

    assert main(["eval", "variant_file.py", *words]) == 0

    assert responses() == expected
    with Store.open(create=False) as store:
        run = store.run()
        assert [row.score for row in run.results()] == [len(each) / 10 for each in expected]
        # A bundle of the file alone would not repeat this run.
        assert "code" not in run.spec.config


def test_a_sample_that_takes_longer_than_the_timeout_fails(folder: Path) -> None:
    (folder / "variant_slow.py").write_text(
        "import asyncio\nasync def answer(sample):\n    await asyncio.sleep(60)\n"
    )
    words = ["--agent", "variant_slow.py:answer", "--scorer", "exact_answer"]

    assert main(["eval", "questions.csv", *words, "--timeout-s", "0.05", "--quiet"]) == 3


def test_recorded_answers_are_scored_without_an_agent(folder: Path) -> None:
    turns = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
    (folder / "answers.jsonl").write_text(json.dumps({"messages": turns, "answer": "2"}) + "\n")

    assert main(["eval", "answers.jsonl", "--scorer", "exact_answer", "--quiet"]) == 0


def test_a_dataset_without_questions_needs_only_prompts(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "topics.csv").write_text("topic,tone,expected\nbread,funny,FUNNY\nsea,sad,blue\n")
    (folder / "tone.txt").write_text("Write about {topic} in a {tone} tone.\n")
    (folder / "plain.txt").write_text("Write about {topic}.\n")
    words = ["topics.csv", "--agent", "mock:echo", "--scorer", "contains_answer"]

    assert main(["eval", *words, "--prompt", "tone.txt", "--quiet"]) == 0
    assert responses() == [
        "Write about bread in a funny tone.",
        "Write about sea in a sad tone.",
    ]
    assert main(["eval", *words, "--prompt", "tone.txt", "--prompt", "plain.txt", "--json"]) == 0
    assert responses() == ["Write about bread.", "Write about sea."]
    assert '"pairs": 2' in capsys.readouterr().out


AGENT = ("--agent", "mock:echo")
SCORER = ("--scorer", "exact_answer")
TWO_PROMPTS = ("--prompt", "ask.txt", "--prompt", "long.txt")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "assay eval: no evaluation is given"),
        (["--resume", "a.py"], "assay eval: --resume takes 'a.py' for the run to resume"),
        (["questions.csv", *AGENT], "questions.csv: no scorer is given for the dataset"),
        (["questions.csv", *SCORER], "questions.csv: no agent is given, and the samples"),
        (["none.csv", *AGENT, *SCORER], "none.csv: the file or folder does not exist"),
        (["notes.txt", *AGENT, *SCORER], "notes.txt: the file or folder does not exist"),
        (
            ["questions.csv", *AGENT, "--scorer", "exactness"],
            "--scorer: no metric is named 'exactness'",
        ),
        (
            ["questions.csv", *AGENT, "--scorer", "exact_answer=much"],
            "--scorer exact_answer=much: the weight 'much' is not a finite number",
        ),
        (
            ["questions.csv", *AGENT, "--scorer", "exact_answer=nan"],
            "--scorer exact_answer=nan: the weight 'nan' is not a finite number",
        ),
        (
            ["questions.csv", *AGENT, "--scorer", "variant_agents.py:number"],
            "--scorer: 'variant_agents.py:number' is a int, not a scorer",
        ),
        (
            ["questions.csv", *AGENT, "--scorer", "variant_agents.py:nothing"],
            "--scorer: variant_agents.py does not define 'nothing'",
        ),
        (["questions.csv", "--agent", "gpt", *SCORER], "--agent: the string does not name"),
        (
            ["questions.csv", *AGENT, "--model", "mock:echo", *SCORER],
            "--agent and --model both name a model",
        ),
        (["questions.csv", *AGENT, *AGENT, *SCORER], "--agent has the same value twice"),
        (
            ["questions.csv", *AGENT, *SCORER, "--prompt", "bad.txt"],
            "bad.txt:2: the placeholder {subject} is not a field of sample 'a', row 1 of the "
            "dataset\n  hint: the fields are: id, question, topic;",
        ),
        (
            ["questions.csv", *AGENT, *SCORER, *TWO_PROMPTS, "--prompt", "bad.txt"],
            "bad.txt:2: the placeholder {subject} is not a field of sample 'a'",
        ),
        (
            ["topics.jsonl", *AGENT, *SCORER, "--prompt", "topic.txt"],
            "topics.jsonl:2: the row has no column 'tone', a placeholder of topic.txt",
        ),
        (
            ["topics.jsonl", *AGENT, *SCORER, "--prompt", "topic.txt", "--prompt", "ask.txt"],
            "ask.txt:1: the placeholder {question} is not a field of sample",
        ),
        (
            ["topics.jsonl", "--agent", "variant_agents.py:answer", *SCORER],
            "topics.jsonl:1: no known layout has these columns: 'topic', 'tone'\n"
            "  hint: name the columns `question` and `answer`; or evaluate with --prompt FILE",
        ),
        (
            ["topics.jsonl", *SCORER, "--prompt", "topic.txt"],
            "--prompt has no effect without an agent",
        ),
        (
            ["questions.csv", *AGENT, "--agent", "mock:fixed", *SCORER],
            "mock:fixed: the mock model 'fixed' needs extra_params['text']",
        ),
        (["variant_file.py", "--prompt", "none.txt"], "none.txt:"),
        (["scored_only.py", "--prompt", "ask.txt"], "--prompt has no effect without an agent"),
        (
            ["reads_once.py", *TWO_PROMPTS],
            "the dataset is an iterator, which only one run can read",
        ),
        (
            ["questions.csv", *AGENT, *SCORER, *TWO_PROMPTS, "--resume", "some-run"],
            "--resume names one run, but the command has several",
        ),
    ],
)
def test_a_wrong_request_runs_nothing(
    words: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "bad.txt").write_text("Topic\n{subject}")
    (folder / "long.txt").write_text("Q: {question}")
    (folder / "topics.jsonl").write_text('{"topic": "a", "tone": "b"}\n{"topic": "a"}\n')
    (folder / "topic.txt").write_text("{topic} {tone}")
    (folder / "scored_only.py").write_text(FILE.replace('agent="mock:echo", ', ""))
    (folder / "reads_once.py").write_text(
        FILE.replace('"questions.csv"', 'iter([{"question": "a"}])')
    )

    assert main(["eval", *words]) == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    with Store.open() as store:
        assert store.runs() == []


ADAPTED = """
from assay.runner import EvalConfig
from assay.scorers import Criterion, Rubric

def adapter(row):
    return {"prompt": row["asked"], "answer": row["known"]}

config = EvalConfig(agent="mock:echo", score_fn="exact_answer")
dataset = "asked.jsonl"
rubric = Rubric(name="r", description="d", criteria=[Criterion(name="good", description="d")])
"""


@pytest.fixture
def adapted(folder: Path) -> str:
    (folder / "adapted.py").write_text(ADAPTED)
    (folder / "asked.jsonl").write_text(
        '{"asked": "a", "known": "a"}\n{"asked": "b", "known": "c"}\n'
    )
    (folder / "other.jsonl").write_text('{"asked": "d", "known": "d"}\n' * 3)
    grade = {"criteria": {"good": {"reason": "r", "evidence": [], "score": 0.25}}}
    judge = {
        "provider": "mock",
        "model": "script",
        "extra_params": {"replies": [json.dumps(grade)] * 2},
    }
    (folder / "judge.json").write_text(json.dumps(judge))
    return "adapted.py"


def test_the_adapter_of_a_file_reads_its_dataset_and_another_one(adapted: str) -> None:
    assert main(["eval", adapted, "--quiet"]) == 0
    assert responses() == ["a", "b"]

    assert main(["eval", adapted, "--dataset", "other.jsonl", "--max-samples", "2"]) == 0
    assert responses() == ["d", "d"]


def test_a_dataset_that_does_not_exist_is_refused(
    adapted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", adapted, "--dataset", "none.jsonl"]) == 2
    assert "none.jsonl: the file or folder does not exist" in capsys.readouterr().err


def test_a_dataset_itself_takes_no_other_dataset(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--agent", "mock:echo", "--scorer", "exact_answer", "--dataset", "other.jsonl"]

    assert main(["eval", "questions.csv", *words]) == 2
    assert "--dataset has no effect: questions.csv is a dataset itself" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["--dataset", "other.jsonl"]])
def test_only_a_hub_dataset_has_splits(
    adapted: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", adapted, *words, "--split", "test"]) == 2
    assert "split='test' has no effect here" in capsys.readouterr().err


def test_a_judge_grades_by_the_rubric_of_the_file(
    adapted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", adapted, "--judge", "judge.json", "--quiet"]) == 0

    out = capsys.readouterr().out
    assert "score         0.250" in out
    assert "good" in out


def test_a_missing_judge_is_noted_where_there_is_a_rubric(
    adapted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", adapted]) == 0
    assert "no --judge is given" in capsys.readouterr().err

    assert main(["eval", adapted, "--scorer", "exact_answer"]) == 0
    assert "no --judge is given" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["variant_file.py", "--judge", "judge.json"], "defines no `rubric`"),
        (["adapted.py", "--judge", "judge.json", "--scorer", "exact_answer"], "both score"),
        (["adapted.py", "--judge", "openai:gpt-5-mini"], "the API key for openai is missing"),
    ],
)
def test_a_judge_that_cannot_grade_is_refused_before_a_sample_is_run(
    adapted: str,
    words: list[str],
    problem: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    assert main(["eval", *words]) == 2
    assert problem in capsys.readouterr().err


def test_another_agent_takes_the_place_of_a_model_and_its_environment(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "with_tools.py").write_text(
        FILE.replace("score_fn", 'environment="calculator", score_fn')
    )

    assert main(["eval", "with_tools.py", "--agent", "variant_agents.py:answer", "--quiet"]) == 0
    assert responses() == ["city", "city", "number"]
