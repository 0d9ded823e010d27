"""A certificate: an in-toto statement about an agent, with the test-result predicate.

Any tool can read the lists of the predicate; the extension `certification` contains the figures
behind them. Both are derived from one result and checked against each other when read.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_serializer,
    model_validator,
)

from .certified import CertificationResult
from .criteria import CriterionOutcome, CriterionStatus
from .criterion_decisions import meets

Algorithm = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,31}$")]
Hexadecimal = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{8,256}$")]

# Comparing dates at the ends of the calendar overflows.
_FIRST_YEAR, _LAST_YEAR = 2000, 9000


class _InTotoModel(BaseModel):
    """A part of a statement. Unknown fields are ignored, as in-toto requires."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Resource(_InTotoModel):
    """A subject or an input of a statement: in-toto's ResourceDescriptor."""

    name: str | None = None
    uri: str | None = None
    digest: dict[Algorithm, Hexadecimal] = Field(min_length=1)

    @model_serializer
    def _omit_none(self) -> dict[str, Any]:
        return {name: value for name, value in dict(self).items() if value is not None}


class Certification(CertificationResult):
    """The certified result, and how long it is valid."""

    valid_until: AwareDatetime

    @model_validator(mode="after")
    def _check_attestable(self) -> Self:
        if not self.attestable:
            raise ValueError("a run with deviations or an ERROR verdict cannot be certified")
        if self.started.tzinfo is None or self.finished.tzinfo is None:
            raise ValueError("`started` and `finished` need a time zone")
        for moment in (self.started, self.finished, self.valid_until):
            if not _FIRST_YEAR <= moment.year <= _LAST_YEAR:
                raise ValueError(f"the year {moment.year} is out of range")
        if not self.finished <= self.valid_until:
            raise ValueError("`valid_until` is earlier than the last measurement")
        for outcome in self.outcomes:
            _check_passed(outcome, self.dataset.questions)
        return self


class TestResult(_InTotoModel):
    """in-toto's predicate, with the figures as an extension."""

    # Named after the predicate: keeps pytest from collecting the class as tests.
    __test__ = False

    result: Literal["PASSED", "WARNED", "FAILED"]
    configuration: tuple[Resource, ...] = Field(min_length=1)
    passed: tuple[str, ...] = Field(alias="passedTests")
    warned: tuple[str, ...] = Field(alias="warnedTests")
    failed: tuple[str, ...] = Field(alias="failedTests")
    certification: Certification

    @model_validator(mode="after")
    def _check_predicate(self) -> Self:
        expected = _build_predicate(self.certification)
        for name in ("result", "configuration", "passed", "warned", "failed"):
            if getattr(self, name) != expected[name]:
                raise ValueError(f"`{name}` does not agree with `certification`")
        return self


class Statement(_InTotoModel):
    """A certificate."""

    type: Literal["https://in-toto.io/Statement/v1"] = Field(alias="_type")
    subject: tuple[Resource, ...] = Field(min_length=1)
    predicate_type: Literal["https://in-toto.io/attestation/test-result/v0.1"] = Field(
        alias="predicateType"
    )
    predicate: TestResult

    @model_validator(mode="after")
    def _check_subjects(self) -> Self:
        tested = list_subjects(self.certification)
        if self.subject[: len(tested)] != tested:
            raise ValueError("`subject` does not agree with `certification`")
        return self

    @property
    def certification(self) -> Certification:
        return self.predicate.certification

    def to_json(self) -> str:
        """Return the certificate as written and signed."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"


def build_statement(
    result: CertificationResult, *, valid_days: int, subjects: tuple[Resource, ...] = ()
) -> Statement:
    """Build the certificate of a result, valid for `valid_days` after the last measurement.

    `subjects` are further tested artifacts, such as an image or a commit. Raises `ValueError` for a
    result that cannot be certified.
    """
    valid_until = result.finished.astimezone(UTC) + timedelta(days=valid_days)
    certification = Certification.model_validate({**dict(result), "valid_until": valid_until})
    return Statement(
        type="https://in-toto.io/Statement/v1",
        predicate_type="https://in-toto.io/attestation/test-result/v0.1",
        subject=(*list_subjects(certification), *subjects),
        predicate=TestResult(**_build_predicate(certification), certification=certification),
    )


def list_subjects(certification: CertificationResult) -> tuple[Resource, ...]:
    """List the tested artifacts: the agent's definition, and the code of its runner, if any."""
    agent = certification.agent
    found = [_build_resource(f"agent:{agent.id}", agent.definition_sha256)]
    if agent.runner_sha256 is not None:
        found.append(_build_resource(f"code:{agent.runner}", agent.runner_sha256))
    return tuple(found)


def is_valid(certification: Certification, now: datetime) -> bool:
    """Whether a certificate is valid at a time."""
    clock_skew = timedelta(minutes=5)
    return certification.finished - clock_skew <= now <= certification.valid_until


def _build_predicate(certification: Certification) -> dict[str, Any]:
    outcomes = certification.outcomes
    passed = [each for each in outcomes if each.status is CriterionStatus.PASSED]
    missed = [each for each in outcomes if each.status is not CriterionStatus.PASSED]
    return {
        "result": certification.verdict.value,
        "configuration": _list_configuration(certification),
        "passed": tuple(each.name for each in passed),
        "warned": tuple(each.name for each in missed if not each.strict),
        "failed": tuple(each.name for each in missed if each.strict),
    }


def _list_configuration(certification: Certification) -> tuple[Resource, ...]:
    """List the digests of all inputs that affect the result."""
    manifest, dataset = certification.manifest, certification.dataset
    found = [_build_resource(f"manifest:{manifest.path}", manifest.sha256)]
    found += [_build_resource(f"manifest:{path}", sha) for path, sha in manifest.references.items()]
    uri = dataset.uri if "://" in dataset.uri else None
    found.append(_build_resource(f"dataset:{dataset.uri}", dataset.sha256, uri))
    for outcome in certification.outcomes:
        by = outcome.graded_by
        # A metric without readable code has no digest to list.
        if by.sha256 is not None:
            what = "judge-prompt" if by.by == "judge" else by.by
            found.append(_build_resource(f"{what}:{outcome.name}", by.sha256))
    return tuple(found)


def _build_resource(name: str, sha256: str, uri: str | None = None) -> Resource:
    return Resource(name=name, uri=uri, digest={"sha256": sha256})


def _check_passed(outcome: CriterionOutcome, rows: int) -> None:
    """Raise `ValueError` for a pass that contradicts its own figures."""
    # An edited certificate must not turn a miss into a pass.
    if outcome.status is not CriterionStatus.PASSED:
        return
    if outcome.value is None or not meets(outcome, outcome.value):
        raise ValueError(f"{outcome.name} is marked as passed, but its value misses the threshold")
    if outcome.gate == "proven" and outcome.evidence != "proven":
        raise ValueError(f"{outcome.name} is marked as passed, but is not proven")
    if outcome.kind == "score" and outcome.samples != rows:
        raise ValueError(f"{outcome.name} was measured on {outcome.samples} of {rows} samples")
