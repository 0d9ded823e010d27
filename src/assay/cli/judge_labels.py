"""The human labels that a judge is compared with: of a file, or stored beside a run."""

from argparse import Namespace
from pathlib import Path

from assay.errors import ConfigError
from assay.scorers import Label, read_labels
from assay.store import Run

from .sample_input import is_sample_file
from .store_option import open_store


def read_label_source(args: Namespace) -> list[Label]:
    """Read the labels that `--labels` names. Raises `ConfigError` if there are none."""
    if is_sample_file(args.labels):
        return read_labels(Path(args.labels))
    with open_store(args) as store:
        return read_run_labels(store.run(args.labels))


def read_run_labels(run: Run) -> list[Label]:
    """Return the stored labels that are a verdict or a score. Raises `ConfigError`."""
    given = [label for label in run.labels() if label.score is not None or label.verdict]
    names = run.find_sample_ids(label.key for label in given)
    labels = []
    for label in given:
        sample_id, repeat = names[label.key]
        value = label.score if label.score is not None else float(label.verdict == "pass")
        if not 0 <= value <= 1:
            raise ConfigError(
                f"the label of sample {sample_id!r} has the score {value:g}; "
                "a judge can be compared with scores from 0 to 1 only",
                where=f"run {run.id!r}",
            )
        labels.append(Label(sample_id, value, repeat=repeat if run.spec.repeats > 1 else None))
    if not labels:
        raise ConfigError(
            "the run has no labels with a verdict or a score",
            where=f"run {run.id!r}",
            hint="open a sample with `assay view` and press l, or pass a file of labels",
        )
    return labels
