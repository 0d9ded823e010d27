"""`assay check` from the inside: what it counts, what it says, and when it says no."""

import gzip
import json
from argparse import Namespace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from assay.cli import main as assay_main
from assay.cli.check import main
from assay.cli.exit_status import InconclusiveError
from assay.cli.sample_input import is_sample_file
from assay.datasets import load_samples
from assay.errors import ConfigError, DatasetError, StoreError
from assay.formats.eval_record import to_eval_record
from assay.store import Store
from assay.types import Sample
from recorded_runs import conversation, record, samples, stopped

YES_ONLY = "checks:\n  - name: polite\n    matches: (?i)please|yes\n"
TRACKED = "  - {name: short, not_matches: '.{20}', weight: 0}\n"
COST = "  - max_cost: 1\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_STORE", raising=False)
    monkeypatch.delenv("ASSAY_HOME", raising=False)
    (tmp_path / "checks.yaml").write_text(YES_ONLY)
    return tmp_path


def given(**options: Any) -> Namespace:
    plain: dict[str, Any] = {
        "source": "s.jsonl",
        "checks": "checks.yaml",
        "max_samples": None,
        "output": None,
        "store": None,
        "json": False,
        "name": None,
        "resume": None,
        "engine": None,
        "ray_address": None,
        "ray_env": None,
        "workers": None,
        "quiet": True,
    }
    return Namespace(**{**plain, **options})


def write(*conversations: Sample, name: str = "s.jsonl") -> None:
    Path(name).write_text("".join(f"{each.to_json()}\n" for each in conversations))


def test_workers_check_a_file_or_a_run_between_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(*(conversation(f"s{number}") for number in range(9)))
    with Path("s.jsonl").open("a") as file:
        file.write("not JSON\n")

    # 3: a row of the file could not be read.
    words = ("check", "s.jsonl", "--checks", "checks.yaml", "--workers", "2", "--json")
    assert assay_main(words) == 3
    of_file = json.loads(capsys.readouterr().out)
    assert assay_main(("check", "latest", *words[2:])) == 0
    of_run = json.loads(capsys.readouterr().out)

    assert of_file["not_read"]["count"] == 1
    assert of_file["run"] != of_run["run"]
    for report in (of_file, of_run):
        assert report["checks"] == [
            {"name": "polite", "weight": None, "passed": 9, "failed": 0, "not_judged": 0}
        ]
        with Store.open(create=False) as store:
            assert store.run(report["run"]).status == "completed"


def test_workers_refuse_half_of_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(conversation("a"), conversation("b"))
    whole = gzip.compress(Path("s.jsonl").read_bytes() * 1000)
    Path("s.jsonl.gz").write_bytes(whole[:-20])

    words = ("check", "s.jsonl.gz", "--checks", "checks.yaml", "--workers", "2", "--quiet")
    assert assay_main(words) == 3

    assert "s.jsonl.gz" in capsys.readouterr().err


def test_exit_status_is_0_when_everything_passes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(conversation("a"), conversation("b"))

    assert main(given()) == 0

    *lines, run = capsys.readouterr().out.splitlines()
    assert lines == [
        "source        s.jsonl",
        "samples       2 checked, 2 pass every check",
        "checks",
        "  polite                         2 passed, 0 failed",
    ]
    assert run.startswith("run           check-checks-")


def test_a_check_is_a_run_that_can_be_gated_and_resumed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(conversation("a"), conversation("b", "no"))

    assert main(given(name="politeness", json=True)) == 1
    run_id = json.loads(capsys.readouterr().out)["run"]

    with Store.open(create=False) as store:
        run = store.run(run_id)
        assert (run.spec.name, run.row().status) == ("politeness", "completed")
        assert [sample.reward for sample in run.samples()] == [1.0, 0.0]
    assert assay_main(["gate", run_id, "--threshold", "0.4"]) == 0
    assert assay_main(["gate", run_id, "--threshold", "0.9"]) == 1
    assert main(given(name="politeness", resume=run_id)) == 1
    (folder / "checks.yaml").write_text(YES_ONLY + COST)
    with pytest.raises(ConfigError, match="score_fn"):
        main(given(name="politeness", resume=run_id))


