"""`EvalReport`: its samples as a data frame, in a notebook, and in comparisons."""

import sys
from pathlib import Path

import pytest

from assay.errors import ConfigError, MissingExtra
from assay.runner import EvalReport
from assay.stats import compare
from assay.store import Store
from assay.types import EvaluateResult, Metric, Sample
from recorded_runs import conversation, evaluated, judged_by_metadata, samples


def score_tone(sample: Sample) -> EvaluateResult:
    result = judged_by_metadata(sample)
    return result.model_copy(update={"metrics": {"score": Metric("score", 0.25)}})


@pytest.fixture
def report(tmp_path: Path) -> EvalReport:
    expected = conversation("fair", "no", metadata={"score": 0.5}, ground_truth="yes")
    given = [*samples(good=1.0, bad=0.0, broken="broken"), expected]
    return evaluated(tmp_path / "a.db", *given, score_fn=score_tone)


def test_a_data_frame_has_a_row_for_each_result(report: EvalReport) -> None:
    frame = report.to_pandas()

    assert list(frame.columns) == [
        *("id", "label", "repeat", "score", "metric.score", "response", "expected"),
        *("input_tokens", "output_tokens", "cost_usd", "latency_s", "failure"),
    ]
    assert list(frame["id"]) == ["good", "bad", "broken", "fair"]
    assert list(frame["label"]) == ["good?", "bad?", "broken?", "fair?"]
    assert list(frame["score"].dropna()) == [1.0, 0.0, 0.5]
    assert list(frame["metric.score"].dropna()) == [0.25, 0.25, 0.25]
    assert frame["failure"][2].startswith("scorer: RuntimeError: the scorer broke")
    assert (frame["response"][3], frame["expected"][3]) == ("no", "yes")


def test_repeats_have_rows_of_their_own(tmp_path: Path) -> None:
    frame = evaluated(tmp_path / "a.db", *samples(a=1.0), repeats=3).to_pandas()

    assert list(frame["repeat"]) == [0, 1, 2]


def test_an_empty_run_has_the_columns(tmp_path: Path) -> None:
    frame = evaluated(tmp_path / "a.db").to_pandas()

    assert len(frame) == 0
    assert "score" in frame.columns


def test_without_pandas_the_error_names_the_extra(
    report: EvalReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)

    with pytest.raises(MissingExtra, match=r"to_pandas.* needs the package `pandas`"):
        report.to_pandas()


def test_a_notebook_shows_score_interval_failures_and_worst_samples(report: EvalReport) -> None:
    shown = report._repr_html_()

    assert shown.startswith("<p><b>0.500 [")
    assert "<svg " in shown
    assert "1 of 4 results not judged" in shown
    assert "scorer: RuntimeError: the scorer broke \ufffd[2J" in shown
    assert shown.index("bad?") < shown.index("fair?")
    # Its score is the best possible one.
    assert "good?" not in shown
    assert "because of bad" in shown


def test_reports_and_comparisons_print_as_the_commands_print_them(report: EvalReport) -> None:
    assert str(report).startswith("score         0.500 [")
    assert str(report).endswith(f"run           {report.run_id}")
    assert str(compare(report, report)) == "\n".join(compare(report, report).lines())


def test_a_notebook_shows_each_repeat_that_is_bad(tmp_path: Path) -> None:
    def judge_repeats(sample: Sample) -> EvaluateResult:
        if sample.rollout_id == "a#2":
            raise RuntimeError("the judge broke")
        return EvaluateResult(score=float(sample.rollout_id != "a#1"), reason=sample.rollout_id)

    report = evaluated(tmp_path / "a.db", *samples(a=1.0), repeats=3, score_fn=judge_repeats)

    shown = report._repr_html_()

    failed, worst = shown.split("<p>failed samples</p>")[1].split("<p>worst samples</p>")
    assert "RuntimeError: the judge broke" in failed
    assert ">a#2<" in failed
    assert ">a#1<" in worst
    # Its first repeat has the best score.
    assert ">a<" not in worst
    assert failed.count(">1.000, 0.000, scorer failed<") == 1
    assert worst.count(">1.000, 0.000, scorer failed<") == 1
    assert "reasons for scores below 1.000" in shown


def test_a_notebook_never_gets_markup_of_samples(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    given = conversation(hostile, hostile, metadata={"score": 0.0, "reason": hostile})
    first = evaluated(tmp_path / "a.db", given)
    second = evaluated(tmp_path / "a.db", given.model_copy(update={"metadata": {"score": 1.0}}))

    for shown in (first._repr_html_(), compare(first, second)._repr_html_()):
        assert "<script" not in shown
        assert "&lt;script&gt;alert(1)&lt;/script&gt;?" in shown


def test_reports_and_runs_are_compared_with_labels(tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(8)]
    first = evaluated(tmp_path / "a.db", *samples(**dict.fromkeys(names, 1.0), gone=1.0))
    second = evaluated(tmp_path / "a.db", *samples(**dict.fromkeys(names, 0.0)))

    compared = compare(first, second, limit=2)

    assert [pair.sample_id for pair in compared.regressions] == ["s0", "s1"]
    assert compared.labels == {"s0": "s0?", "s1": "s1?", "gone": "gone?"}
    assert "1 missing in the second run" in compared._repr_html_()
    with Store.open(tmp_path / "a.db", create=False) as store:
        runs = store.run(first.run_id), store.run(second.run_id)
        assert compare(*runs, limit=2) == compared
    assert compare(first.results(), second.results(), limit=2).labels == {}


def test_reports_on_different_scales_are_not_compared(tmp_path: Path) -> None:
    first = evaluated(tmp_path / "a.db", *samples(a=1.0))
    second = evaluated(tmp_path / "a.db", *samples(a=1.0), bounds=(-1, 1))

    with pytest.raises(ConfigError, match="different scales"):
        compare(first, second)
