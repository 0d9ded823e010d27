"""`assay eval` from the inside: files, options, exit statuses. Processes are in `tests/flows/`."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay.cli import main
from assay.store import Store
from assay.types import AgentSession, Endpoint

FILE = """
from assay.runner import EvalConfig
from assay.types import Endpoint

def score(sample):
    print("a word of the scorer")
    return sample.response == sample.ground_truth

config = EvalConfig(
    endpoint=Endpoint(provider="mock", model="echo", temperature=0.5), score_fn=score
)
dataset = "rows.jsonl"
"""
ROWS = [{"id": f"q{n}", "question": str(n), "answer": str(n % 3)} for n in range(4)]

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes an evaluation and its rows into the current folder; its path."""
    for variable in ("ASSAY_STORE", "ASSAY_HOME", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))

    def file(text: str = FILE, name: str = "made_up_evaluation.py") -> str:
        (tmp_path / name).write_text(text, "utf-8")
        return name

    yield file
    sys.modules.pop("made_up_evaluation", None)


def newest() -> Store:
    return Store.open(create=False)


def test_a_run_ends_with_its_summary_and_the_next_commands(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", write()]) == 0

    printed = capsys.readouterr()
    with newest() as store:
        run = store.run().id
    assert printed.out.startswith("score         0.750 [")
    assert f"\nrun           {run}\n" in printed.out
    assert printed.out.endswith(f"next:\n  assay show {run}\n  assay compare OTHER_RUN {run}\n")
    assert "a word of the scorer" not in printed.out
    assert printed.err.startswith(f"run {run}\na word of the scorer\n")


def test_a_run_is_compared_with_the_one_before(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in ([], ["--name", "other"], []):
        assert main(["eval", write(), *words]) == 0

    with newest() as store:
        last, other, first = (row.id for row in store.runs())
    assert capsys.readouterr().out.endswith(f"  assay compare {first} {last}\n")
    assert main(["eval", write(), "--resume", other, "--name", "other"]) == 0
    assert capsys.readouterr().out.endswith(f"  assay compare OTHER_RUN {other}\n")


def test_json_is_one_object_whatever_the_users_code_prints(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", write("print('importing')\n" + FILE), "--json", "--quiet"]) == 0

    said = json.loads(capsys.readouterr().out)
    assert said["interrupted"] is False
    assert said["summary"]["score"]["interval"]["mean"] == 0.75
    assert said["problem"] is None


def test_options_take_the_place_of_the_files_settings(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--max-samples", "2", "--repeats", "3", "--seed", "7", "--name", "other"]
    model = ["--model", "mock:echo", "--concurrency", "1", "--store", "own.db"]

    assert main(["eval", write(), *options, *model, "--json"]) == 0

    said = json.loads(capsys.readouterr().out)
    assert (said["summary"]["samples"], said["summary"]["results"]) == (2, 6)
    with Store.open("own.db", create=False) as store:
        spec = store.run().spec
    assert (spec.name, spec.config["seed"]) == ("other", 7)
    assert spec.config["endpoint"]["temperature"] == 0.5
    assert said["next"][0] == f"assay show {spec.id} --store own.db"


def test_failed_samples_are_3_and_resuming_tries_only_them_again(
    write: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    broken = FILE.replace(
        "    print(",
        "    if sample.id == 'q2' and not __import__('os').path.exists('mended'):\n"
        "        raise RuntimeError('not yet')\n    print(",
    )

    assert main(["eval", write(broken), "--max-samples", "3"]) == 3

    printed = capsys.readouterr()
    command = printed.err.strip().splitlines()[-1].split()
    assert "1 failed (1 scorer). Inspect and retry them with:" in printed.err
    assert command[:4] == ["assay", "eval", "made_up_evaluation.py", "--max-samples"]

    (tmp_path / "mended").touch()
    assert main(command[1:]) == 0

    assert capsys.readouterr().err.count("a word of the scorer") == 1
    with newest() as store:
        assert len(store.runs()) == 1
        assert [row.sample_id for row in store.run().results()] == ["q0", "q1", "q2"]


def test_a_dataset_that_breaks_in_the_middle_is_3_and_keeps_what_was_done(
    write: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with (tmp_path / "rows.jsonl").open("a") as rows:
        rows.write("not json\n")

    assert main(["eval", write(), "--concurrency", "1"]) == 3

    said = capsys.readouterr().err
    assert "rows.jsonl:5:" in said
    assert "recorded results are kept. Resume with:\n  assay eval made_up_evaluation.py" in said
    with newest() as store:
        assert (store.run().status, store.run().totals.recorded) == ("failed", 4)


def test_a_dataset_of_the_users_that_raises_shows_their_traceback(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (
        "def rows():\n    yield {'question': '1'}\n    raise KeyError('gone')\ndataset = rows()\n"
    )

    assert main(["eval", write(FILE + rows)]) == 3

    said = capsys.readouterr().err
    assert "the run was aborted in your code\nTraceback (most recent call last):\n" in said
    assert "KeyError: 'gone'\nrecorded results are kept" in said
    assert "/evaluation/engine.py" not in said


def test_a_bug_during_a_run_is_not_hidden(
    write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from assay.cli import eval_invocation as command

    async def broken(*args: object, store: Store, **options: object) -> None:
        from assay.store import RunSpec

        store.start_run(RunSpec("r", "r", {}, "f", "rows"))
        raise ZeroDivisionError

    monkeypatch.setattr(command, "evaluate", broken)

    assert main(["eval", write()]) == 3
    said = capsys.readouterr().err
    assert "Traceback (most recent call last):" in said
    assert said.endswith("ZeroDivisionError\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "gpt"], "a model string has the form `provider:model`"),
        (["--max-samples", "0"], "argument --max-samples: '0' is not a number of 1 or more"),
        (["--grace-s", "-1"], "argument --grace-s: '-1' is not a number of seconds"),
        (["--resume", "none"], "run 'none' does not exist"),
        (["--resume"], "the store contains no runs"),
        (["--take-over"], "--take-over has no effect without --resume"),
        (["--model", "openai:gpt"], "the API key for openai is missing"),
    ],
)
def test_a_wrong_request_is_2(
    options: list[str], message: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write()
    Store.open().close()

    assert main(["eval", file, *options]) == 2

    printed = capsys.readouterr()
    assert message in printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""


def test_a_mistake_in_the_file_is_2(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", write("1 / 0\n")]) == 2

    assert "line 1, in <module>\n    1 / 0\n" in capsys.readouterr().err


def test_resuming_something_else_is_2_and_says_what_differs(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["eval", write()])

    assert main(["eval", write(), "--resume", "--seed", "4"]) == 2
    assert "seed: None -> 4" in capsys.readouterr().err


def test_a_changed_dataset_is_resumed_only_on_demand(
    write: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    main(["eval", write()])
    with (tmp_path / "rows.jsonl").open("a") as rows:
        rows.write('{"id": "q9", "question": "9", "answer": "9"}\n')

    assert main(["eval", write(), "--resume"]) == 2
    assert "the dataset changed" in capsys.readouterr().err
    assert main(["eval", write(), "--resume", "--allow-changed-dataset"]) == 0

    with newest() as store:
        assert store.run().totals.recorded == 5


PROMPTED = """
from pathlib import Path

from assay.runner import EvalConfig
from assay.types import Endpoint, Message

def prompt(sample):
    return [Message(role="system", content=Path("prompt.txt").read_text()), *sample.messages]

def score(sample):
    return 1.0

endpoint = Endpoint(provider="mock", model="echo")
config = EvalConfig(endpoint=endpoint, score_fn=score, prepare_messages=prompt)
dataset = "rows.jsonl"
"""


def test_a_prompt_file_that_was_edited_is_2_and_names_the_sample(
    write: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "prompt.txt").write_text("Be brief.")
    assert main(["eval", write(PROMPTED), "--max-samples", "2"]) == 0
    (tmp_path / "prompt.txt").write_text("Be verbose.")
    capsys.readouterr()

    assert main(["eval", write(PROMPTED), "--resume"]) == 2

    printed = capsys.readouterr()
    assert printed.out == ""
    assert "the prompt of sample 'q0' changed since the run was started" in printed.err
    with newest() as store:
        assert store.run().totals.recorded == 2
    (tmp_path / "prompt.txt").write_text("Be brief.")
    assert main(["eval", write(PROMPTED), "--resume"]) == 0


def test_prompts_without_an_endpoint_take_the_model_of_the_command_line(
    write: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "prompt.txt").write_text("Be brief.")
    without = PROMPTED.replace("endpoint=endpoint, ", "")
    with Store.open() as store:
        store.save_session(
            AgentSession(id="chat", endpoint=Endpoint(provider="mock", model="echo"))
        )

    assert main(["eval", write(without)]) == 2
    assert "`prepare_messages` has no effect without an agent" in capsys.readouterr().err
    for named in (["--model", "mock:echo"], ["--session", "chat"]):
        assert main(["eval", write(without), *named, "--quiet"]) == 0
        with newest() as store:
            sample = next(iter(store.run().samples()))
        assert sample.trajectory is not None
        assert sample.trajectory.messages[0].text == "Be brief."


def test_a_repaired_scorer_scores_the_rollouts_that_are_there(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    right = "return sample.response == sample.ground_truth"
    raising = FILE.replace(right, f"if sample.id > 'q1': raise KeyError(1)\n    {right}")
    assert main(["eval", write(raising)]) == 3
    capsys.readouterr()

    assert main(["eval", write(), "--resume"]) == 2
    assert "--rescore" in capsys.readouterr().err
    assert main(["eval", write(), "--resume", "--rescore", "--json"]) == 0

    with newest() as store:
        new, old = store.runs()
        assert json.loads(capsys.readouterr().out)["run"] == new.id
        assert (new.spec.reuses, new.totals.recorded) == (old.id, 4)
        assert (old.totals.recorded, old.totals.failed) == (2, 2)


def test_a_refused_key_stops_the_run_with_one_message(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    script = 'model="script", extra_params={"replies": [{"error": {"status": 401}}], "loop": True}'

    assert main(["eval", write(FILE.replace('model="echo"', script))]) == 3

    said = capsys.readouterr().err
    assert said.count("mock:script") == 1
    assert "  hint: the mock simulates this denial\n" in said
    assert "Resume with:\n  assay eval made_up_evaluation.py --resume " in said
    assert "Traceback" not in said


def test_no_secret_is_printed_or_stored(
    write: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    endpoint = """Endpoint(
        provider="openai", model="m", api_base="http://127.0.0.1:9/v1", max_retries=0,
        api_key="canary-key", headers={"X-Token": "canary-header"},
    )"""
    text = FILE.replace('Endpoint(provider="mock", model="echo", temperature=0.5)', endpoint)
    address = "http://canary-user:canary-password@127.0.0.1:9/v1?key=canary-query"

    assert main(["eval", write(text), "--max-samples", "1"]) == 3
    assert main(["eval", write(text), "--max-samples", "1", "--model", f"vllm:m@{address}"]) == 3
    assert main(["show", "latest", "q0", "--full"]) == 0
    assert main(["show", "latest", "--json"]) == 0

    printed = capsys.readouterr()
    assert "canary" not in printed.out + printed.err
    assert "--model 'vllm:m@http://***@127.0.0.1:9/v1?***'" in printed.err
    for path in (tmp_path / ".assay").iterdir():
        assert b"canary" not in path.read_bytes(), path


def test_skipped_rows_are_told(
    write: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with (tmp_path / "rows.jsonl").open("a") as rows:
        rows.write("not json\n" * 2)
    text = FILE.replace('"rows.jsonl"', 'load_samples("rows.jsonl", on_bad_row="skip")')

    assert main(["eval", write("from assay.datasets import load_samples\n" + text)]) == 0

    printed = " ".join(capsys.readouterr().out.split())
    assert "samples 4, 4 judged not judged 0 of 4 results" in printed
    assert "not read 2 of 6 rows skipped: rows.jsonl:5:" in printed


PRICED = """
import os

from assay.providers import ClientSettings
from assay.runner import EvalConfig
from assay.types import Endpoint
from assay.environments import BasicEnvironment

def mended(sample, part):
    return os.stat("mended" if (sample.id, part) == ("q2", "BROKEN") else "rows.jsonl")

class Room(BasicEnvironment):
    def __init__(self, sample):
        self._sample = sample

    async def step(self, action):
        mended(self._sample, "environment")
        return await super().step(action)

def score(sample):
    mended(sample, "scorer")
    return sample.response == sample.ground_truth

config = EvalConfig(
    endpoint=Endpoint(provider="mock", model="echo"),
    score_fn=score,
    environment=lambda sample: Room(sample),
    client=ClientSettings(prices="prices.json"),
)
dataset = "rows.jsonl"
"""
PRICES = '{"models": {"mock:echo": {"input": 1e6, "output": 0}}}'


def test_what_failed_attempts_cost_is_told_beside_the_cost(
    write: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "prices.json").write_text(PRICES)
    priced = PRICED.replace("BROKEN", "environment")

    assert main(["eval", write(priced)]) == 3
    assert "cost          $4.0000\nrun " in capsys.readouterr().out

    (tmp_path / "mended").touch()
    assert main(["eval", write(priced), "--resume"]) == 0
    told = "cost          $4.0000\nretried       1 failed attempt cost $1.0000 more\n"
    assert told in capsys.readouterr().out

    main(["show", "latest"])
    assert told in capsys.readouterr().out
    main(["show", "latest", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert said["retried"] == {"attempts": 1, "cost_usd": 1.0, "cost_known": 1}
    assert said["summary"]["cost_usd"]["value"] == 4.0
    main(["runs"])
    assert " $4.0000+ " in capsys.readouterr().out


def test_a_rollout_that_is_scored_again_costs_nothing_more(
    write: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "prices.json").write_text(PRICES)
    priced = PRICED.replace("BROKEN", "scorer")
    assert main(["eval", write(priced)]) == 3
    (tmp_path / "mended").touch()
    capsys.readouterr()

    assert main(["eval", write(priced), "--resume"]) == 0

    assert "cost          $4.0000\nrun " in capsys.readouterr().out