def test_exit_status_is_1_when_a_check_fails(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(conversation("a"), conversation("b", "no \x1b[2J way"))

    assert main(given()) == 1

    printed = capsys.readouterr().out
    assert "2 checked, 1 pass every check" in printed
    assert (
        "failed\n  b: polite | b?\n    no match for '(?i)please|yes': response in turn 2" in printed
    )
    assert "\x1b" not in printed


@pytest.mark.parametrize("extra", [COST, COST + TRACKED])
def test_exit_status_is_3_when_something_was_not_judged(
    extra: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "checks.yaml").write_text(YES_ONLY + extra)
    write(conversation("a"))

    assert main(given()) == 3
    assert (
        "not judged\n  a: max_cost | a?\n    no model call is recorded" in capsys.readouterr().out
    )


def test_a_no_stands_whatever_else_was_not_judged(folder: Path) -> None:
    (folder / "checks.yaml").write_text(YES_ONLY + COST)
    write(conversation("a", "no"))

    assert main(given()) == 1


def test_a_tracked_check_does_not_decide(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "checks.yaml").write_text(YES_ONLY + TRACKED)
    write(conversation("a", "yes, and much more than that"))

    assert main(given()) == 0
    assert "0 passed, 1 failed (tracked only)" in capsys.readouterr().out


def test_rows_that_cannot_be_read_are_told_of(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(conversation("a"))
    with Path("s.jsonl").open("a") as file:
        file.write("{broken\n")

    assert main(given()) == 3
    assert "not read      1 of 2 rows skipped: s.jsonl:2:" in capsys.readouterr().out


def test_a_question_without_an_answer_is_not_judged(folder: Path) -> None:
    Path("s.jsonl").write_text('{"question": "2+2?", "answer": "4"}\n')

    assert main(given()) == 3


def test_nothing_to_check_is_no_yes(folder: Path) -> None:
    write()

    assert main(given()) == 3


def test_the_rest_of_a_broken_file_could_not_be_told(folder: Path) -> None:
    noise = Random(7)
    answers = (f"yes {noise.randbytes(40).hex()}" for _ in range(3000))
    lines = (conversation(f"s{n}", answer).to_json() for n, answer in enumerate(answers))
    whole = gzip.compress("\n".join(lines).encode())
    Path("s.jsonl.gz").write_bytes(whole[: len(whole) // 2])

    with pytest.raises(InconclusiveError):
        main(given(source="s.jsonl.gz"))


def test_wrong_checks_are_refused_before_a_sample_is_read(folder: Path) -> None:
    (folder / "checks.yaml").write_text("checks:\n  - mathces: a\n")

    # There is no file of samples either, and that is not what is complained about.
    with pytest.raises(ConfigError, match=r"checks\.yaml:2:5: checks\[0\]\.mathces"):
        main(given())


@pytest.mark.parametrize(
    ("source", "error"), [("none.jsonl", DatasetError), ("latest", StoreError)]
)
def test_a_source_that_is_not_there_is_refused(
    source: str, error: type[Exception], folder: Path
) -> None:
    with pytest.raises(error):
        main(given(source=source))


def test_evaluation_records_are_read(folder: Path) -> None:
    records = [to_eval_record(conversation(name)).value for name in "ab"]
    Path("s.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records))

    assert main(given()) == 0


def test_a_run_is_checked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = folder / "a.db"
    run_id = record(store, *samples(a=1.0, b=0.0))

    assert main(given(source="latest", store=str(store))) == 0
    assert f"source        run {run_id}\nsamples       2 checked" in capsys.readouterr().out


def test_a_run_whose_scorer_broke_can_be_checked(folder: Path) -> None:
    record(folder / "a.db", *samples(a="broken"))

    assert main(given(source="latest", store=str(folder / "a.db"))) == 0


def test_an_unfinished_run_is_no_yes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(folder / "a.db", *samples(a=1.0), stop=stopped())

    assert main(given(source="latest", store=str(folder / "a.db"))) == 3
    assert "unfinished    the run is interrupted" in capsys.readouterr().out


def test_limit_checks_only_the_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(conversation("a"), conversation("b", "no"))
    record(folder / "a.db", *samples(a=1.0, b=1.0))

    assert main(given(max_samples=1)) == 0
    assert main(given(max_samples=1, source="latest", store=str(folder / "a.db"))) == 0
    assert capsys.readouterr().out.count("1 checked") == 2


def test_results_are_written_with_their_samples(folder: Path) -> None:
    write(conversation("a"), conversation("b", "no"))

    assert main(given(output="out.jsonl")) == 1

    found = {sample.id: sample.score for sample in load_samples("out.jsonl")}
    assert found["a"] is not None
    assert found["b"] is not None
    assert (found["a"].score, found["b"].score) == (1.0, 0.0)
    assert "response in turn 2" in str(found["b"].metrics["polite"].reason)


def test_samples_on_stdout_leave_the_account_to_stderr(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(conversation("a"))

    assert main(given(output="-")) == 0

    printed = capfd.readouterr()
    assert json.loads(printed.out)["score"]["score"] == 1.0
    assert "1 checked" in printed.err


@pytest.mark.parametrize(
    "options", [{"output": "s.jsonl"}, {"output": "checks.yaml"}, {"output": "-", "json": True}]
)
def test_an_output_that_would_destroy_something_is_refused(
    options: dict[str, Any], folder: Path
) -> None:
    write(conversation("a"))
    before = Path("s.jsonl").read_text()

    with pytest.raises(ConfigError):
        main(given(**options))
    assert Path("s.jsonl").read_text() == before


def test_json_says_what_the_text_says(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "checks.yaml").write_text(YES_ONLY + COST)
    write(*(conversation(f"s{n}", "no") for n in range(25)))

    assert main(given(json=True)) == 1

    found = json.loads(capsys.readouterr().out)
    assert (found["exit_status"], found["samples"], found["passed"]) == (1, 25, 0)
    assert found["checks"][0] == {
        "name": "polite",
        "weight": None,
        "passed": 0,
        "failed": 25,
        "not_judged": 0,
    }
    assert len(found["failed"]) == len(found["not_judged"]) == 20
    assert found["more"] == {"failed": 5, "not_judged": 5}
    assert found["failed"][0]["check"] == "polite"


def test_what_is_not_listed_is_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(*(conversation(f"s{n}", "no") for n in range(25)))

    main(given())

    assert "  and 5 more: -o FILE writes every result" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "file"),
    [
        ("a.jsonl", True),
        ("A.JSONL.GZ", True),
        ("org/set", True),
        ("latest", False),
        ("run-4.1", False),
    ],
)
def test_a_name_is_a_files_or_a_runs(source: str, file: bool, folder: Path) -> None:
    assert is_sample_file(source) is file
