"""The lines about samples in the report of a failed test: which, why, and how to see each."""

import heapq
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from assay.stats import clean_text, format_number, format_plural
from assay.types import Boundary, Sample, redact

from .evaluation_run import TestRun
from .scorer_call import format_result_name
from .session_report import Evaluations
from .source_lines import find_place

_MAX_UNSCORED_LISTED = 20
_MAX_WORST_LISTED = 5
_MAX_LINE_CHARS = 300


def describe_worst(run: TestRun, evaluations: Evaluations, *, below: float | None) -> list[str]:
    """List the samples with the lowest scores: question, answer, reason and command."""
    if below is None:
        return []
    count, worst = _find_worst(run.report.samples, below)
    if not count:
        return []
    lines = [f"{format_plural(count, 'result')} below {format_number(below)}, the worst:"]
    places = {each.judged: each.place for each in run.assertions.first}
    for sample in worst:
        reason = (sample.score.reason if sample.score is not None else None) or "no reason given"
        score = format_number(sample.reward or 0.0)
        lines.append(
            f"  sample {_format_sample_name(sample)}: score {score}: {_shorten_line(reason)}"
        )
        lines += _describe_place(places.get(format_result_name(sample)))
        lines += (f"    {label}: {_shorten_line(text)}" for label, text in _describe_answer(sample))
        lines.append(
            f"    transcript: {_format_show_command(run, evaluations, format_result_name(sample))}"
        )
    return lines


def _find_worst(samples: Iterable[Sample], below: float) -> tuple[int, list[Sample]]:
    # Samples stream from the store: only the few that are shown stay in memory.
    count = 0

    def select() -> Iterator[tuple[float, int, Sample]]:
        nonlocal count
        for place, sample in enumerate(samples):
            if (reward := sample.reward) is not None and reward < below:
                count += 1
                yield reward, place, sample

    worst = heapq.nsmallest(_MAX_WORST_LISTED, select(), key=lambda each: each[:2])
    return count, [sample for _, _, sample in worst]


def _describe_answer(sample: Sample) -> Iterator[tuple[str, str]]:
    question = _find_question(sample)
    if question:
        yield "question", question
    if sample.response:
        yield "answer", sample.response
    if sample.ground_truth is not None:
        yield "expected", str(sample.ground_truth)


def _find_question(sample: Sample) -> str:
    # The user's last message in the prompt, else the first one in the rollout.
    if isinstance(sample.prompt, str) and sample.prompt:
        return sample.prompt
    prompt = [] if isinstance(sample.prompt, str) else sample.prompt
    messages = [*reversed(prompt), *sample.messages]
    return next((message.text for message in messages if message.role == "user"), "")


def describe_assertions(run: TestRun, evaluations: Evaluations) -> list[str]:
    """List the failed assertions: the sample, the comparison and the line of each."""
    assertions = run.assertions
    lines = [f"{format_plural(assertions.count, 'assertion')} failed (score 0.0):"]
    for each in sorted(assertions.first):
        lines.append(
            f"  sample {clean_text(each.judged, _MAX_LINE_CHARS)}: {_shorten_line(each.reason)}"
        )
        lines += _describe_place(each.place)
        if each.is_sample:
            lines.append(f"    transcript: {_format_show_command(run, evaluations, each.judged)}")
    if len(assertions.first) < assertions.count:
        lines.append(f"  and {assertions.count - len(assertions.first)} more")
    return lines


def describe_unscored(run: TestRun, evaluations: Evaluations) -> list[str]:
    """List the samples without a valid score: which, why, and where the transcript is.

    A fault that all samples share, such as that of a batch function, is one line; so is one that
    all samples share which reached the scorer, beside those whose rollout failed.
    """
    summary = run.report.summary
    bad = summary.not_judged_results
    found = _UnscoredSamples()
    for sample in run.report.samples:
        if sample.reward is None:
            found.add(sample)
    if bad == summary.results > 1 and len(found.faults) == 1:
        return [
            f"all {format_plural(bad, 'result')} without a valid score: "
            f"{_format_fault(*found.faults)}"
        ]
    lines = [f"{bad} of {format_plural(summary.results, 'result')} without a valid score:"]
    listed = found.first
    if bad == summary.results and found.in_scorer > 1 and len(found.scorer_faults) == 1:
        shared = f"all {found.in_scorer} results that reached the scorer"
        lines.append(f"  {shared}: {_format_fault(*found.scorer_faults)}")
        listed, bad = found.outside, bad - found.in_scorer
    for sample in listed:
        lines.append(
            f"  sample {_format_sample_name(sample)}: {_shorten_line(_describe_fault(sample))}"
        )
        lines += _describe_place(_find_fault_place(sample))
        lines.append(
            f"    transcript: {_format_show_command(run, evaluations, format_result_name(sample))}"
        )
    if bad > len(listed):
        lines.append(f"  and {bad - len(listed)} more: {_format_show_command(run, evaluations)}")
    return lines


# The message of a fault, and its place in the user's code.
_Fault = tuple[str, str | None]


@dataclass
class _UnscoredSamples:
    first: list[Sample] = field(default_factory=list)
    outside: list[Sample] = field(default_factory=list)
    """The first of those that did not fail in the scorer."""

    in_scorer: int = 0
    faults: set[_Fault] = field(default_factory=set)
    """At most two, like `scorer_faults`: it only matters whether all samples share one."""

    scorer_faults: set[_Fault] = field(default_factory=set)

    def add(self, sample: Sample) -> None:
        fault = _describe_fault(sample), _find_fault_place(sample)
        if len(self.faults) < 2:
            self.faults.add(fault)
        if len(self.first) < _MAX_UNSCORED_LISTED:
            self.first.append(sample)
        if sample.failure is not None and sample.failure.boundary is Boundary.SCORER:
            self.in_scorer += 1
            if len(self.scorer_faults) < 2:
                self.scorer_faults.add(fault)
        elif len(self.outside) < _MAX_UNSCORED_LISTED:
            self.outside.append(sample)


def _format_fault(fault: _Fault) -> str:
    text, place = fault
    return _shorten_line(text) if place is None else f"{_shorten_line(text)} ({place})"


def _format_sample_name(sample: Sample) -> str:
    return clean_text(format_result_name(sample), _MAX_LINE_CHARS)


def _describe_fault(sample: Sample) -> str:
    if sample.failure is not None:
        return f"{sample.failure.boundary}: {sample.failure.kind}: {sample.failure.message}"
    if sample.score is not None and sample.score.error:
        return sample.score.error
    return (sample.score.reason if sample.score is not None else None) or "not judged"


def _find_fault_place(sample: Sample) -> str | None:
    return None if sample.failure is None else find_place(sample.failure.traceback)


def _describe_place(place: str | None) -> list[str]:
    return [] if place is None else [f"    raised at: {place}"]


def _shorten_line(text: str) -> str:
    return clean_text(redact(text), _MAX_LINE_CHARS)


def _format_show_command(run: TestRun, evaluations: Evaluations, *sample: str) -> str:
    # `store` of a report has no password, so the command may be printed.
    store = ["--store", run.report.store] if evaluations.settings.store_must_be_named else []
    # An id that looks like an option must not be taken for one.
    guard = ["--"] if any(word.startswith("-") for word in sample) else []
    words = ["assay", "show", *store, *guard, run.report.run_id, *sample]
    return clean_text(shlex.join(words), _MAX_LINE_CHARS)
