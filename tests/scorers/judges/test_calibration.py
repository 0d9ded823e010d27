"""A judge beside people: agreement, kappa, confusion, and what was left out."""

from pathlib import Path

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import ConfigError
from assay.scorers import Calibrator, Label, calibrate, read_labels
from assay.types import EvaluateResult, Metric, Sample
from judge_answers import conversation

# 20 both pass, 5 only people, 10 only judge, 15 both fail: a textbook table with kappa 0.4.
TEXTBOOK = [(1.0, 1.0)] * 20 + [(1.0, 0.0)] * 5 + [(0.0, 1.0)] * 10 + [(0.0, 0.0)] * 15


def test_kappa_is_agreement_beyond_chance() -> None:
    found = calibrate(TEXTBOOK)

    assert found.agreement == pytest.approx(0.7)
    assert found.kappa == pytest.approx(0.4)
    assert found.kappa_low == pytest.approx(0.108, abs=0.001)
    assert (found.both_pass, found.only_people, found.only_judge, found.both_fail) == (
        20,
        5,
        10,
        15,
    )


def test_the_mean_of_equal_votes_reaches_a_threshold_of_that_score() -> None:
    mean = sum([0.7, 0.7, 0.7]) / 3

    assert mean < 0.7
    assert calibrate([(1.0, mean), (0.0, 0.699)], threshold=0.7).both_pass == 1
    assert calibrate([(1.0, 0.699)], threshold=0.7).only_people == 1


def test_the_table_is_printed_with_rows_of_people() -> None:
    lines = "\n".join(calibrate(TEXTBOOK, criterion="done").lines())

    assert "calibration   done, 50 labelled samples" in lines
    assert "agreement   0.700 [0.562, 0.809]" in lines
    assert "kappa       0.400 [0.108, 0.643] approximately" in lines
    assert "people pass             20             5" in lines
    assert "people fail             10            15" in lines


def test_what_was_not_judged_is_counted_and_never_a_fail() -> None:
    found = calibrate([(1.0, 1.0), (1.0, None), (0.0, None), (0.0, 0.0)])

    assert (found.compared, found.not_judged, found.agreement) == (2, 2, 1.0)
    assert "2 labelled samples; 2 not judged" in found.lines()[0]


@pytest.mark.parametrize("pairs", [[(1.0, 1.0)] * 9, [(1.0, 0.9), (0.0, 0.8)]])
def test_kappa_is_unknown_when_one_side_says_only_one_thing(
    pairs: list[tuple[float, float]],
) -> None:
    found = calibrate(pairs)

    assert found.kappa is None
    assert "kappa       none: one side" in found.lines()[2]


def test_full_agreement_of_few_is_no_certainty() -> None:
    found = calibrate([(1.0, 1.0), (0.0, 0.0)])

    assert (found.kappa, found.kappa_high) == (1.0, 1.0)
    assert found.kappa_low is not None
    assert found.kappa_low < 0
    assert found.agreement_low is not None
    assert found.agreement_low < 0.5


@pytest.mark.parametrize("n", [15, 20, 50, 100])
@pytest.mark.parametrize("share", [0.5, 0.8])
def test_the_interval_of_kappa_holds_its_confidence(n: int, share: float) -> None:
    """An interval from a standard error held 0.8 only 88 % of the time with 50 samples."""
    for kappa in (0.0, 0.4, 0.8, 0.9):
        assert coverage(n, share, kappa) >= 0.94, kappa


def coverage(n: int, share: float, kappa: float) -> float:
    """How often the interval holds a kappa, both sides passing the same share."""
    differ = share * (1 - share) * (1 - kappa)
    chances = [share - differ, differ, differ, 1 - share - differ]
    drawn = numpy.random.default_rng(7).multinomial(n, chances, 1000)
    kinds = [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]
    held = known = 0
    for table, count in zip(*numpy.unique(drawn, axis=0, return_counts=True), strict=True):
        found = calibrate(
            [kind for kind, times in zip(kinds, table, strict=True) for _ in range(times)]
        )
        if found.kappa_low is not None and found.kappa_high is not None:
            known += count
            held += count * (found.kappa_low <= kappa <= found.kappa_high)
    return float(held / known)


