"""The lines about samples in the report of a failed test: which, why, and how to see each."""

import heapq
import shlex
from collections import Counter

from assay.stats import clean_text, format_number, format_plural
from assay.types import Boundary, Sample, redact

from .evaluation_run import TestRun
from .scorer_call import format_result_name
from .session_report import Evaluations
from .source_lines import find_place

_MAX_UNSCORED_LISTED = 20
_MAX_WORST_LISTED = 5
_MAX_LINE_CHARS = 300
# The message of a fault, and its place in the user's code.
_Fault = tuple[str, str | None]


def describe_worst(run: TestRun, evaluations: Evaluations, *, below: float | None) -> list[str]:
    """List the samples with the lowest scores: question, answer, reason and command."""
    if below is None:
        return []
    count = 0
    # A heap of the few that are shown, the best of them first: samples stream from the store.
    # The position breaks ties, so that samples are never compared.
    worst: list[tuple[float, int, Sample]] = []
    for position, sample in enumerate(run.report.samples):
        if (reward := sample.reward) is not None and reward < below:
            count += 1
            heapq.heappush(worst, (-reward, -position, sample))
            if len(worst) > _MAX_WORST_LISTED:
                heapq.heappop(worst)
    if not count:
        return []
    lines = [f"{format_plural(count, 'result')} below {format_number(below)}, the worst:"]
    places = {each.judged: each.place for each in run.assertions.first}
    for _, _, sample in sorted(worst, reverse=True):
        name = format_result_name(sample)
        reason = (sample.score.reason if sample.score is not None else None) or "no reason given"
        score = format_number(sample.reward or 0.0)
        lines += _format_problem(name, f"score {score}: {_shorten_line(reason)}", places.get(name))
        lines += _describe_answer(sample)
        lines.append(f"    transcript: {_format_show_command(run, evaluations, name)}")
    return lines


def _describe_answer(sample: Sample) -> list[str]:
    prompt = sample.prompt
    question = prompt if isinstance(prompt, str) else ""
    if not question:
        # The user's last message in the prompt, else the first one in the rollout.
        messages = [*reversed([] if isinstance(prompt, str) else prompt), *sample.messages]
        question = next((message.text for message in messages if message.role == "user"), "")
    expected = None if sample.ground_truth is None else str(sample.ground_truth)
    shown = {"question": question or None, "answer": sample.response or None, "expected": expected}
    return [
        f"    {label}: {_shorten_line(text)}" for label, text in shown.items() if text is not None
    ]


def describe_assertions(run: TestRun, evaluations: Evaluations) -> list[str]:
    """List the failed assertions: the sample, the comparison and the line of each."""
    assertions = run.assertions
    lines = [f"{format_plural(assertions.count, 'assertion')} failed (score 0.0):"]
    for each in sorted(assertions.first):
        lines += _format_problem(each.judged, _shorten_line(each.reason), each.place)
        # A group of samples has no transcript of its own.
        if each.is_sample:
            lines.append(f"    transcript: {_format_show_command(run, evaluations, each.judged)}")
    if len(assertions.first) < assertions.count:
        lines.append(f"  and {assertions.count - len(assertions.first)} more")
    return lines


def describe_unscored(run: TestRun, evaluations: Evaluations) -> list[str]:
    """List the samples without a valid score: which, why, and where the transcript is.

    Samples that share a fault, such as that of a batch function, are one entry.
    """
    summary = run.report.summary
    bad = summary.not_judged_results
    # Only the first of each fault is kept: samples stream from the store.
    first: dict[_Fault, Sample] = {}
    counts: Counter[_Fault] = Counter()
    for sample in run.report.samples:
        if sample.reward is not None:
            continue
        fault = _read_fault(sample)
        if fault in first or len(first) < _MAX_UNSCORED_LISTED:
            first.setdefault(fault, sample)
            counts[fault] += 1
    if bad == summary.results > 1 and len(first) == 1:
        shared = _format_fault(*first)
        return [f"all {format_plural(bad, 'result')} without a valid score: {shared}"]
    lines = [f"{bad} of {format_plural(summary.results, 'result')} without a valid score:"]
    for fault, sample in first.items():
        name, (text, place) = format_result_name(sample), fault
        text, *diff = text.split("\n") if _is_inconclusive(sample) else [text]
        if counts[fault] > 1:
            lines.append(f"  {counts[fault]} results: {_format_fault((text, place))}")
        else:
            lines += _format_problem(name, _shorten_line(text), place)
        # The first character of a line of a diff is its mark.
        lines += [f"    {line[:1]}{_shorten_line(line[1:])}" for line in diff]
        lines.append(f"    transcript: {_format_show_command(run, evaluations, name)}")
    if (others := bad - counts.total()) > 0:
        lines.append(f"  and {others} more: {_format_show_command(run, evaluations)}")
    return lines


def _is_inconclusive(sample: Sample) -> bool:
    """Whether the reason is followed by the diff of a call and its recording."""
    return sample.failure is not None and sample.failure.boundary is Boundary.REPLAY


def _format_fault(fault: _Fault) -> str:
    text, place = fault
    return _shorten_line(text) if place is None else f"{_shorten_line(text)} ({place})"


def _read_fault(sample: Sample) -> _Fault:
    failure, score = sample.failure, sample.score
    if failure is not None:
        text = f"{failure.boundary}: {failure.kind}: {failure.message}"
        return text, find_place(failure.traceback)
    return (None if score is None else score.error or score.reason) or "not judged", None


def _format_problem(name: str, problem: str, place: str | None) -> list[str]:
    lines = [f"  sample {clean_text(name, _MAX_LINE_CHARS)}: {problem}"]
    return lines if place is None else [*lines, f"    raised at: {place}"]


def _shorten_line(text: str) -> str:
    # The hint of an error has a line of its own; on one line it needs a separator.
    return clean_text(redact(text.replace("\n  hint: ", "; hint: ")), _MAX_LINE_CHARS)


def _format_show_command(run: TestRun, evaluations: Evaluations, *sample: str) -> str:
    # `store` of a report has no password, so the command may be printed.
    store = ["--store", run.report.store] if evaluations.settings.store_must_be_named else []
    # An id that looks like an option must not be taken for one.
    guard = ["--"] if any(word.startswith("-") for word in sample) else []
    words = ["assay", "show", *store, *guard, run.report.run_id, *sample]
    return clean_text(shlex.join(words), _MAX_LINE_CHARS)
