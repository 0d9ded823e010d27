"""Comparisons of a certificate with the current requirements. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

from assay.datasets import FetchRules
from assay.errors import ConfigError
from assay.stats import ReportSection, format_plural
from assay.types import Endpoint

from .certificate import Certification, Statement, is_valid
from .certified import CertifiedDataset, CertifiedEndpoint
from .code_digests import build_certified_endpoint
from .criteria import CriterionOutcome, CriterionStatus, ResolvedCriterion
from .signatures import VerifyingKey

NO_VALUE = "nothing"


FindingStatus = Literal["ok", "mismatch", "unchecked"]


class CertificateFinding(ReportSection):
    """The result of one comparison."""

    check: str
    status: FindingStatus
    """`unchecked`: neither the manifest nor the policy requires a value."""

    expected: str
    found: str


@dataclass(frozen=True)
class VerifyPolicy:
    """Requirements on a certificate that are not part of the manifest."""

    keys: tuple[VerifyingKey, ...] = ()
    """One of them must have signed it. Without keys the author is unknown."""

    allow_unsigned: bool = False
    """Whether to accept a certificate without a verified signature."""

    refetch_dataset: bool = False
    fetch: FetchRules = field(default_factory=FetchRules)
    subjects: tuple[tuple[str, str], ...] = ()
    """Algorithm and digest of further artifacts that must have been tested."""

    runner: str | None = None
    """The required runner of the agent."""

    max_age: timedelta | None = None
    """Maximum age of the last measurement."""

    max_tries: int | None = None
    """Maximum number of runs of the agent on the dataset, including the certified one."""

    judge_host: str | None = None
    """The required host of the judge."""

    judge_models: tuple[str, ...] = ()
    """Model names that the judge's API may report, besides the requested one."""

    endpoint: Endpoint | None = None
    """The required model of the agent, with all its settings."""

    def __post_init__(self) -> None:
        if self.keys and self.allow_unsigned:
            raise ConfigError(
                "`keys` and `allow_unsigned` contradict each other",
                hint="pass a key, or allow unsigned certificates, not both",
            )


@dataclass(frozen=True)
class CertificateRequirements:
    """The values that a certificate must have."""

    agent: str
    definition_sha256: str
    criteria: tuple[ResolvedCriterion, ...]
    repeats: int
    dataset_uri: str
    dataset_sha256: str | None
    """The manifest's pin."""

    fetched_sha256: str | None
    """Digest of the current dataset, if it was fetched again."""

    judge: str | None
    """The judge's model without its provider; None when code measures everything."""

    policy: VerifyPolicy = field(default_factory=VerifyPolicy)
    model: str | None = None
    """The model of the definition, without its provider."""

    code: Mapping[str, str] | None = None
    """Current files of the runner, with the sha256 of each; None: the runner is not code."""

    definitions: Mapping[str, str] = field(default_factory=dict)
    """Definitions that the agent refers to, with the sha256 of each."""


def check_certificate(
    statement: Statement, expected: CertificateRequirements, *, now: datetime
) -> tuple[CertificateFinding, ...]:
    """Compare a certificate with the requirements. Returns all comparisons, in report order."""
    certification = statement.certification
    return (
        *_check_certified_agent(statement, expected),
        *_check_result_and_validity(certification, now),
        *_check_age_and_tries(certification, expected, now),
        *_check_certified_dataset(certification.dataset, expected),
        *_check_certified_judge(certification, expected),
        *_check_certified_criteria(certification, expected),
    )


def _check_certified_agent(
    statement: Statement, expected: CertificateRequirements
) -> Iterator[CertificateFinding]:
    certification = statement.certification
    agent = certification.agent
    yield check_equal("agent", expected.agent, agent.id)
    definition = statement.subject[0].digest.get("sha256", NO_VALUE)
    yield check_equal("definition", f"sha256:{expected.definition_sha256}", f"sha256:{definition}")
    for name in sorted({*expected.definitions, *agent.definitions}):
        wanted, used = expected.definitions.get(name), agent.definitions.get(name)
        yield build_finding(
            f"definition {name}", _format_sha256(wanted), _format_sha256(used), ok=wanted == used
        )
    if expected.policy.runner is not None:
        yield check_equal("runner", expected.policy.runner, agent.runner)
    yield from _check_certified_runner(certification, expected)
    digests = {pair for each in statement.subject for pair in each.digest.items()}
    for algorithm, digest in expected.policy.subjects:
        is_tested = (algorithm, digest) in digests
        found = ", ".join(sorted(f"{each}:{value}" for each, value in digests))
        wanted = f"{algorithm}:{digest}"
        yield build_finding("subject", wanted, wanted if is_tested else found, ok=is_tested)


