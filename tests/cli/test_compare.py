"""`assay compare` from the inside."""

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from assay.cli.compare import format_config_difference, main
from assay.cli.output import format_lines
from assay.errors import ConfigError
from assay.runner import ConfigDifference
from assay.store import Store
from assay.types import EvaluateResult, Metric, Sample
from recorded_runs import conversation, judged_by_metadata, record, samples

NAMES = [f"s{number}" for number in range(8)]


def given(store: Path, a: str, b: str, **options: Any) -> Namespace:
    plain = {"limit": 20, "json": False, "fail_on_regression": False}
    return Namespace(store=str(store), a=a, b=b, **{**plain, **options})


def runs(store: Path, before: float, after: float, count: int = 8) -> tuple[str, str]:
    """Two runs of the same samples with these scores."""
    scores = (dict.fromkeys(NAMES[:count], score) for score in (before, after))
    first, second = (record(store, *samples(**each)) for each in scores)
    return first, second


def store_run_id(store: Path, number: int) -> str:
    """The id of a run, the newest being number 0."""
    with Store.open(store) as opened:
        return opened.runs()[number].id


@pytest.mark.parametrize(
    ("before", "after", "count", "status"),
    [(1.0, 0.0, 8, 1), (0.0, 1.0, 8, 0), (1.0, 1.0, 8, 0), (1.0, 0.0, 2, 3)],
)
def test_only_a_regression_that_is_asked_about_is_a_no(
    before: float, after: float, count: int, status: int, tmp_path: Path
) -> None:
    a, b = runs(tmp_path / "a.db", before, after, count)

    assert main(given(tmp_path / "a.db", a, b)) == 0
    assert main(given(tmp_path / "a.db", a, b, fail_on_regression=True)) == status


def test_the_lines_name_both_runs_and_what_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def other(sample: Sample) -> EvaluateResult:
        return judged_by_metadata(sample)

    store = tmp_path / "a.db"
    a = record(store, *samples(a=1.0))
    b = record(store, *samples(a=0.0), score_fn=other)

    main(given(store, a, "latest"))

    lines = capsys.readouterr().out.splitlines()
    start = lines.index(f"first run     {a}")
    assert lines[start + 1 : start + 3] == [f"second run    {b}", "differ in     score_fn"]
    assert "regressions (1)" in lines


def test_what_flipped_is_shown_with_question_and_both_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    store = tmp_path / "a.db"
    a = record(
        store,
        conversation("fell", "Paris", metadata={"score": 1.0}, ground_truth="Paris"),
        conversation("slipped", "blue", metadata={"score": 1.0}),
        conversation("rose", "5", metadata={"score": 0.0, "reason": "5 is not 4"}),
        conversation("gone", metadata={"score": 1.0}),
    )
    b = record(
        store,
        conversation(
            "fell", "Ly\x1b[2Jon", metadata={"score": 0.0, "reason": "no"}, ground_truth="Paris"
        ),
        conversation("slipped", "bluish", metadata={"score": 0.5}),
        conversation("rose", "4", metadata={"score": 1.0}),
    )

    main(given(store, a, b))
    printed = capsys.readouterr().out
    main(given(store, a, b, json=True))
    said = json.loads(capsys.readouterr().out)

    assert "left out      1 missing in the second run\n  gone | gone?\n" in printed
    assert printed[printed.index("regressions (2)") :].splitlines() == [
        "regressions (2)",
        f"  1.000 -> 0.000  {'fell?':<53}  fell",
        "    old answer  Paris",
        "    new answer  Ly\ufffd[2Jon",
        "    expected    Paris",
        "    reason      no",
        f"  1.000 -> 0.500  {'slipped?':<53}  slipped",
        "    old answer  blue",
        "    new answer  bluish",
        "improvements (1)",
        f"  0.000 -> 1.000  {'rose?':<56}  rose",
        "    old answer  5",
        "    new answer  4",
        "    reason      5 is not 4",
        "next:",
        f"  assay show {a} fell --store {store}",
        f"  assay show {b} fell --store {store}",
    ]
    assert said["answers"]["slipped"]["new"] == "bluish"
    assert said["labels"]["rose"] == "rose?"


def test_the_rest_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = runs(tmp_path / "a.db", 1.0, 0.0)

    main(given(tmp_path / "a.db", a, b, limit=3))

    printed = capsys.readouterr().out
    assert printed.count("new answer") == 3
    assert "\n  and 5 more; pass --limit to list more\nnext:\n" in printed


def test_of_several_repeats_those_that_show_the_change_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def score_repeats(sample: Sample) -> EvaluateResult:
        return EvaluateResult(score=float(sample.rollout_id == "a#1"), reason=sample.rollout_id)

    store = tmp_path / "a.db"
    a = record(store, *samples(a=1.0), repeats=2)
    b = record(store, *samples(a=1.0), repeats=2, score_fn=score_repeats)

    main(given(store, b, a))
    printed = capsys.readouterr().out
    main(given(store, a, b, json=True))

    assert json.loads(capsys.readouterr().out)["answers"]["a"]["reason"] == "a#0"
    assert "    repeats     0, 1 -> 1, 1\n" in printed


