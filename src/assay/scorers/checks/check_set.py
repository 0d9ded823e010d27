"""Checks as a scorer: every check becomes a metric of one result."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from assay.errors import ConfigError
from assay.types import (
    EvaluateResult,
    Metric,
    Sample,
    YamlDocument,
    parse_yaml,
    read_limited_text,
    stable_id,
    validate_document,
)

from .check_entry import CheckEntry
from .conversation import ConversationView
from .findings import CheckFinding
from .rules import CheckFile

_MAX_NAMES_SHOWN = 5
# The limit of the YAML reader, so that a mapping and a file of the same checks are equal.
_LARGEST_NUMBER = 10**100


class Checks:
    """A scorer made of checks: call it with a sample, give it as `score_fn`.

    The score is the weighted mean of the checks. A sample is unscored when a check with a weight
    is.
    """

    def __init__(self, checks: tuple[CheckEntry, ...], *, identity: str) -> None:
        self.checks = checks
        # A run is identified by the name of its scorer: other checks are another scorer.
        self.__qualname__ = f"{type(self).__qualname__} {identity}"

    def __call__(self, sample: Sample) -> EvaluateResult:
        return self.result(self.findings(sample))

    def findings(self, sample: Sample) -> tuple[CheckFinding, ...]:
        """Run all checks on a sample; the findings are in the order of `checks`."""
        reading = ConversationView(sample)
        return tuple(check.judge(reading) for check in self.checks)

    def result(self, findings: tuple[CheckFinding, ...]) -> EvaluateResult:
        """Combine the findings of all checks into a result."""
        pairs = list(zip(self.checks, findings, strict=True))
        metrics = {check.name: _build_check_metric(check, finding) for check, finding in pairs}
        return EvaluateResult(metrics=metrics, reason=_summarise_findings(pairs))


def checks_from(source: str | PathLike[str] | Mapping[str, Any]) -> Checks:
    """Read checks from a YAML file, or from a mapping of the same shape.

    Names, targets, patterns, schemas and functions are validated here, before a sample is read.
    Raises `ConfigError` with the position and the key of each problem.
    """
    folder = Path.cwd()
    if isinstance(source, str | PathLike):
        path = Path(source)
        folder = path.absolute().parent
        given = parse_yaml(read_limited_text(path), file=str(path))
    elif isinstance(source, Mapping):
        given = YamlDocument(_to_plain_data(dict(source)), "checks_from()")
    else:
        raise ConfigError(
            f"`source` is a {type(source).__name__}, not a path or a mapping",
            where="checks_from()",
            hint="pass the path of a YAML file, or a dict with the key 'checks'",
        )
    found = validate_document(given, CheckFile, context={"folder": folder})
    return Checks(found.checks, identity=stable_id(given.value))


def _to_plain_data(value: Any) -> Any:
    # The identity of the checks is a hash of this: it must be data that YAML can express.
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ConfigError(f"the key {key!r} is not text", where="checks_from()")
        return {key: _to_plain_data(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain_data(each) for each in value]
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float):
        # The comparison is also false for NaN.
        if not -_LARGEST_NUMBER < value < _LARGEST_NUMBER:
            raise ConfigError("a number is not finite, or too large", where="checks_from()")
        return value
    raise ConfigError(f"{value!r:.80} is not plain data", where="checks_from()")


def _build_check_metric(check: CheckEntry, finding: CheckFinding) -> Metric:
    if finding.passed is None:
        return Metric(check.name, weight=check.weight, reason=finding.reason)
    if finding.score is None:
        score = float(finding.passed)
        return Metric(check.name, score, weight=check.weight, reason=finding.reason)
    # A score between 0 and 1 does not show on its own whether the check passed.
    return Metric(
        check.name,
        finding.score,
        weight=check.weight,
        reason=finding.reason,
        passed=finding.passed,
    )


def is_check_passed(metric: Metric) -> bool | None:
    """Whether the check of a metric passed; None if it could not be judged."""
    if metric.score is None or not metric.is_score_valid:
        return None
    passed = (metric.model_extra or {}).get("passed")
    return passed if isinstance(passed, bool) else bool(metric.score)


def _summarise_findings(pairs: list[tuple[CheckEntry, CheckFinding]]) -> str:
    passed = sum(finding.passed is True for _, finding in pairs)
    words = [f"{passed} of {len(pairs)} checks passed"]
    for label, outcome in (("failed", False), ("not judged", None)):
        names = [check.name for check, finding in pairs if finding.passed is outcome]
        if names:
            more = (
                f" and {len(names) - _MAX_NAMES_SHOWN} more"
                if len(names) > _MAX_NAMES_SHOWN
                else ""
            )
            words.append(f"{label}: {', '.join(names[:_MAX_NAMES_SHOWN])}{more}")
    return "; ".join(words)
