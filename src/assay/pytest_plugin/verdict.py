"""Whether a test passes, decided after all of its samples are recorded."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest

from assay.errors import AssayError, RunStopped
from assay.stats import (
    GateRule,
    Outcome,
    Verdict,
    clean_text,
    format_plural,
    join_wrapped,
    judge_gate,
)
from assay.types import describe_error, error_message, redact

from .assertions import FailedAssertions
from .decorator import EvalOptions, eval_options_of
from .environment_servers import build_token_redactor
from .evaluation_record import (
    Record,
    build_blank_record,
    fill_config,
    fill_numbers,
    mark_failed,
)
from .evaluation_run import Evaluation, TestRun
from .sample_lines import describe_assertions, describe_unscored, describe_worst
from .session_report import Evaluations
from .source_lines import find_place

_MAX_VERDICT_CHARS = 300


def run_test(item: "pytest.Function", options: EvalOptions, evaluations: Evaluations) -> None:
    """Evaluate every sample, record them all, and only then fail the test if it must fail."""
    evaluation = Evaluation(item, options, evaluations)
    with _fail_without_traceback(item), _record_outcome(evaluation) as verdict:
        verdict.rule = read_gate_rule(options.threshold)
        evaluation.run()
    fail_test(item, verdict)


async def run_test_in_loop(
    item: "pytest.Function", options: EvalOptions, evaluations: Evaluations
) -> "TestVerdict":
    """Run a test with an async function, in the event loop of a plugin."""
    evaluation = Evaluation(item, options, evaluations)
    with _fail_without_traceback(item), _record_outcome(evaluation) as verdict:
        verdict.rule = read_gate_rule(options.threshold)
        await evaluation.run_in_loop()
    return verdict


def fail_test(item: "pytest.Function", verdict: "TestVerdict") -> None:
    """Fail the test if it has a problem; with --pdb, at the place where its function raised."""
    if verdict.problem is None:
        return
    if verdict.error is not None and item.config.getoption("usepdb"):
        raise verdict.error
    # Without a traceback: it would show the plugin, and hide the message.
    pytest.fail(verdict.problem, pytrace=False)


@dataclass
class TestVerdict:
    """The rule of a test, and its outcome."""

    __test__ = False

    rule: GateRule | None = None
    problem: str | None = None
    """Why the test fails; None when it passes."""

    error: BaseException | None = None
    """The first exception of the test's function, with its frames."""


@contextmanager
def _record_outcome(evaluation: Evaluation) -> Iterator[TestVerdict]:
    """Record a test however it ends. Errors other than assay's are recorded and re-raised."""
    verdict = TestVerdict()
    blank = build_blank_record(evaluation.item, evaluation.options)
    with evaluation.evaluations.files.running(blank):
        try:
            # The caller parses the rule in here, so that an invalid one is recorded as well.
            yield verdict
        except AssayError as error:
            reason = error_message(error)
            _record_stopped_test(evaluation, reason)
            verdict.problem = f"{evaluation.item.name}: {reason}"
            # Only a stopped run has a cause in the user's code; other errors describe themselves.
            if isinstance(error, RunStopped) and error.__cause__ is not None:
                place = find_place("".join(traceback.format_exception(error.__cause__)))
                verdict.problem += "" if place is None else f"\n  raised at: {place}"
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            _record_stopped_test(
                evaluation, "interrupted" if interrupted else describe_error(error)
            )
            raise
        else:
            verdict.problem = _conclude_test(evaluation, verdict.rule)
        if evaluation.function is not None:
            verdict.error = evaluation.function.assertions.error


@contextmanager
def _fail_without_traceback(item: "pytest.Function") -> Iterator[None]:
    """Fail the test by what assay cannot record, such as for a folder that cannot be written."""
    try:
        yield
    except AssayError as error:
        problem = f"{item.name}: {error_message(error)}"
        raise pytest.fail.Exception(problem, pytrace=False) from None


def record_report(
    item: "pytest.Item",
    call: "pytest.CallInfo[None]",
    report: "pytest.TestReport",
    evaluations: Evaluations,
) -> None:
    """Make the summary agree with pytest: failed fixtures, xfail marks, errors of a teardown."""
    options, error = eval_options_of(getattr(item, "function", None)), call.excinfo
    if options is not None and error is not None:
        # A skipped test is not part of the summary.
        is_skip = isinstance(error.value, pytest.skip.Exception)
        if call.when == "setup" and isinstance(item, pytest.Function) and not is_skip:
            reason = f"setup: {describe_error(error.value)}"
            evaluations.add(mark_failed(build_blank_record(item, options), reason))
        redact_report(report, options)
    if (xfail := getattr(report, "wasxfail", None)) is not None:
        evaluations.files.write_verdict(report.nodeid, {"passed": True, "xfail": str(xfail)})
    elif report.failed and report.when != "setup" and report.nodeid in evaluations.passed:
        reason = clean_text(redact(report.longreprtext.strip()), _MAX_VERDICT_CHARS)
        where = "teardown: " if report.when == "teardown" else ""
        verdict = {"passed": False, "reason": f"{where}{reason}"}
        evaluations.files.write_verdict(report.nodeid, verdict)


