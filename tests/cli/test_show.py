"""`assay show` from the inside."""

import json
import re
import shlex
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from assay.cli import main as run_command
from assay.cli.show import main
from assay.errors import ConfigError
from assay.store import SampleLabel, Store
from assay.types import EvaluateResult, Sample
from opencode_archives import agent, session, text, user, write_export
from recorded_runs import conversation, record, samples


def given(path: Path, **options: Any) -> Namespace:
    plain: dict[str, Any] = {
        "run": "latest",
        "sample": None,
        "limit": 20,
        "failed": False,
        "repeat": None,
        "full": False,
        "json": False,
    }
    return Namespace(**{"store": str(path), **plain, **options})


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "80")
    path = tmp_path / "a.db"
    record(path, *samples(good=1.0, unjudged=None, bad=0.0, fair=0.5, broken="broken"))
    return path


def listed(printed: str, title: str) -> list[str]:
    lines = printed.splitlines()
    blocks = lines[lines.index(title) + 1 :]
    # Further lines of a block are indented deeper; the list ends with a line that is not.
    ends = (number for number, line in enumerate(blocks) if not line.startswith("  "))
    heads = (line for line in blocks[: next(ends)] if line[2] != " ")
    return [line.split()[-1] for line in heads]


def find_newest(store: Path) -> str:
    with Store.open(store) as opened:
        return opened.run().id


