"""The comparison of two recorded runs: configurations, scores, and the answers that changed.

Commands and pages show the same comparison; this module formats nothing.
"""

import difflib
import json
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from assay.stats import Comparison, Pair
from assay.stats import compare as compare_results
from assay.store import PROVENANCE, Run, RunRow, RunSpec, SampleLabel, describe_differences
from assay.types import Sample

from .run_report import describe_run, find_reason

# In the identity of a `PromptTemplate`, whose import would be the most of a comparison's start.
_TEMPLATE_MARK = ".PromptTemplate "


@dataclass(frozen=True)
class ConfigDifference:
    """The differences between the specifications of two runs."""

    keys: tuple[str, ...]
    """The keys in which the configurations differ."""

    settings: tuple[str, ...]
    """Lines such as `endpoint.model: 'a' -> 'b'`, without the prompt's text."""

    prompt: tuple[str, ...]
    """A unified diff of the prompt's text."""

    dataset: str | None
    """How the datasets differ; None for the same one."""

    def plain(self) -> dict[str, Any]:
        """Return the differences as plain values."""
        return {
            "configurations_differ_in": list(self.keys),
            "settings": list(self.settings),
            "prompt_diff": list(self.prompt),
            "dataset": self.dataset,
        }


@dataclass(frozen=True)
class ChangedAnswers:
    """The answers of both runs to one sample, and the reason of the worse one's score."""

    old: str
    new: str
    expected: str
    reason: str
    old_repeat: int
    """The repeat with the answer `old`; of several the one that shows the change best."""

    new_repeat: int
    old_scores: tuple[float, ...]
    """The scores of all judged repeats."""

    new_scores: tuple[float, ...]
    old_label: SampleLabel | None = None
    """The label that a person gave to the answer `old`."""

    new_label: SampleLabel | None = None


@dataclass(frozen=True)
class RunComparison:
    """Run `b` against run `a`, the baseline."""

    a: RunRow
    b: RunRow
    differing: ConfigDifference
    comparison: Comparison
    answers: dict[str, ChangedAnswers]
    """The answers of the listed regressions and improvements, by sample id."""

    def plain(self) -> dict[str, Any]:
        """Return the comparison as plain values: the output of `assay compare A B --json`."""
        return {
            "a": self.a.id,
            "b": self.b.id,
            "runs": [describe_run(self.a), describe_run(self.b)],
            **self.differing.plain(),
            "conclusion": str(self.comparison.conclusion),
            **json.loads(self.comparison.model_dump_json()),
            "answers": {sample_id: asdict(each) for sample_id, each in self.answers.items()},
        }


def build_run_comparison(a: Run, b: Run, *, limit: int = 10) -> RunComparison:
    """Compare run `b` with the baseline `a`; at most `limit` samples are listed each way."""
    comparison = compare_results(a, b, limit=limit)
    changed = [(pair, True) for pair in comparison.regressions]
    changed += [(pair, False) for pair in comparison.improvements]
    return RunComparison(
        a=a.row(),
        b=b.row(),
        differing=find_config_difference(a.spec, b.spec),
        comparison=comparison,
        answers={
            pair.sample_id: _read_answers(a, b, pair, is_worse=is_worse)
            for pair, is_worse in changed
        },
    )


def find_config_difference(a: RunSpec, b: RunSpec) -> ConfigDifference:
    """Find the differences in what two runs were started with."""
    old, new = (
        {key: value for key, value in spec.config.items() if key not in PROVENANCE}
        for spec in (a, b)
    )
    keys = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
    diff = _diff_prompts(old.get("prompt"), new.get("prompt"))
    if diff:
        old, new = (
            {**config, "prompt": {**config["prompt"], "text": None}} for config in (old, new)
        )
        names = [str(config.get("prepare_messages")) for config in (old, new)]
        # The fingerprint of the template differs because its text does.
        if all(_TEMPLATE_MARK in name for name in names):
            old, new = ({**config, "prepare_messages": None} for config in (old, new))
    return ConfigDifference(
        keys=tuple(keys),
        settings=tuple(describe_differences(old, new)),
        prompt=tuple(diff),
        dataset=_describe_datasets(a, b),
    )


def _diff_prompts(old: Any, new: Any) -> list[str]:
    texts = [each.get("text") if isinstance(each, dict) else None for each in (old, new)]
    if not all(isinstance(text, str) for text in texts):
        return []
    before, after = (str(text).splitlines() for text in texts)
    # The first two lines name files, which the runs do not have.
    return [line.rstrip("\n") for line in difflib.unified_diff(before, after, n=2)][2:]


def _describe_datasets(a: RunSpec, b: RunSpec) -> str | None:
    if a.dataset != b.dataset:
        return f"{a.dataset} -> {b.dataset}"
    fingerprints = (a.dataset_fingerprint, b.dataset_fingerprint)
    if None in fingerprints or fingerprints[0] == fingerprints[1]:
        return None
    return f"{a.dataset} has changed between the runs"


def _read_answers(a: Run, b: Run, pair: Pair, *, is_worse: bool) -> ChangedAnswers:
    has_fallen = pair.difference < 0
    old_repeats, new_repeats = _read_repeats(a, pair), _read_repeats(b, pair)
    # Of several repeats those that show the change best.
    old = _choose_repeat(old_repeats, highest=has_fallen)
    new = _choose_repeat(new_repeats, highest=not has_fallen)
    truth = new.sample.ground_truth
    return ChangedAnswers(
        old=old.sample.response,
        new=new.sample.response,
        expected="" if truth is None else str(truth),
        reason=find_reason((new if is_worse else old).sample),
        old_repeat=old.number,
        new_repeat=new.number,
        old_scores=tuple(each.score for each in old_repeats),
        new_scores=tuple(each.score for each in new_repeats),
        old_label=a.find_labels([old.key]).get(old.key),
        new_label=b.find_labels([new.key]).get(new.key),
    )


class _Repeat(NamedTuple):
    key: str
    number: int
    score: float
    sample: Sample


def _read_repeats(run: Run, pair: Pair) -> list[_Repeat]:
    # Every sample of a pair has a valid score.
    rows = run.results(sample_id=pair.sample_id, valid=True)
    samples = run.samples(sample_id=pair.sample_id, valid=True)
    return [
        _Repeat(row.key, row.repeat, row.score or 0.0, sample)
        for row, sample in zip(rows, samples, strict=False)
    ]


def _choose_repeat(repeats: list[_Repeat], *, highest: bool) -> _Repeat:
    choose = max if highest else min
    return choose(repeats, key=lambda repeat: repeat.score)