def redact_report(report: "pytest.TestReport", options: EvalOptions) -> None:
    """Redact secrets in a traceback."""
    shown = str(report.longrepr)
    token = build_token_redactor(options)
    if (redacted := redact(token.clean(shown))) != shown:
        report.longrepr = redacted


def read_gate_rule(threshold: object) -> GateRule | None:
    """Return the gate rule of a threshold. Raises `AssayError` for an unsupported rule."""
    if threshold is None:
        return None
    if not isinstance(threshold, GateRule):
        return GateRule(minimum=float(threshold))  # type: ignore[arg-type]  # checked when written
    if threshold.minimum is None or threshold.tolerance is not None:
        raise AssayError(
            "`threshold` is not a GateRule with a minimum and without a tolerance",
            where="@evaluation_test",
            hint="compare with a baseline by --assay-baseline and --assay-tolerance",
        )
    return threshold


def _record_stopped_test(evaluation: Evaluation, reason: str) -> None:
    # The finished runs of an aborted test keep their results; without any, the record is blank.
    for run in evaluation.runs:
        record = mark_failed(_build_test_record(evaluation, run), reason)
        evaluation.evaluations.add(record, run.report.store)
    if not evaluation.runs:
        blank = build_blank_record(evaluation.item, evaluation.options)
        evaluation.evaluations.add(mark_failed(blank, reason))


def _build_test_record(evaluation: Evaluation, run: TestRun) -> Record:
    options, spec = evaluation.options, run.report.spec
    blank = replace(
        build_blank_record(evaluation.item, options, run.endpoint),
        run=run.report.run_id,
        skipped=clean_text(run.skipped, _MAX_VERDICT_CHARS),
        dataset=spec.dataset,
        dataset_fingerprint=spec.dataset_fingerprint or evaluation.dataset_fingerprint,
    )
    used_model = run.config.get("endpoint") is not None or options.rollout_fn is not None
    counted = fill_numbers(blank, run.report.summary, used_model=used_model)
    return fill_config(counted, options, run.config)


def _conclude_test(evaluation: Evaluation, rule: GateRule | None) -> str | None:
    lines: list[str] = []
    for run in evaluation.runs:
        blank = _build_test_record(evaluation, run)
        record, problems = judge_run(blank, run, rule, evaluation.evaluations)
        evaluation.evaluations.add(record, run.report.store)
        # One item of the JUnit report has the numbers of all endpoints that it judged together.
        suffix = f"[{run.endpoint}]" if run.endpoint and len(evaluation.runs) > 1 else ""
        evaluation.item.user_properties.extend(
            (f"{name}{suffix}", value) for name, value in record.properties()
        )
        if problems:
            name = clean_text(record.test.rpartition("::")[2], _MAX_VERDICT_CHARS)
            lines += [f"{name}: {record.format_headline()}", *problems]
    # Ctrl-C stopped the run, not pytest: raise it again after the results are recorded.
    if evaluation.interrupted:
        raise KeyboardInterrupt
    return "\n".join(lines) or None


def judge_run(
    record: Record, run: TestRun, rule: GateRule | None, evaluations: Evaluations
) -> tuple[Record, list[str]]:
    """Pass or fail one run. Returns its record and the lines of the failure report."""
    problems: list[str] = []
    reasons: list[str] = []
    if run.report.interrupted:
        reasons.append("interrupted")
    if not record.results:
        reasons.append("no sample was evaluated")
        problems += reasons[-1:]
    if has_invalid(record):
        lines = describe_unscored(run, evaluations)
        count = format_plural(record.results - record.judged, "result")
        reasons.append(lines[0] if len(lines) == 1 else f"without a valid score: {count}")
        problems += lines
    if rule is not None and record.score is not None:
        verdict = judge_gate(run.report.summary, rule)
        if misses(verdict):
            problems += join_wrapped(verdict.lines())
            problems += describe_worst(run, evaluations, below=rule.minimum)
            missed = [check for check in verdict.checks if check.outcome is not Outcome.PASSED]
            reasons += [check.text for check in missed]
    if fails_by_assertion(run.assertions, rule):
        failed_ones = format_plural(run.assertions.count, "assertion")
        reasons.append(f"{failed_ones} failed, and no `threshold` allows any to fail")
        problems += describe_assertions(run, evaluations)
    if reasons:
        return mark_failed(record, "; ".join(reasons)), problems
    return replace(record, passed=True), []


def has_invalid(record: Record) -> bool:
    """The gate on scores: every result must have a valid one."""
    return record.judged != record.results


def fails_by_assertion(assertions: FailedAssertions, rule: GateRule | None) -> bool:
    """The gate on assertions: without a threshold none may fail."""
    return rule is None and assertions.count > 0


def misses(verdict: Verdict) -> bool:
    """The gate on the threshold: an inconclusive verdict does not pass either."""
    return verdict.outcome is not Outcome.PASSED
