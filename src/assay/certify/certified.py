"""The result of a certification, from which certificates, cards and reports are made."""

from datetime import datetime
from typing import Self

from pydantic import ConfigDict, Field, FiniteFloat, model_validator

from assay.stats import ReportSection, format_plural

from .criteria import (
    CertificationVerdict,
    CriterionOutcome,
    LatencyFigures,
    verdict_of,
)

SHA256_PATTERN = r"^[0-9a-f]{64}$"


class CertifiedEndpoint(ReportSection):
    """A model and its settings."""

    provider: str
    model: str
    host: str | None
    """None for models in the process."""

    settings_sha256: str = Field(pattern=SHA256_PATTERN)
    """Digest of all settings except secrets: another temperature is another agent."""


class CertifiedAgent(ReportSection):
    """The agent that was tested, and how it was called."""

    id: str
    name: str
    definition_sha256: str = Field(pattern=SHA256_PATTERN)
    """Digest of the definition as canonical JSON (RFC 8785), without fields at their defaults."""

    model: str | None
    """As written in the manifest."""

    runner: str
    """`own model ...`, `module:function`, a URL or a command, without secrets."""

    runner_sha256: str | None = None
    """Digest of the runner's file, or of the list of its files. None: the runner is not code."""

    files: dict[str, str] = Field(default_factory=dict)
    """The runner's files: path inside the project, and sha256."""

    tools: str | None = None
    """The module with the functions of the agent's tools."""

    definitions: dict[str, str] = Field(default_factory=dict)
    """Other definitions of the manifest that this one refers to, with the sha256 of each."""

    endpoint: CertifiedEndpoint | None = None
    """The model, for agents that are models."""

    models_returned: tuple[str, ...] = ()
    """Model names that the endpoint reported; empty if it reported none."""


class CertifiedManifest(ReportSection):
    """The manifest with the definition of done."""

    path: str
    """As passed; the file name alone for an absolute path."""

    sha256: str = Field(pattern=SHA256_PATTERN)
    references: dict[str, str] = Field(default_factory=dict)
    """Files that it refers to, relative to its folder, with the sha256 of each."""

    run_from: str | None = None
    """The working directory of the run, relative to the manifest's folder, such as `..`.

    None when neither folder contains the other.
    """

    skipped: dict[str, str] = Field(default_factory=dict)
    """Agents of the manifest that were skipped, with the reasons."""


class CertifiedDataset(ReportSection):
    """The golden dataset that was used."""

    uri: str
    """Without credentials."""

    sha256: str = Field(pattern=SHA256_PATTERN)
    rows: int = Field(ge=1)
    """Samples that were run."""

    distinct: int | None = Field(default=None, ge=1)
    """Distinct questions among them, on which the evidence is based. None: all are distinct."""

    near_duplicates: int = Field(default=0, ge=0)
    """Distinct questions that are nearly the same as another."""

    @property
    def questions(self) -> int:
        """Number of questions that count as evidence: copies count once."""
        return self.rows if self.distinct is None else self.distinct

    @property
    def size(self) -> str:
        """The size in words: samples, distinct questions and near-duplicates."""
        words = f"{self.rows} samples"
        if self.questions < self.rows:
            words += f", {format_plural(self.questions, 'distinct question')}"
        if self.near_duplicates:
            words += f", {format_plural(self.near_duplicates, 'near-duplicate')}"
        return words


class CertifiedJudge(ReportSection):
    """The model that graded the criteria without a metric."""

    asked: str
    """`provider:model`, with the host where it has one."""

    returned: tuple[str, ...]
    """Model names that the API reported; empty if it reported none."""

    calls: int = Field(ge=0)


class Cost(ReportSection):
    """Costs in US dollars. None: the cost of a call is unknown."""

    agent_usd: FiniteFloat | None
    judge_usd: FiniteFloat | None


class Tries(ReportSection):
    """Earlier runs, retries and warm-up calls: opportunities to select a good result."""

    earlier_runs: int = Field(ge=0)
    """Earlier runs in the store of the same agent on the same dataset."""

    earlier: tuple[str, ...] = ()
    """Ids of the most recent of them."""

    retried_requests: int | None = Field(ge=0)
    """Requests that were retried. None: the agent does not report its requests."""

    warmup_calls: int = Field(ge=0)
    """Calls of the agent before the first measured one."""

    @property
    def words(self) -> str:
        retried = self.retried_requests
        retries = (
            "retries unknown" if retried is None else format_plural(retried, "retried request")
        )
        warmup = format_plural(self.warmup_calls, "warm-up call")
        return f"run {self.earlier_runs + 1} on this dataset, {warmup}, {retries}"


class Notice(ReportSection):
    """A note about a result that does not affect the verdict."""

    code: str = Field(pattern=r"^[a-z_]+$")
    text: str


class CertificationResult(ReportSection):
    """The result of testing one agent against its definition of done."""

    model_config = ConfigDict(populate_by_name=True)

    agent: CertifiedAgent
    manifest: CertifiedManifest
    dataset: CertifiedDataset
    judge: CertifiedJudge | None
    """None when code measures every criterion."""

    repeats: int = Field(ge=1)
    tries: Tries | None = None
    """None when the tries were not counted."""

    seed: int | None
    outcomes: tuple[CriterionOutcome, ...] = Field(min_length=1)
    """In the order of the rubric, the latency last. At least one is required."""

    latency: LatencyFigures
    verdict: CertificationVerdict
    # Certificates are written under the alias: earlier ones must still verify.
    deviations: tuple[str, ...] = Field(default=(), alias="rehearsal")
    """Deviations from the manifest. A run with any is not certifiable."""

    warnings: tuple[Notice, ...] = ()
    unpinned: tuple[str, ...] = ()
    """Data files that changed during the run, which the certificate does not cover."""

    run: str
    """The id of the recorded run."""

    started: datetime
    finished: datetime
    cost: Cost
    versions: dict[str, str]

    @model_validator(mode="after")
    def _check_outcomes(self) -> Self:
        names = [outcome.name for outcome in self.outcomes]
        if len(set(names)) != len(names):
            raise ValueError("two outcomes have the same name")
        if self.verdict is not verdict_of(self.outcomes):
            raise ValueError(f"the verdict {self.verdict} does not follow from the outcomes")
        return self

    @property
    def certified(self) -> bool:
        """Whether the agent passed without deviations from the manifest."""
        met = self.verdict in (CertificationVerdict.PASSED, CertificationVerdict.WARNED)
        return met and not self.deviations

    @property
    def attestable(self) -> bool:
        """Whether a certificate may be written, for a FAILED verdict as well."""
        # An ERROR was not measured, and a run with deviations measured another definition.
        return self.verdict is not CertificationVerdict.ERROR and not self.deviations

    def exit_status(self, *, fail_on_warn: bool = False) -> int:
        """Return the exit status of a command that ran the certification."""
        if fail_on_warn and self.verdict is CertificationVerdict.WARNED:
            return 1
        return self.verdict.exit_status
