"""Counts of labels: each sample once, by its last label."""

from dataclasses import replace

from assay.runner import LabelCounts, count_labels
from assay.store import SampleLabel, Store
from recorded_samples import RUN, find_key, record_samples


def test_the_last_label_of_each_sample_counts(empty_store: Store) -> None:
    record_samples(empty_store)
    run = empty_store.run(RUN)
    assert count_labels(run) == LabelCounts(0, 0, 0, 0, 0)

    for name, label in (
        ("judged", SampleLabel("", verdict="fail")),
        ("judged", SampleLabel("", verdict="pass", score=0.5)),
        ("steps", SampleLabel("", verdict="fail", answer="x")),
        ("files", SampleLabel("", note="only a note")),
    ):
        run.write_label(replace(label, key=find_key(run, name)))

    counts = count_labels(run)
    assert counts == LabelCounts(total=3, passed=1, failed=1, scored=1, corrected=1)
    assert counts.text == "3: 1 pass, 1 fail, 1 with a score, 1 corrected"