def _check_certified_runner(
    certification: Certification, expected: CertificateRequirements
) -> Iterator[CertificateFinding]:
    agent, required = certification.agent, build_certified_endpoint(expected.policy.endpoint)
    if agent.endpoint is not None and expected.model is not None:
        yield check_equal("agent model", expected.model, agent.endpoint.model)
    if required is not None:
        used = NO_VALUE if agent.endpoint is None else _format_certified_endpoint(agent.endpoint)
        yield check_equal("agent endpoint", _format_certified_endpoint(required), used)
    if certification.unpinned:
        unchanged = "files that did not change while the agent ran"
        files = ", ".join(certification.unpinned)
        yield build_finding("files not pinned", unchanged, files, ok=None)
    if agent.files or expected.code:
        code = expected.code or {}
        yield compare_files("runner code", code, agent.files, certification.unpinned)
    elif expected.code is not None:
        # A command without files is still identified by its name; a function is not.
        command = agent.runner.startswith("cmd:")
        comparable = "files of the project that can be compared"
        ok = None if command else False
        yield build_finding("runner code", comparable, f"{agent.runner} has none", ok=ok)


def compare_files(
    check: str, expected: Mapping[str, str], found: Mapping[str, str], unpinned: Iterable[str] = ()
) -> CertificateFinding:
    """Compare the current files of some code with the certified ones."""
    names = {*expected, *found} - set(unpinned)
    # A changed file may import other files than before: report it alone, as the cause.
    changed = {name for name in names & {*expected} & {*found} if expected[name] != found[name]}
    differ = sorted(changed or {name for name in names if expected.get(name) != found.get(name)})
    if not differ:
        return build_finding(check, "", _format_file_digests(sorted(names), found), ok=True)
    wanted = _format_file_digests(differ, expected)
    return build_finding(check, wanted, _format_file_digests(differ, found), ok=False)


def _format_file_digests(names: Iterable[str], digests: Mapping[str, str]) -> str:
    return ", ".join(
        f"{name} {_format_sha256(digests[name])}" if name in digests else f"without {name}"
        for name in names
    )


def _format_certified_endpoint(endpoint: CertifiedEndpoint) -> str:
    host = f" at {endpoint.host}" if endpoint.host else ""
    settings = endpoint.settings_sha256
    return f"{endpoint.provider}:{endpoint.model}{host}, settings sha256:{settings}"


def _check_result_and_validity(
    certification: Certification, now: datetime
) -> Iterator[CertificateFinding]:
    result = certification.verdict.value
    yield build_finding("result", "PASSED or WARNED", result, ok=certification.certified)
    first, last = certification.finished, certification.valid_until
    period = f"{_format_utc_minute(first)} to {_format_utc_minute(last)}"
    yield build_finding(
        "validity", f"valid on {_format_utc_minute(now)}", period, ok=is_valid(certification, now)
    )


def _check_age_and_tries(
    certification: Certification, expected: CertificateRequirements, now: datetime
) -> Iterator[CertificateFinding]:
    if expected.policy.max_age is not None:
        age = now - certification.finished
        most, is_old = (
            f"at most {_format_timespan(expected.policy.max_age)}",
            age > expected.policy.max_age,
        )
        yield build_finding("age", most, _format_timespan(age), ok=not is_old)
    tries = certification.tries
    if expected.policy.max_tries is not None:
        most = f"at most {format_plural(expected.policy.max_tries, 'run')}"
        found = NO_VALUE if tries is None else tries.words
        ok = tries is not None and tries.earlier_runs + 1 <= expected.policy.max_tries
        yield build_finding("tries", most, found, ok=ok)
    elif tries is not None:
        yield build_finding("tries", "any", tries.words, ok=True)


def _format_timespan(span: timedelta) -> str:
    # At least two of a unit, with one decimal: the text must differ from a slightly shorter span.
    for unit, name in ((timedelta(days=1), "d"), (timedelta(hours=1), "h")):
        if span >= 2 * unit:
            return f"{round(span / unit, 1):g} {name}"
    return f"{round(span / timedelta(minutes=1), 1):g} min"


def _check_certified_dataset(
    dataset: CertifiedDataset, expected: CertificateRequirements
) -> Iterator[CertificateFinding]:
    found = f"sha256:{dataset.sha256}"
    yield build_finding("dataset size", "any", dataset.size, ok=True)
    yield check_equal("dataset address", expected.dataset_uri, dataset.uri)
    if expected.dataset_sha256 is not None:
        yield check_equal("dataset pin", f"sha256:{expected.dataset_sha256}", found)
    if expected.fetched_sha256 is not None:
        yield check_equal("dataset as it is now", f"sha256:{expected.fetched_sha256}", found)
    elif expected.dataset_sha256 is None:
        yield build_finding("dataset content", "not pinned, and not fetched again", found, ok=None)


