"""`assay quickstart` from the inside: what it counts and what it refuses to pass on."""

import json
from argparse import Namespace
from pathlib import Path

import pytest

from assay.cli import quickstart
from assay.cli.quickstart import main, question, score_samples, summary
from assay.models import Sample

TABLE, JSON = Namespace(json=False), Namespace(json=True)


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def dataset(folder: Path, *rows: tuple[str, object]) -> Path:
    """A file of rows, each an answer and its ground truth."""
    path = folder / "rows.jsonl"
    lines = [
        {
            "id": f"row-{number}",
            "messages": [
                {"role": "user", "content": "Where [bold]now[/bold]?"},
                {"role": "assistant", "content": answer},
            ],
            "ground_truth": expected,
        }
        for number, (answer, expected) in enumerate(rows)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def test_the_shipped_samples_show_every_outcome() -> None:
    samples = score_samples(quickstart.DATASET)

    said = summary(samples)
    assert 12 <= len(samples) <= 16
    assert {each["score"] for each in said["samples"]} == {0.0, 1.0, None}
    assert said["not_judged"] == 1
    assert sum(any(message.tool_calls for message in each.messages) for each in samples) >= 5


def test_the_mean_leaves_out_what_was_not_judged_and_counts_it(tmp_path: Path) -> None:
    samples = score_samples(dataset(tmp_path, ("a", "a"), ("b", "a"), ("c", None)))

    said = summary(samples)

    assert (said["mean"], said["judged"], said["not_judged"]) == (0.5, 2, 1)
    assert said["samples"][2]["score"] is None
    assert said["samples"][2]["reason"] == "no ground truth"


def test_without_a_judged_sample_there_is_no_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(quickstart, "DATASET", dataset(tmp_path, ("a", None)))

    assert main(TABLE) == 0

    assert "mean score none over 0 judged samples; 1 not judged" in capsys.readouterr().out


def test_hostile_answers_are_shown_and_not_obeyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = ["\x1b[2J\x1b]0;x\x07", "[red]x[/nope]", "a\nb\r\x9b2J", "\u202e\x7f", "漢" * 40]
    rows = dataset(tmp_path, *((text, text) for text in hostile))
    monkeypatch.setattr(quickstart, "DATASET", rows)

    assert main(TABLE) == main(JSON) == 0

    printed = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\x9b", "\r", "\u202e", "\x7f"} & set(printed)
    assert "[red]x[/nope]" in printed
    assert "Where [bold]now" in printed


def test_the_table_fits_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rich.cells import cell_len

    rows = dataset(
        tmp_path, ("word " * 99 + "end", ["b"] * 50), ("漢" * 40, "漢" * 40), ("漢" * 9, 1)
    )
    monkeypatch.setattr(quickstart, "DATASET", rows)

    assert main(TABLE) == 0

    lines = capsys.readouterr().out.splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert "…ord word word end " in lines[2]
    assert "…漢漢漢漢漢漢漢漢 " in lines[3]
    assert " 漢漢漢漢漢漢漢漢漢 " in lines[4]


def test_json_says_what_the_table_says_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "no, " * 50
    monkeypatch.setattr(quickstart, "DATASET", dataset(tmp_path, (long, "yes\x7f")))

    assert main(JSON) == 0

    said = json.loads(capsys.readouterr().out)
    assert said["samples"][0]["answer"] == long
    assert said["samples"][0]["expected"] == "yes\x7f"
    assert said["mean"] == 0.0


def test_the_question_is_what_the_user_asked_last() -> None:
    turns = [("user", "A?"), ("assistant", "Which?"), ("user", "B?"), ("assistant", "C")]
    sample = Sample(prompt=[{"role": role, "content": text} for role, text in turns])

    assert question(sample) == "B?"
    assert question(Sample(prompt=[{"role": "assistant", "content": "Hello"}])) == ""