def test_runs_with_the_same_answers_have_no_command_to_run_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = runs(tmp_path / "a.db", 1.0, 1.0)

    main(given(tmp_path / "a.db", a, b))

    assert "next:" not in capsys.readouterr().out


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_comparison_fits_and_uses_the_terminal(
    columns: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    store = tmp_path / "a.db"
    question, answer = "漢字 " * 40, "word " * 60
    for score in (1.0, 0.0):
        row = conversation(question, answer, metadata={"score": score, "reason": answer})
        record(store, row, name="long " * 20)
    a, b = (store_run_id(store, number) for number in (1, 0))

    main(given(store, a, b))

    shown = capsys.readouterr().out.split("next:")[0].splitlines()
    ids = [line for line in shown if line.startswith(("first run", "second run"))]
    widths = [cell_len(line) for line in shown if line not in ids]
    assert columns - 1 <= max(widths) <= columns


def test_json_says_what_the_lines_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = runs(tmp_path / "a.db", 1.0, 0.0)

    main(given(tmp_path / "a.db", a, b, json=True, limit=3))

    said = json.loads(capsys.readouterr().out)
    assert (said["a"], said["b"], said["conclusion"]) == (a, b, "worse")
    assert (said["losses"], len(said["regressions"])) == (8, 3)
    assert said["configurations_differ_in"] == []


def test_metrics_and_repeats_that_differ_are_in_the_lines_and_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(sample: Sample) -> EvaluateResult:
        tone = 1.0 if sample.metadata["score"] == 1.0 else 0.0
        return EvaluateResult(score=0.5, metrics={"tone": Metric("tone", tone)})

    store = tmp_path / "a.db"
    first = samples(**dict.fromkeys(NAMES, 1.0))
    second = samples(**dict.fromkeys(NAMES, 0.0))
    a = record(store, *first, score_fn=measured)
    b = record(store, *second, score_fn=measured, repeats=3)

    main(given(store, a, b))
    lines = capsys.readouterr().out
    main(given(store, a, b, json=True))
    told = json.loads(capsys.readouterr().out)

    assert "repeats       1 in the first run, 3 in the second: they differ in 8 pairs." in lines
    assert "metrics (1), p adjusted by Holm's method" in lines
    assert (told["repeats_a"], told["repeats_b"], told["unequal_repeats"]) == ([1, 1], [3, 3], 8)
    assert told["metrics"]["tone"]["conclusion"] == "lower"
    assert told["metrics"]["tone"]["p_value"] <= told["metrics"]["tone"]["adjusted_p"] <= 0.05


def test_runs_are_compared_on_their_scale(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "a.db"
    for name, bounds in (("share", None), ("reward", (-1.0, 1.0))):
        for score in (1.0, 0.0):
            record(
                store,
                *samples(**dict.fromkeys(NAMES, score)),
                name=f"{name}{score:.0f}",
                bounds=bounds,
            )

    widths = []
    for name in ("share", "reward"):
        main(given(store, f"{name}1", f"{name}0", json=True))
        difference = json.loads(capsys.readouterr().out)["difference"]
        widths.append(difference["high"] - difference["low"])

    assert widths[1] > widths[0]
    with pytest.raises(ConfigError, match="different scales"):
        main(given(store, "share1", "reward1"))


def shown(monkeypatch: pytest.MonkeyPatch, found: ConfigDifference) -> list[str]:
    monkeypatch.setenv("COLUMNS", "80")
    return format_lines(format_config_difference(found), None).splitlines()


def test_the_diff_of_a_prompt_keeps_its_indentation_and_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    diff = ("@@ -1,2 +1,2 @@", " Be brief.", "-  Answer:\x1b[2J {q}", f"+  Think: {'漢' * 50}")
    found = ConfigDifference(("prompt",), ("prompt.name: 'a' -> 'b'",), diff, None)

    lines = shown(monkeypatch, found)

    assert lines[:6] == [
        "differ in     prompt",
        "  prompt.name: 'a' -> 'b'",
        "  prompt:",
        "    @@ -1,2 +1,2 @@",
        "     Be brief.",
        "    -  Answer:\ufffd[2J {q}",
    ]
    assert lines[6].startswith("    +  Think: 漢")
    assert lines[6].endswith("…")
    assert cell_len(lines[6]) <= 80


def test_a_long_line_of_a_prompt_is_shown_where_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long = "word " * 60
    diff = (
        "@@ -1,4 +1,4 @@",
        f" {long}kept",
        f"-{long}Be brief.",
        f"-Short {long}",
        f"+{long}Be very brief.",
        f"+Brief {long}",
        f"-{long}gone",
    )

    lines = shown(monkeypatch, ConfigDifference(("prompt",), (), diff, None))[2:]

    assert lines[2].startswith("    -…")
    assert lines[2].endswith("word Be brief.")
    assert lines[4].endswith("word Be very brief.")
    assert lines[3].startswith("    -Short word")
    assert lines[5].startswith("    +Brief word")
    assert lines[6].startswith("    -word word")
    assert max(map(cell_len, lines)) <= 80


def test_long_differences_are_cut_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tuple(f"s{number}: 1 -> 2" for number in range(12))
    diff = tuple(f"+ line {number}" for number in range(41))

    lines = shown(monkeypatch, ConfigDifference(("s",), settings, diff, "rows -> other"))

    assert lines[0] == "differ in     s, dataset"
    assert "  and 2 more settings" in lines
    assert "  dataset: rows -> other" in lines
    assert lines[-1] == "    and 1 more lines"


def test_equal_configurations_differ_in_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ConfigDifference((), (), (), None)

    assert shown(monkeypatch, found) == ["differ in     nothing of their configurations"]


@pytest.mark.parametrize("columns", ["1", "36", "50", "52"])
def test_wide_scores_beside_long_ids_are_shown_in_a_narrow_terminal(
    columns: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = [f"a-long-id-of-sample-{number}" for number in range(6)]
    store = tmp_path / "a.db"
    a = record(store, *samples(**dict.fromkeys(ids, -1.23456e100)))
    b = record(store, *samples(**dict.fromkeys(ids, -2.34567e100)))
    monkeypatch.setenv("COLUMNS", columns)

    assert main(given(store, a, b)) == 0

    assert "-1.23456e+100 -> -2.34567e+100  a-lo" in capsys.readouterr().out