def _check_certified_judge(
    certification: Certification, expected: CertificateRequirements
) -> Iterator[CertificateFinding]:
    judge, host = certification.judge, expected.policy.judge_host
    if expected.judge is None and judge is None:
        if host is not None:
            yield build_finding("judge host", host, "no criterion is judged", ok=None)
        return
    # Written as `provider:model at host`; a manifest names the model only.
    asked, _, used_host = ("" if judge is None else judge.asked).partition(" at ")
    model = asked.partition(":")[2]
    yield check_equal("judge", expected.judge or NO_VALUE, model or NO_VALUE)
    if judge is None:
        return
    if host is not None:
        names = (used_host.casefold(), used_host.casefold().rpartition(":")[0])
        ok = host.casefold() in names
        yield build_finding("judge host", host, used_host or NO_VALUE, ok=ok)
    if not judge.returned:
        unnamed = "the API does not name the model"
        yield build_finding("judge answered", model, unnamed, ok=None)
        return
    accepted = (model, *expected.policy.judge_models)
    ok = all(any(is_same_model(each, name) for name in accepted) for each in judge.returned)
    yield build_finding("judge answered", " or ".join(accepted), ", ".join(judge.returned), ok=ok)


def is_same_model(returned: str, asked: str) -> bool:
    """Whether a reported name is the requested model, or a dated or numbered version of it."""
    one, other = (name.casefold().rpartition("/")[2] for name in (returned, asked))
    other = other.removesuffix("-latest").removesuffix(":latest")
    return (
        re.fullmatch(re.escape(other) + r"(?:[-:@_.]latest|[-:@_]v?\d[\d.\-]*)?", one) is not None
    )


def _check_certified_criteria(
    certification: Certification, expected: CertificateRequirements
) -> Iterator[CertificateFinding]:
    repeats = certification.repeats
    ok = repeats >= expected.repeats
    yield build_finding("repeats", f"at least {expected.repeats}", str(repeats), ok=ok)
    outcomes = {outcome.name: outcome for outcome in certification.outcomes}
    for criterion in expected.criteria:
        outcome = outcomes.pop(criterion.name, None)
        if outcome is None:
            yield build_finding(criterion.name, "among the criteria", NO_VALUE, ok=False)
        else:
            yield from _check_certified_criterion(criterion, outcome, certification.unpinned)
    for name in outcomes:
        yield build_finding(name, NO_VALUE, "among the criteria", ok=False)


def _check_certified_criterion(
    criterion: ResolvedCriterion, outcome: CriterionOutcome, unpinned: tuple[str, ...]
) -> Iterator[CertificateFinding]:
    passed = outcome.status is CriterionStatus.PASSED
    wanted = "passed" if criterion.strict else "passed or warned"
    ok = passed or not criterion.strict
    yield build_finding(criterion.name, wanted, outcome.status.value, ok=ok)
    for name in ("kind", "direction", "threshold", "strict", "range"):
        old, new = getattr(criterion, name), getattr(outcome, name)
        yield from _report_difference(
            f"{criterion.name}: {name}", _format_criterion_field(old), _format_criterion_field(new)
        )
    if outcome.gate == "point" and criterion.gate == "proven":
        yield build_finding(f"{criterion.name}: gate", criterion.gate, outcome.gate, ok=False)
    if outcome.confidence < criterion.confidence:
        least = f"at least {criterion.confidence:g}"
        yield build_finding(
            f"{criterion.name}: confidence", least, f"{outcome.confidence:g}", ok=False
        )
    yield from _check_grading(criterion, outcome, unpinned)


def _check_grading(
    criterion: ResolvedCriterion, outcome: CriterionOutcome, unpinned: tuple[str, ...]
) -> Iterator[CertificateFinding]:
    wanted, used = criterion.graded_by, outcome.graded_by
    yield from _report_difference(f"{criterion.name}: graded by", wanted.by, used.by)
    if wanted.by == "clock":
        yield from _report_difference(f"{criterion.name}: statistic", wanted.name, used.name)
        return
    if wanted.by != "judge":
        yield from _report_difference(f"{criterion.name}: {wanted.by}", wanted.name, used.name)
    what = {"judge": "judge prompt", "check": "check file"}.get(wanted.by, "metric code")
    if wanted.files and used.files:
        yield compare_files(f"{criterion.name}: {what}", wanted.files, used.files, unpinned)
        return
    # Two missing digests are a mismatch: unknown code is not known to be the same.
    known = wanted.sha256 is not None and wanted.sha256 == used.sha256
    yield build_finding(
        f"{criterion.name}: {what}",
        _format_sha256(wanted.sha256),
        _format_sha256(used.sha256),
        ok=known,
    )


def check_equal(check: str, expected: str, found: str) -> CertificateFinding:
    """Compare two texts that must be equal."""
    return build_finding(check, expected, found, ok=expected == found)


def _report_difference(check: str, expected: str, found: str) -> Iterator[CertificateFinding]:
    if expected != found:
        yield build_finding(check, expected, found, ok=False)


def build_finding(check: str, expected: str, found: str, *, ok: bool | None) -> CertificateFinding:
    """Build the result of a comparison; `ok` is None if nothing was compared."""
    status: FindingStatus = "unchecked" if ok is None else "ok" if ok else "mismatch"
    return CertificateFinding(check=check, status=status, expected=expected, found=found)


def _format_sha256(sha256: str | None) -> str:
    return "not known" if sha256 is None else f"sha256:{sha256}"


def _format_criterion_field(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    if isinstance(value, tuple):
        return f"[{', '.join(map(_format_criterion_field, value))}]"
    return str(value)


def _format_utc_minute(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
