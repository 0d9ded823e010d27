"""The labels that a judge is compared with: of a file, or stored beside a run."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from assay.cli.judge_labels import read_label_source, read_run_labels
from assay.errors import ConfigError
from assay.scorers import Label
from assay.store import Run, SampleLabel, Store
from recorded_samples import REPEATS, RUN, find_key, record_samples


@pytest.fixture
def store(empty_store: Store) -> Store:
    record_samples(empty_store)
    return empty_store


def label(run: Run, sample_id: str, **values: Any) -> None:
    run.write_label(SampleLabel(find_key(run, sample_id), **values))


def test_verdicts_and_scores_of_a_run_are_labels(store: Store) -> None:
    run = store.run(RUN)
    label(run, "judged", verdict="fail")
    label(run, "checked", verdict="pass", score=0.25)
    label(run, "steps", note="only a note")

    assert read_run_labels(run) == [Label("judged", 0.0), Label("checked", 0.25)]


def test_repeats_are_labelled_apart(store: Store) -> None:
    run = store.run(REPEATS)
    first, second = (row.key for row in run.results(sample_id="twice"))
    run.write_label(SampleLabel(first, verdict="pass"))
    run.write_label(SampleLabel(second, verdict="fail"))

    assert read_run_labels(run) == [Label("twice", 1.0, repeat=0), Label("twice", 0.0, repeat=1)]


def test_a_run_without_labels_is_refused(store: Store) -> None:
    with pytest.raises(ConfigError, match="the run has no labels with a verdict or a score"):
        read_run_labels(store.run(RUN))


def test_a_score_on_another_scale_is_refused(store: Store) -> None:
    run = store.run(RUN)
    label(run, "judged", score=7.0)

    with pytest.raises(ConfigError, match="'judged' has the score 7"):
        read_run_labels(run)


def test_a_file_is_told_from_a_run(store: Store, tmp_path: Path) -> None:
    label(store.run(RUN), "judged", verdict="pass")
    file = tmp_path / "labels.jsonl"
    file.write_text('{"id": "x", "label": "fail"}')
    place = str(tmp_path / "assay.db")

    assert read_label_source(Namespace(labels=str(file), store=place)) == [Label("x", 0.0)]
    assert read_label_source(Namespace(labels=RUN, store=place)) == [Label("judged", 1.0)]
