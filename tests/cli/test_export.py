"""`assay export` from the inside: what it says, where it says it, and when it says no."""

import json
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.cli.arguments import parse_finite_number
from assay.cli.export import Tokens
from assay.errors import TokenError
from assay.store import SampleLabel, Store
from assay.types import EvaluateResult, ModelCall, Sample, Trajectory
from make import asked, said, sample
from recorded_pages import record_run
from recorded_runs import record, samples, stopped
from tiny_trainer import tiny_tokenizer


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_STORE", raising=False)
    monkeypatch.delenv("ASSAY_HOME", raising=False)
    return tmp_path


def answer(name: str, words: str, score: float | None) -> Sample:
    return sample(asked(f"{name}?"), said(words), id=name, score=EvaluateResult(score=score))


def write(*given: Sample, name: str = "s.jsonl") -> None:
    Path(name).write_text("".join(f"{each.to_json()}\n" for each in given))


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(name).read_text().splitlines()]


def test_the_result_is_on_stdout_and_what_was_left_out_on_stderr(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(answer("a", "good", 1.0), answer("b", "bad", 0.0), answer("c", "?", None))

    assert main(["export", "trl-sft", "s.jsonl", "-o", "o.jsonl", "--min-score", "0.5"]) == 0

    said_out, said_err = capsys.readouterr()
    assert said_out == (
        "source        s.jsonl\n"
        "samples       3 read, 1 used\n"
        "file          o.jsonl (trl-sft, 1 row)\n"
    )
    assert said_err == "left out      1 score too low\n              1 not judged\n"


def test_a_run_is_exported_with_its_repeats(folder: Path) -> None:
    run = record(folder / ".assay/assay.db", *samples(a=1.0, b=0.0), repeats=2)

    assert main(["export", "trl-sft", run, "-o", "o.jsonl", "--min-score", "0.5"]) == 0

    assert len(rows("o.jsonl")) == 2


def test_failures_of_a_run_are_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(folder / ".assay/assay.db", *samples(a=1.0, b="broken"))

    assert main(["export", "trl-sft", "latest", "-o", "o.jsonl"]) == 0

    assert "left out      1 failed" in capsys.readouterr().err


def test_an_unfinished_run_is_told_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(folder / ".assay/assay.db", *samples(a=1.0), stop=stopped())

    assert main(["export", "trl-sft", "latest", "-o", "o.jsonl"]) == 1

    complaint = capsys.readouterr().err
    assert "the run is interrupted, with 0 results" in complaint
    assert "nothing was written: the input has no samples" in complaint


def test_nothing_to_write_is_a_no_with_the_way_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(answer("a", "x", None))

    assert main(["export", "trl-sft", "s.jsonl", "-o", "o.jsonl"]) == 1

    assert "--all exports samples that were not judged" in capsys.readouterr().err
    assert not Path("o.jsonl").exists()
    assert main(["export", "trl-sft", "s.jsonl", "-o", "o.jsonl", "--all"]) == 0


def test_json_says_all_of_it_at_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(answer("a", "x", 1.0), answer("b", "y", 0.0))
    command = ["export", "trl-sft", "s.jsonl", "-o", "o.jsonl", "--min-score", "1", "--json"]

    assert main(command) == 0

    told = json.loads(capsys.readouterr().out)
    assert told["left_out"] == {"score too low": 1}
    assert told["files"] == {"o.jsonl": 1}
    assert told["not_read"] == {"count": 0, "problems": []}


def test_rows_that_cannot_be_read_make_the_answer_uncertain(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("s.jsonl").write_text(f"{answer('a', 'x', 1.0).to_json()}\nnot json\n")

    assert main(["export", "trl-sft", "s.jsonl", "-o", "o.jsonl"]) == 3

    assert "not read      1 of 2 rows skipped: s.jsonl:2:" in capsys.readouterr().err
    assert len(rows("o.jsonl")) == 1
    assert main(["export", "trl-sft", "s.jsonl", "-o", "p.jsonl", "--min-score", "2"]) == 3


def test_samples_that_repeat_the_evaluation_set_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(answer("a", "x", 1.0), answer("b", "y", 1.0))
    Path("eval.jsonl").write_text('{"id": "e7", "question": "A?", "answer": "x"}\n')
    command = ["export", "trl-sft", "s.jsonl", "-o", "o.jsonl", "--exclude-overlap", "eval.jsonl"]

    assert main(command) == 0

    assert capsys.readouterr().err == (
        "left out      1 overlaps the evaluation set: the same text\n"
        "  a: the same text as the prompt of e7\n"
    )


def test_a_broken_evaluation_set_is_no_guard(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(answer("a", "x", 1.0))
    Path("eval.jsonl").write_text("not json\n")
    command = ["export", "trl-sft", "s.jsonl", "-o", "o.jsonl", "--exclude-overlap", "eval.jsonl"]

    assert main(command) == 2

    assert "eval.jsonl:1" in capsys.readouterr().err
    assert not Path("o.jsonl").exists()


def test_text_of_a_sample_does_not_act_on_the_terminal(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = answer("\x1b[2J", "x", 1.0)
    odd = odd.model_copy(update={"trajectory": None, "prompt": "\x1b[2J"})
    write(odd)

    assert main(["export", "trl-sft", "s.jsonl", "-o", "o.jsonl"]) == 1

    told = capsys.readouterr()
    assert "\x1b" not in told.out + told.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["yaml", "s.jsonl", "-o", "o.jsonl"], "unknown format 'yaml'"),
        (["trl-sft", "s.jsonl"], "the following arguments are required: -o/--output"),
        (["trl-sft", "s.jsonl", "-o", "o.parquet"], "trl-sft cannot be written to a file .parquet"),
        (
            ["trl-sft", "s.jsonl", "-o", "s.jsonl", "--force"],
            "is also an input file; choose another path",
        ),
        (
            "trl-sft s.jsonl -o there.jsonl --force --exclude-overlap there.jsonl".split(),
            "is also an input file; choose another path",
        ),
        (["trl-sft", "s.jsonl", "-o", "there.jsonl"], "the file already exists"),
        (["trl-sft", "none.jsonl", "-o", "o.jsonl"], "the file or folder does not exist"),
        (["trl-sft", "s.jsonl", "-o", "no/o.jsonl"], "the folder no does not exist"),
        (
            ["trl-sft", "s.jsonl", "-o", "o.jsonl", "--tokenizer", "."],
            "--tokenizer has no effect with this format",
        ),
        (["trl-sft", "s.jsonl", "-o", "o.jsonl", "--split", "2"], "is not a valid split"),
        (["trl-sft", "s.jsonl", "-o", "o.jsonl", "--min-score", "nan"], "is not a number"),
        (["trl-kto", "s.jsonl", "-o", "o.jsonl"], "pass --min-score"),
        (["trl-sft", "s.jsonl", "-o", "o.jsonl", "--all", "--valid-only"], "not allowed with"),
    ],
)
def test_a_wrong_request_is_refused_and_nothing_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    write(answer("a", "x", 1.0))
    Path("there.jsonl").write_text("kept\n")

    assert main(["export", *words]) == 2

    assert complaint in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == ["s.jsonl", "there.jsonl"]
    assert Path("there.jsonl").read_text() == "kept\n"


def test_a_run_without_a_store_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "trl-sft", "latest", "-o", "o.jsonl"]) == 3

    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("text", ["x", "nan", "inf", ""])