def test_nothing_to_compare_is_said() -> None:
    found = calibrate([(1.0, None)])

    assert (found.agreement, found.kappa, found.mean_distance) == (None, None, None)
    assert found.lines() == ["calibration   score: no labelled sample was judged"]


shares = st.floats(0, 1)


@given(st.lists(st.tuples(shares, st.none() | shares), max_size=30), shares)
def test_every_pair_is_somewhere(pairs: list[tuple[float, float | None]], threshold: float) -> None:
    found = calibrate(pairs, threshold)

    cells = found.both_pass + found.both_fail + found.only_judge + found.only_people
    assert cells == found.compared
    assert found.compared + found.not_judged == len(pairs)
    assert found.kappa is None or -1 <= found.kappa <= 1


def judged(name: str, score: float | None, **metrics: float) -> Sample:
    result = EvaluateResult(
        score=score, metrics=[Metric(key, value) for key, value in metrics.items()]
    )
    return conversation(id=name).model_copy(update={"score": result})


def test_labels_meet_the_samples_that_go_by() -> None:
    labels = [Label("a", 1.0), Label("a", 0.0, "done"), Label("b", 0.0), Label("gone", 1.0)]
    calibrator = Calibrator(labels, 0.5)

    for sample in (judged("a", 0.9, done=0.1), judged("b", None), judged("c", 1.0)):
        calibrator.add(sample)

    whole, done = calibrator.compute_calibrations()
    assert (whole.criterion, whole.compared, whole.not_judged) == (None, 1, 1)
    assert (done.criterion, done.both_fail) == ("done", 1)
    assert calibrator.missing == ["gone"]
    assert calibrator.unlabelled == 1
    assert calibrator.criteria == {"done"}


def test_a_label_of_one_repeat_meets_only_that_rollout() -> None:
    labels = [Label("a", 1.0, repeat=1), Label("b", 0.0), Label("c", 1.0, repeat=7)]
    calibrator = Calibrator(labels, 0.5)

    for name, repeat, score in (("a", 0, 0.0), ("a", 1, 1.0), ("b", 0, 0.0), ("b", 1, 0.0)):
        calibrator.add(judged(name, score), repeat)

    compared = calibrator.compute_calibrations()[0]
    assert (compared.compared, compared.agreement) == (3, 1.0)
    assert calibrator.unlabelled == 1
    assert calibrator.missing == ["c"]


def test_labels_are_read_in_every_spelling(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(
        '{"id": "a", "label": "pass"}\n{"id": "b", "label": false}\n\n'
        '{"id": "c", "label": 0.25}\n{"id": "c", "label": "Fail", "criterion": "done"}\n'
    )

    assert read_labels(path) == [
        Label("a", 1.0),
        Label("b", 0.0),
        Label("c", 0.25),
        Label("c", 0.0, "done"),
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("nonsense", "the line is not a JSON object"),
        ("[1]", "the line is not a JSON object"),
        ("[" * 90_000, "the line is not a JSON object"),
        ('{"label": 1}', "the label has no `id`"),
        ('{"id": 7, "label": 1}', "the label has no `id`"),
        ('{"id": "x"}', "the `label` of 'x' is invalid"),
        ('{"id": "x", "label": "maybe"}', "the `label` of 'x' is invalid"),
        ('{"id": "x", "label": 3}', "the `label` of 'x' is invalid"),
        ('{"id": "x", "label": NaN}', "the `label` of 'x' is invalid"),
        ('{"id": "x", "label": 1, "criterion": 2}', "the `criterion` of 'x' is not text"),
        ('{"id": "x", "label": 1, "labell": 0}', "the label has unknown keys: labell"),
        ('{"id": "a", "label": 0}', "sample 'a' has a second label"),
    ],
)
def test_a_bad_label_is_told_with_its_line(line: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(f'{{"id": "a", "label": 1}}\n{line}\n')

    with pytest.raises(ConfigError) as caught:
        read_labels(path)

    assert str(caught.value).startswith(f"{path}:2: {problem}")


def test_a_file_without_labels_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "latin.jsonl").write_bytes(b"\xe9")

    for name in ("empty.jsonl", "latin.jsonl", "none.jsonl"):
        with pytest.raises(ConfigError):
            read_labels(tmp_path / name)
