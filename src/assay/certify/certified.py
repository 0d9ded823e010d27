"""The result of a certification: everything a certificate, a card or a person needs of it."""

from datetime import datetime
from typing import Any, Self

from pydantic import Field, FiniteFloat, model_validator

from assay.stats import ReportSection, format_plural

from .criteria import (
    CertificationVerdict,
    CriterionOutcome,
    LatencyFigures,
    verdict_of,
)

SHA256_PATTERN = r"^[0-9a-f]{64}$"


class CertifiedEndpoint(ReportSection):
    """A model and how it was asked."""

    provider: str
    model: str
    host: str | None
    """None for models in the process."""

    settings_sha256: str = Field(pattern=SHA256_PATTERN)
    """Of all settings but secrets: another temperature is another agent."""


class CertifiedAgent(ReportSection):
    """The agent that was tested, and how it was called."""

    id: str
    name: str
    definition_sha256: str = Field(pattern=SHA256_PATTERN)
    """Of the definition's canonical JSON (RFC 8785), without fields at their defaults."""

    model: str | None
    """As the manifest has it."""

    runner: str
    """`own model ...`, `module:function`, an address or a command: without secrets."""

    runner_sha256: str | None = None
    """Of the code that ran: of its file, or of the list of its files. None where there is none."""

    files: dict[str, str] = Field(default_factory=dict)
    """The files of that code, by their paths inside the project, with the sha256 of each."""

    tools: str | None = None
    """The module that had the functions of the agent's tools."""

    definitions: dict[str, str] = Field(default_factory=dict)
    """The other definitions of the manifest that this one names, with the sha256 of each."""

    endpoint: CertifiedEndpoint | None = None
    """The model that was asked, for agents that are models."""

    models_returned: tuple[str, ...] = ()
    """What the endpoint called the models that answered; empty where nobody said."""


class CertifiedManifest(ReportSection):
    """The file that holds the definition of done."""

    path: str
    """As it was given; its name alone where it was absolute."""

    sha256: str = Field(pattern=SHA256_PATTERN)
    references: dict[str, str] = Field(default_factory=dict)
    """The files that it refers to, from its folder, with the sha256 of each."""

    run_from: str | None = None
    """The folder in which the agent was run, from the manifest's: `..` where that is a part of it.

    None where neither of them is a part of the other.
    """

    skipped: dict[str, str] = Field(default_factory=dict)
    """Agents of the manifest that were not certified with this one, and why."""


class CertifiedDataset(ReportSection):
    """The golden dataset that was used."""

    uri: str
    """Without credentials."""

    sha256: str = Field(pattern=SHA256_PATTERN)
    rows: int = Field(ge=1)
    """Samples that were run."""

    distinct: int | None = Field(default=None, ge=1)
    """Different questions among them, which is what proves something. None: all of them."""

    near_duplicates: int = Field(default=0, ge=0)
    """Of these, questions that are nearly the same as another."""

    @property
    def questions(self) -> int:
        """Samples that count: copies of a question count once."""
        return self.rows if self.distinct is None else self.distinct

    @property
    def size(self) -> str:
        """How many samples there are, in words, and how many of them count."""
        words = f"{self.rows} samples"
        if self.questions < self.rows:
            words += f", {format_plural(self.questions, 'distinct question')}"
        if self.near_duplicates:
            words += f", {format_plural(self.near_duplicates, 'near-duplicate')}"
        return words


class CertifiedJudge(ReportSection):
    """The model that judged what no metric measures."""

    asked: str
    """`provider:model`, with the host where it has one."""

    returned: tuple[str, ...]
    """What the API called the models that answered; empty where it did not say."""

    calls: int = Field(ge=0)


class Cost(ReportSection):
    """US dollars. None: one of the calls does not know what it cost."""

    agent_usd: FiniteFloat | None
    judge_usd: FiniteFloat | None


class Tries(ReportSection):
    """What happened before and beside the calls that count: chances to pick a good result."""

    earlier_runs: int = Field(ge=0)
    """Runs of the same agent on the same dataset that the store had before this one."""

    earlier: tuple[str, ...] = ()
    """The newest of them by their ids."""

    retried_requests: int | None = Field(ge=0)
    """Requests that the agent's client sent again. None: the agent does not show its requests."""

    warmup_calls: int = Field(ge=0)
    """Calls of the agent before the first that counts."""

    @property
    def words(self) -> str:
        retried = self.retried_requests
        retries = (
            "retries unknown" if retried is None else format_plural(retried, "retried request")
        )
        warmup = format_plural(self.warmup_calls, "warm-up call")
        return f"run {self.earlier_runs + 1} on this dataset, {warmup}, {retries}"


class Notice(ReportSection):
    """Something to know about a result that decides nothing."""

    code: str = Field(pattern=r"^[a-z_]+$")
    text: str


class CertificationResult(ReportSection):
    """One agent held to its definition of done."""

    agent: CertifiedAgent
    manifest: CertifiedManifest
    dataset: CertifiedDataset
    judge: CertifiedJudge | None
    """None when every criterion is measured by code."""

    repeats: int = Field(ge=1)
    tries: Tries | None = None
    """None where nobody counted."""

    seed: int | None
    outcomes: tuple[CriterionOutcome, ...] = Field(min_length=1)
    """In the order of the rubric, the latency last. There is no certificate over nothing."""

    latency: LatencyFigures
    verdict: CertificationVerdict
    rehearsal: tuple[str, ...] = ()
    """What differs from the manifest. Of a rehearsal there is a report, but no certificate."""

    warnings: tuple[Notice, ...] = ()
    unpinned: tuple[str, ...] = ()
    """Data files that changed while the agent ran: nothing is certified about them."""

    run: str
    """The id of the recorded run."""

    started: datetime
    finished: datetime
    cost: Cost
    versions: dict[str, str]

    @model_validator(mode="before")
    @classmethod
    def _add_verdict(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "verdict" in data:
            return data
        outcomes = data.get("outcomes")
        # Outcomes that are still to be read, of a file, do not add up to anything yet.
        if not outcomes or not all(isinstance(each, CriterionOutcome) for each in outcomes):
            return data
        return {**data, "verdict": verdict_of(outcomes)}

    @model_validator(mode="after")
    def _check_outcomes(self) -> Self:
        names = [outcome.name for outcome in self.outcomes]
        if len(set(names)) != len(names):
            raise ValueError("two outcomes have one name")
        if self.verdict is not verdict_of(self.outcomes):
            raise ValueError(f"the outcomes do not add up to {self.verdict}")
        return self

    @property
    def certified(self) -> bool:
        """Whether this is a yes that a deployment may rely on."""
        met = self.verdict in (CertificationVerdict.PASSED, CertificationVerdict.WARNED)
        return met and not self.rehearsal

    @property
    def attestable(self) -> bool:
        """Whether a certificate may be written: of a no as well, but not of what could not be told.

        A rehearsal says nothing about the manifest's own definition of done.
        """
        return self.verdict is not CertificationVerdict.ERROR and not self.rehearsal

    def exit_status(self, *, fail_on_warn: bool = False) -> int:
        """What a command that ran this exits with."""
        if fail_on_warn and self.verdict is CertificationVerdict.WARNED:
            return 1
        return self.verdict.exit_status