def test_a_score_is_a_finite_number(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        parse_finite_number(text)


def rolled_out(*calls: ModelCall) -> Sample:
    return Sample(
        id="s",
        prompt=[asked("hi")],
        trajectory=Trajectory(messages=[asked("hi"), said("yo")], calls=list(calls)),
    )


RECORDED = ModelCall(prompt_ids=(1, 2), completion_ids=(3, 4), message_index=1)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    tiny_tokenizer().save_pretrained(path)
    return path


@pytest.mark.slow
def test_recorded_tokens_are_taken_whatever_tokenizer_is_there(tokenizer: Path) -> None:
    tokens = Tokens(tokenizer)

    (made,) = tokens(rolled_out(RECORDED))

    assert (made.tokens, made.loss_mask) == ([1, 2, 3, 4], [0.0, 0.0, 1.0, 1.0])
    assert tokens.made == 0


@pytest.mark.slow
def test_tokens_made_of_text_are_counted(tokenizer: Path) -> None:
    tokens = Tokens(tokenizer)

    (made,) = tokens(rolled_out())

    trained = [token for token, on in zip(made.tokens, made.loss_mask, strict=True) if on]
    assert tiny_tokenizer().decode(trained) == "yo[end]"
    assert tokens.made == 1


def test_without_a_tokenizer_text_is_not_made_into_tokens() -> None:
    with pytest.raises(TokenError):
        Tokens(None)(rolled_out())


def test_corrected_answers_of_a_run_are_exported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = "run-1"
    with Store.open(folder / ".assay" / "assay.db") as store:
        record_run(store, run_id, [answer("a", "bad", 0.0), answer("b", "ok", 1.0)])
        run = store.run(run_id)
        key = next(run.results(sample_id="a")).key
        run.write_label(SampleLabel(key, verdict="fail", answer="better", author="ada"))

    assert main(["export", "trl-preference", run_id, "-o", "pairs.jsonl"]) == 0
    assert main(["export", "trl-sft", run_id, "-o", "sft.jsonl", "--json"]) == 0
    assert main(["export", "trl-sft", run_id, "-o", "plain.jsonl", "--no-labels"]) == 0

    (pair,) = rows("pairs.jsonl")
    assert pair["chosen"][-1]["content"] == "better"
    assert pair["rejected"][-1]["content"] == "bad"
    answers = [
        sorted(row["completion"][-1]["content"] for row in rows(name))
        for name in ("sft.jsonl", "plain.jsonl")
    ]
    assert answers == [["better", "ok"], ["bad", "ok"]]
    printed, noted = capsys.readouterr()
    assert "answers corrected by people were used: 1" in noted
    assert '"corrected": 1' in printed
