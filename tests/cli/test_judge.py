"""`assay judge` from the inside: what it reads, refuses, records and tells."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest

from assay.cli.exit_status import InconclusiveError
from assay.cli.judge import configure, main
from assay.errors import ConfigError, DatasetError, StoreError
from assay.formats.eval_record import to_eval_record
from assay.store import SampleLabel, Store
from assay.types import Sample
from judge_answers import conversation, graded
from recorded_runs import record, samples

RUBRIC = """\
name: done
description: Is it done?
criteria: [{name: done, description: It is done}]
"""
GOOD, BAD = graded("x", "All done.", done=1).text, graded(done=0).text
REFUSED = {"error": {"status": 401}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a rubric, two samples and a judge, and nothing else."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rubric.yaml").write_text(RUBRIC)
    given = [conversation(id=name).to_json() for name in ("one", "two")]
    (tmp_path / "samples.jsonl").write_text("\n".join(given))
    script(GOOD, BAD)
    return tmp_path


def script(*replies: Any, name: str = "judge.json") -> None:
    params = {"replies": replies, "loop": True}
    endpoint = {"provider": "mock", "model": "script", "max_retries": 0, "extra_params": params}
    Path(name).write_text(json.dumps(endpoint))


def run(target: str = "samples.jsonl", *options: str) -> int:
    parser = ArgumentParser()
    configure(parser)
    words = [target, "--rubric", "rubric.yaml", "--endpoint", "judge.json", "--quiet"]
    return main(parser.parse_args([*words, "--concurrency", "1", *options]))


def test_a_file_is_judged_recorded_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0

    printed = capsys.readouterr().out
    assert "score         0.500" in printed
    assert "evidence      1 quote, 0 not found in the transcript" in printed
    assert "judge calls   2" in printed
    with Store.open(create=False) as store:
        run_ = store.run("latest")
        assert run_.id in printed
        assert [row.score for row in run_.results()] == [1.0, 0.0]


def test_a_recorded_run_is_judged_as_a_new_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = record(folder / ".assay" / "assay.db", *samples(a=0.0, b=0.0))

    assert run("latest", "--json") == 0

    told = json.loads(capsys.readouterr().out)
    assert told["run"] != old
    assert told["judged"] == 2
    assert told["summary"]["score"]["interval"]["mean"] == 0.5


def test_workers_judge_a_file_or_a_run_between_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script(GOOD)
    given = [conversation(id=f"s{number}").to_json() for number in range(9)]
    (folder / "samples.jsonl").write_text("\n".join(given))
    workers = ("--workers", "2", "--concurrency", "4", "--json")

    assert run("samples.jsonl", *workers) == 0
    of_file = json.loads(capsys.readouterr().out)
    assert run(of_file["run"], *workers) == 0
    of_run = json.loads(capsys.readouterr().out)

    for told in (of_file, of_run):
        assert (told["judged"], told["evidence"]["quotes"]) == (9, 9)
        # The calls of both workers together.
        assert told["spending"]["calls"] == 9
        with Store.open(create=False) as store:
            assert store.run(told["run"]).status == "completed"


def test_workers_whose_judge_is_refused_end_with_a_way_to_resume(folder: Path) -> None:
    script(REFUSED)

    with pytest.raises(InconclusiveError, match=r"--workers 2 .*--resume judge-"):
        run("samples.jsonl", "--workers", "2", "--concurrency", "2")


def test_judged_samples_are_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("samples.jsonl", "-o", "judged.jsonl")
    run("samples.jsonl", "-o", "-", "--json")

    written = list(map(Sample.from_json, (folder / "judged.jsonl").read_text().splitlines()))
    assert [(each.id, each.reward) for each in written] == [("one", 1.0), ("two", 0.0)]
    captured = capsys.readouterr()
    lines = captured.out.splitlines()[-2:]
    assert [Sample.from_json(line).id for line in lines] == ["one", "two"]
    assert json.loads(captured.err)["judged"] == 2


def test_what_cannot_be_judged_is_told_and_is_no_success(
    capsys: pytest.CaptureFixture[str],
) -> None:
    script("I would say 9 of 10.")

    assert run() == 3

    captured = capsys.readouterr()
    assert "score         none: no sample was judged" in captured.out
    assert "not judged: one (Do it.): no majority of usable votes on done" in captured.err


def test_a_judge_that_fails_leaves_failed_samples_and_the_rest() -> None:
    script(GOOD, {"error": {"status": 500}})

    assert run() == 3

    with Store.open(create=False) as store:
        first, second = store.run("latest").results()
    assert (first.score, second.score, second.boundary) == (1.0, None, "scorer")


def test_a_refused_key_ends_the_run_and_says_how_to_go_on(folder: Path) -> None:
    script(REFUSED)

    with pytest.raises(
        InconclusiveError, match=r"Resume with:\n  assay judge samples.* --resume judge-"
    ):
        run()

    old = record(folder / ".assay" / "assay.db", *samples(a=0.0))
    with pytest.raises(
        InconclusiveError, match=rf"Resume with:\n  assay judge {old} .*--resume judge-"
    ):
        run("latest")


def test_an_interrupted_judging_is_resumed_without_paying_twice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    script(GOOD, {"error": {"status": 500}})
    run()
    capsys.readouterr()

    run("samples.jsonl", "--resume", "latest", "--json")

    told = json.loads(capsys.readouterr().out)
    assert told["judged"] == 2
    assert told["spending"]["calls"] == 1


def test_a_panel_and_votes_are_asked(capsys: pytest.CaptureFixture[str]) -> None:
    script(BAD, name="strict.json")

    assert run("samples.jsonl", "--panel", "strict.json", "--votes", "3", "--json") == 0

    told = json.loads(capsys.readouterr().out)
    assert told["spending"]["calls"] == 12
    assert told["panel"]["mock:script #2"] == 0.0


def test_labels_of_people_are_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "labels.jsonl").write_text(
        '{"id": "one", "label": "pass"}\n{"id": "two", "label": "fail"}'
    )

    run("samples.jsonl", "--labels", "labels.jsonl")

    assert "kappa       1.000" in capsys.readouterr().out


def test_labels_stored_beside_a_run_are_compared(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = record(folder / ".assay" / "assay.db", *samples(a=0.0, b=0.0))
    with Store.open(create=False) as store:
        labelled = store.run(old)
        first, second = (row.key for row in labelled.results())
        labelled.write_label(SampleLabel(first, verdict="pass"))
        labelled.write_label(SampleLabel(second, verdict="fail"))

    assert run(old, "--labels", old, "--json") == 0

    compared = json.loads(capsys.readouterr().out)["calibration"]["compared"]
    assert [(each["compared"], each["kappa"]) for each in compared] == [(2, 1.0)]


def test_no_samples_at_all_are_refused(folder: Path) -> None:
    (folder / "none.jsonl").write_text("")

    with pytest.raises(ConfigError):
        run("none.jsonl")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--rubric", "rubrik.yaml"), "cannot be read"),
        (("--rubric", "generl"), "built-in rubrics: "),
        (("--endpoint", "nobody"), "provider:model"),
        (("--endpoint", "missing.json"), "cannot be read"),
        (("--panel", "mock:echo,"), "provider:model"),
        (("--labels", "missing.jsonl"), "cannot be read"),
        (("-o", "samples.jsonl"), "is also an input file; choose another path"),
        (("-o", "rubric.yaml"), "is also an input file; choose another path"),
        (("-o", "judge.json"), "is also an input file; choose another path"),
        (("--panel", "x.json", "-o", "./x.json"), "is also an input file; choose another path"),
        (("--labels", "l.jsonl", "-o", "l.jsonl"), "is also an input file; choose another path"),
        (("-o", "missing/out.jsonl"), "the folder missing does not exist"),
        (("-o", "."), "is a folder"),
    ],
)
def test_a_wrong_request_is_refused_before_a_store_is_made(
    options: tuple[str, ...], problem: str, folder: Path
) -> None:
    (folder / "x.json").write_bytes((folder / "judge.json").read_bytes())
    (folder / "l.jsonl").write_text('{"id": "one", "label": 1}\n')
    with pytest.raises(ConfigError, match=problem):
        run("samples.jsonl", *options)

    assert not (folder / ".assay").exists()


def test_labels_of_an_unknown_criterion_are_refused(folder: Path) -> None:
    (folder / "labels.jsonl").write_text('{"id": "one", "label": 1, "criterion": "tone"}')

    with pytest.raises(ConfigError, match="the label 'tone' is not a criterion"):
        run("samples.jsonl", "--labels", "labels.jsonl")


def test_a_bad_line_is_met_before_a_judge_is_asked(folder: Path) -> None:
    with (folder / "samples.jsonl").open("a") as file:
        file.write("\n{broken")

    with pytest.raises(DatasetError):
        run()
    assert not (folder / ".assay").exists()


def test_a_run_is_judged_as_far_as_asked_and_gone_on_with(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = record(folder / ".assay" / "assay.db", *samples(a=0.0, b=0.0, c=0.0))
    run("latest", "--max-samples", "1", "--json")
    first = json.loads(capsys.readouterr().out)

    assert run(old, "--resume", "latest", "--json") == 0

    told = json.loads(capsys.readouterr().out)
    assert first["judged"] == 1
    assert (told["run"], told["judged"], told["spending"]["calls"]) == (first["run"], 3, 2)


def test_a_judging_of_another_run_is_not_gone_on_with(folder: Path) -> None:
    store = folder / ".assay" / "assay.db"
    one, other = record(store, *samples(a=0.0)), record(store, *samples(a=0.0))
    run(one)

    with pytest.raises(ConfigError, match=f"rescored: '{one}' -> '{other}'"):
        run(other, "--resume", "latest")


def test_evaluation_records_are_judged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [to_eval_record(conversation(id=name)).value for name in ("one", "two")]
    (folder / "records.jsonl").write_text("\n".join(map(json.dumps, given)))

    assert run("records.jsonl", "--json") == 0

    assert json.loads(capsys.readouterr().out)["judged"] == 2


def test_a_run_that_is_not_there_makes_no_store(folder: Path) -> None:
    with pytest.raises(StoreError):
        run("latest")
    assert not (folder / ".assay").exists()