def test_the_worst_samples_come_first(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(given(store)) == 0

    printed = capsys.readouterr().out
    assert "status        completed\n" in printed
    assert "not judged    2 of 5 results: scorer failed 1, no valid score 1\n" in printed
    names = listed(printed, "samples, worst first")
    assert names == ["broken", "bad", "fair", "good", "unjudged"]
    assert "  scorer failed  broken?  " in printed
    assert f"{' ' * 17}reason    RuntimeError: the scorer broke \ufffd[2J\n" in printed
    assert f"{' ' * 17}answer    yes\n{' ' * 17}reason    because of bad\n" in printed
    assert f"  assay show {find_newest(store)} broken --store {store}" in printed


def test_the_newest_run_is_shown_by_default(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["show", "--store", str(store)]) == 0

    assert capsys.readouterr().out.startswith("score         0.500 [")


def test_the_score_comes_first_and_the_reasons_are_on_the_first_screen(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(given(store))

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("score         0.500 [")
    assert lines[1].startswith("              0 ")
    assert "●" in lines[1]
    start = lines.index("reasons for failed samples")
    assert lines[start + 1 : start + 4] == [
        "  1 x scorer: RuntimeError: the scorer broke \ufffd[2J",
        "      such as broken?",
        f"      assay show {find_newest(store)} broken --store {store}",
    ]
    assert lines[start + 4] == "reasons for scores below 1.000"
    assert start + 4 <= 24


def test_reasons_of_results_that_were_not_judged_are_on_the_first_screen(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_up(sample: Sample) -> EvaluateResult:
        is_valid = int(sample.id) % 4 > 0
        reason = "wrong" if is_valid else "the judge refused"
        return EvaluateResult(score=0.0, is_score_valid=is_valid, reason=reason)

    run = record(store, *(conversation(str(n)) for n in range(20)), score_fn=give_up)
    monkeypatch.setenv("ASSAY_STORE", str(store))

    main(given(store, store=None))

    screen = capsys.readouterr().out.splitlines()[:24]
    start = screen.index("reasons for results that were not judged")
    assert screen[start + 1 : start + 3] == [
        "  5 x the judge refused",
        f"      such as 0?  assay show {run} 0",
    ]
    assert "reasons for scores below 1.000" in screen


def test_the_first_screen_has_score_interval_failures_and_reasons_of_low_scores(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_reason(sample: Sample) -> EvaluateResult:
        number = int(sample.id)
        if number < 6:
            raise RuntimeError(f"{'ABC'[number % 3]} broke: {'word ' * 100}")
        kinds = (f"the answer '{number}' is not 'x'", "far too long " * 40, "empty")
        return EvaluateResult(score=0.0, reason=kinds[number % 3])

    run = record(store, *(conversation(str(n)) for n in range(20)), score_fn=give_reason)
    monkeypatch.setenv("ASSAY_STORE", str(store))

    main(given(store, store=None))

    screen = capsys.readouterr().out.splitlines()[:24]
    assert screen[0].startswith("score         0.000 [")
    assert any(line.startswith("  2 x scorer: RuntimeError: A broke") for line in screen)
    low = screen[screen.index("reasons for scores below 1.000") :]
    assert low[1] == "  5 x the answer '…' is not '…' (mean 0.000)"
    assert low[2] == f"      such as 6?  assay show {run} 6"
    assert low[3].startswith("  5 x far too long far too long")
    assert max(map(cell_len, screen)) <= 80


def test_the_command_of_an_example_shows_the_repeat_with_the_low_score(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_last(sample: Sample) -> EvaluateResult:
        return EvaluateResult(score=float(sample.rollout_id != "a#2"), reason="unstable")

    monkeypatch.setenv("COLUMNS", "200")
    run = record(store, *samples(a=1.0), repeats=3, score_fn=fail_last)

    main(given(store))

    lines = capsys.readouterr().out.splitlines()
    (example,) = [line for line in lines if line.startswith("      such as a?  ")]
    command = shlex.split(example.split("  ")[-1])
    assert command[:4] == ["assay", "show", run, "a#2"]
    assert shlex.split(lines[-1]) == command
    assert run_command(command[1:]) == 0
    assert "unstable" in capsys.readouterr().out


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_report_fits_and_uses_the_terminal(
    columns: int, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("ASSAY_STORE", str(store))
    given_samples = [
        conversation(f"{'i' * 50}{number}", "word " * 60, metadata=each)
        for number, each in enumerate(
            ({"score": 0.0, "reason": "reason " * 60}, {"score": "broken"}, {"score": 1.0})
        )
    ]
    record(store, *given_samples, repeats=2)

    main(given(store, store=None))

    shown = capsys.readouterr().out.split("next:")[0].splitlines()
    # Commands and ids of runs are never cut: users copy them.
    widths = [cell_len(line) for line in shown if not line.strip().startswith("assay show")]
    assert columns - 1 <= max(widths) <= columns
    assert any(line.endswith("…#1") for line in shown) == (columns < 200)


def test_reasons_of_more_results_than_are_read_are_named_as_a_part(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("assay.runner.run_report.MAX_REASONS_READ", 1)

    main(given(store))

    assert "reasons for scores below 1.000, in the worst 1 of 2\n" in capsys.readouterr().out


def test_expected_answers_are_shown_beside_the_answers(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store, conversation("a", "no", metadata={"score": 0.0}, ground_truth="yes"))

    main(given(store))
    printed = capsys.readouterr().out
    main(given(store, json=True))
    (said,) = json.loads(capsys.readouterr().out)["samples"]

    assert "         answer    no\n         expected  yes\n" in printed
    assert (said["answer"], said["expected"]) == ("no", "yes")


def test_the_threshold_of_a_test_is_drawn_into_the_bar(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = {"score": 0.0, "threshold": 0.9}
    record(store, conversation("a", metadata=metadata))
    main(given(store))
    assert "threshold" not in capsys.readouterr().out.splitlines()[1]

    record(store, conversation("a", metadata={**metadata, "test": "test_a.py::test_a"}))
    main(given(store))
    assert "┃ threshold 0.900" in capsys.readouterr().out.splitlines()[1]


def test_a_list_of_failed_samples_has_no_reasons_of_low_scores(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(given(store, failed=True))

    printed = capsys.readouterr().out
    assert "reasons for failed samples\n" in printed
    assert "reasons for scores" not in printed


def test_the_list_is_bounded_and_says_so(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(given(store, limit=2))

    assert "  and 3 more; pass --limit to list more\n" in capsys.readouterr().out


def test_only_failed_samples_are_listed_on_demand(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(given(store, failed=True))
    assert listed(capsys.readouterr().out, "failed samples") == ["broken"]

    record(store, *samples(good=1.0))
    main(given(store, failed=True))
    assert "no sample failed\n" in capsys.readouterr().out

    record(store)
    main(given(store))
    assert capsys.readouterr().out.endswith("the run has no samples yet\n")


def test_everything_fits_80_columns(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(store, *samples(**{"漢" * 50: 1.0, "x" * 300: 0.0}), name="n" * 200)

    main(given(store))

    lines = [line for line in capsys.readouterr().out.splitlines() if "assay show" not in line]
    assert max(map(cell_len, lines)) <= 80


def test_a_run_as_json(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(given(store, json=True))

    said = json.loads(capsys.readouterr().out)
    assert said["summary"]["judged_samples"] == 3
    assert [(each["id"], each["score"]) for each in said["samples"][:2]] == [
        ("broken", None),
        ("bad", 0.0),
    ]
    assert said["samples"][0]["failed"] == "scorer"


@pytest.mark.parametrize("wanted", ["bad", "ba"])
def test_a_sample_is_found_by_its_id_or_its_beginning(
    wanted: str, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(given(store, sample=wanted)) == 0

    printed = capsys.readouterr().out
    assert printed.startswith("sample    bad\nstatus    completed\n")
    assert "--- 0 user\nbad?\n" in printed
    assert "score     0\nreason    because of bad\n" in printed


def test_a_failed_sample_is_shown_with_its_failure(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(given(store, sample="broken"))

    printed = capsys.readouterr().out
    assert "--- failed: scorer\nRuntimeError: the scorer broke \ufffd[2J" in printed
    assert "Traceback (most recent call last):" in printed


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("none", "sample 'none' does not exist"),
        ("", "sample '' does not exist"),
        ("b", "the prefix 'b' matches several samples: 'bad', 'broken'"),
    ],
)
def test_a_sample_that_is_not_one_is_refused(wanted: str, message: str, store: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        main(given(store, sample=wanted))


def test_one_of_several_repeats_is_chosen(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(store, *samples(a=1.0, b=0.0), repeats=3)

    main(given(store, sample="a"))
    assert "repeat    0 of 3; --repeat N shows another" in capsys.readouterr().out
    main(given(store, sample="a", repeat=2, json=True))
    said = json.loads(capsys.readouterr().out)
    assert (said["repeat"], said["sample"]["rollout_id"]) == (2, "a#2")
    main(given(store, sample="b#1", json=True))
    said = json.loads(capsys.readouterr().out)
    assert (said["repeat"], said["sample"]["id"]) == (1, "b")
    for wrong in ({"sample": "a", "repeat": 3}, {"sample": "a#3"}):
        with pytest.raises(ConfigError, match="repeat 3 does not exist; recorded are 0, 1, 2"):
            main(given(store, **wrong))


def test_an_id_that_looks_like_a_repeat_is_an_id(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store, *samples(**{"a": 1.0, "a#1": 0.0}))

    main(given(store, sample="a#1", json=True))

    assert json.loads(capsys.readouterr().out)["sample"]["id"] == "a#1"


def test_the_transcript_fits_80_columns(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(store, conversation("long", "漢" * 300 + "x" * 300, metadata={"score": 1.0}))

    main(given(store, sample="long"))

    assert max(map(cell_len, capsys.readouterr().out.splitlines())) <= 80


def test_the_next_command_works_for_an_id_that_begins_with_a_dash(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store, *samples(**{"-x": 0.0}))

    main(given(store))
    command = shlex.split(capsys.readouterr().out.splitlines()[-1])

    assert run_command(command[1:]) == 0
    assert capsys.readouterr().out.startswith("sample    -x\n")


def test_the_interval_of_a_run_is_that_of_its_scale(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path / "a.db", *samples(a=1.0, b=1.0), bounds=(-1, 1))

    main(given(tmp_path / "a.db", json=True))

    summary = json.loads(capsys.readouterr().out)["summary"]
    assert summary["bounds"] == [-1.0, 1.0]
    assert summary["score"]["interval"]["low"] < 0


def ingested(store: Path, folder: Path, **info: Any) -> Path:
    made = session(
        user(text("Do the tests pass?")), agent(text("No.")), directory="/srv/shop", **info
    )
    write_export(folder / "ses_1.json", made)
    run_command(["ingest", "opencode", str(folder / "ses_1.json"), "--store", str(store)])
    return store


def test_ingested_sessions_are_listed_with_title_date_and_project(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    store = ingested(tmp_path / "a.db", tmp_path, title="Failing \x1b[2J test " + "漢" * 60)
    capsys.readouterr()

    main(given(store))
    printed = capsys.readouterr().out
    main(given(store, json=True))
    (said,) = json.loads(capsys.readouterr().out)["samples"]

    lines = printed.splitlines()
    start = lines.index("sessions; times in UTC")
    assert lines[start + 1].startswith("  ses_1 Failing \ufffd[2J test 漢")
    assert lines[start + 2] == "    2026-11-15 18:06 | /srv/shop | not judged"
    assert max(map(cell_len, lines[: start + 3])) <= 80
    assert (said["id"], said["directory"]) == ("ses_1", "/srv/shop")
    assert said["title"].startswith("Failing")
    assert said["created"] == "2026-11-15T18:06:40Z"


def test_the_transcript_of_a_session_begins_with_title_date_and_project(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ingested(tmp_path / "a.db", tmp_path, title="Failing test")
    capsys.readouterr()

    main(given(store, sample="ses_1"))

    head = "sample    ses_1\ntitle     Failing test\ndate      2026-11-15 18:06 UTC\n"
    assert capsys.readouterr().out.startswith(head + "project   /srv/shop\nstatus    completed\n")


def test_the_label_of_a_sample_stands_beside_its_id(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(given(store))
    printed = capsys.readouterr().out
    main(given(store, json=True))
    said = json.loads(capsys.readouterr().out)["samples"]

    assert re.search(r"^  0\.000 +bad\? +bad$", printed, re.MULTILINE)
    assert [each["label"] for each in said[:2]] == ["broken?", "bad?"]
    assert "title" not in said[0]


LONG = "cannot read the reply: " + "word " * 30 + "end"


def fails_at_length(sample: Sample) -> float:
    raise RuntimeError(LONG)


def test_reasons_are_shown_in_full_where_no_terminal_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    path = tmp_path / "a.db"
    record(path, *samples(a=1.0, b=1.0), score_fn=fails_at_length)

    main(given(path))

    lines = capsys.readouterr().out.splitlines()
    assert f"  2 x scorer: RuntimeError: {LONG}" in lines
    assert f"                 reason    RuntimeError: {LONG}" in lines


def test_a_wide_terminal_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    path = tmp_path / "a.db"
    record(path, *samples(a=1.0), score_fn=fails_at_length)

    main(given(path, json=False))

    lines = capsys.readouterr().out.splitlines()
    (reason,) = [line for line in lines if line.startswith("                 reason")]
    assert cell_len(reason) == 140


def test_the_reasons_are_in_the_json_too(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(given(store, json=True))

    (group,) = json.loads(capsys.readouterr().out)["failures"]
    assert (group["samples"], group["boundary"], group["kind"]) == (1, "scorer", "RuntimeError")


def test_labels_of_people_are_shown(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store.open(store) as opened:
        run = opened.run("latest")
        key = next(run.results(sample_id="bad")).key
        run.write_label(
            SampleLabel(key, verdict="fail", score=0.5, answer="No.", note="§2", author="ada\x1b")
        )

    main(given(store))
    main(given(store, sample="bad"))
    main(given(store, json=True))
    main(given(store, sample="bad", json=True))

    printed = capsys.readouterr().out
    assert "labels        1: 1 fail, 1 with a score, 1 corrected\n" in printed
    assert "label     fail, score 0.5, corrected by ada\ufffd\n" in printed
    assert "answer    No.\n" in printed
    assert "note      §2\n" in printed
    assert '"corrected": 1' in printed
    assert '"author": "ada' in printed
