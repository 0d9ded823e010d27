"""Whether a certificate still says what a manifest asks for. Names all that does not match.

The judge is not asked, the agent not called, and no code that the manifest or the certificate names
is imported: digests are taken from the files.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from assay.datasets import FetchRules, fetch_golden, read_address
from assay.errors import ConfigError
from assay.stats import ReportSection
from assay.types import AgentDefinition, Endpoint, EvaluationProfile, Manifest

from .asked_models import strip_provider
from .certificate import Certification, Statement
from .certificate_checks import CertificateFinding, CertificateRequirements, check_certificate
from .certificate_file import (
    MAX_CERTIFICATE_BYTES,
    Envelope,
    decode_base64,
    read_certificate,
    read_statement,
)
from .code_digests import build_certified_endpoint, digest_definition, digest_named_definitions
from .code_index import COMMAND_PREFIX, CodeIndex
from .criteria import ResolvedCriterion
from .graders import CriteriaContext, resolve_criteria, resolve_latency_criterion
from .import_ref import is_code_name
from .judge_client import JudgeModel
from .signatures import VerifyingKey, find_signer

SignatureState = Literal["signed", "unsigned", "not checked", "wrong"]
"""`signed` only of a signature that one of the given keys fits; `wrong` of one that none fits."""


@dataclass(frozen=True)
class VerifyPolicy:
    """What is asked of a certificate beside what the manifest says."""

    keys: tuple[VerifyingKey, ...] = ()
    """One of them must have signed it. None given: nobody can tell who wrote it."""

    allow_unsigned: bool = False
    """Whether the content alone may verify."""

    refetch_dataset: bool = False
    fetch: FetchRules = field(default_factory=FetchRules)
    subjects: tuple[tuple[str, str], ...] = ()
    """Algorithm and digest of artifacts that must be among those tested."""

    runner: str | None = None
    """How the agent must have been called."""

    max_age: timedelta | None = None
    """How long ago the last measurement may be."""

    max_tries: int | None = None
    """How many runs of the agent on the dataset there may have been, the certified one included."""

    judge_host: str | None = None
    """Where the judge must have been."""

    judge_models: tuple[str, ...] = ()
    """Names under which the judge's API may have answered, beside the one that was asked for."""

    endpoint: Endpoint | None = None
    """The model that must have been asked, with all its settings."""

    def __post_init__(self) -> None:
        if self.keys and self.allow_unsigned:
            raise ConfigError("a key is given, and unsigned certificates are allowed: which?")


class Verification(ReportSection):
    """What came of holding a certificate against a manifest."""

    verified: bool
    signature: SignatureState
    key_id: str | None
    findings: tuple[CertificateFinding, ...]
    certification: Certification | None
    """None when the signature is wrong: then nothing in it is to be believed, or shown."""

    @property
    def mismatches(self) -> tuple[CertificateFinding, ...]:
        return tuple(each for each in self.findings if each.status == "mismatch")


def verify_certificate(
    certificate: Path,
    manifest: str | Path,
    *,
    agent: str | None = None,
    policy: VerifyPolicy | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Verification:
    """Hold a certificate against one agent of a manifest.

    Raises `WireError` for a file that is no certificate, `ConfigError` for a manifest that could
    not be certified, and `DatasetError` when the dataset was to be fetched and could not be.
    """
    policy = policy or VerifyPolicy()
    where = str(certificate)
    found = read_certificate(_read_certificate_file(certificate), where=where)
    signature, key_id = _check_signature(found, policy, where=where)
    first = _build_signature_finding(signature, key_id, policy)
    if signature == "wrong":
        return Verification(
            verified=False,
            signature=signature,
            key_id=None,
            findings=(first,),
            certification=None,
        )
    statement = _open_statement(found, where=where)
    loaded = Manifest.load(manifest)
    definition = _select_definition(loaded, agent, where=str(manifest))
    expected = _build_requirements(definition, loaded, policy, where=f"{manifest}: {definition.id}")
    expected = replace(expected, code=_digest_runner_files(statement.certification, loaded))
    findings = (first, *check_certificate(statement, expected, now=now()))
    return Verification(
        verified=all(each.status != "mismatch" for each in findings),
        signature=signature,
        key_id=key_id,
        findings=findings,
        certification=statement.certification,
    )


def _read_certificate_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_CERTIFICATE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _check_signature(
    found: Statement | Envelope, policy: VerifyPolicy, *, where: str
) -> tuple[SignatureState, str | None]:
    if isinstance(found, Statement) or not found.signatures:
        return ("unsigned", None)
    if not policy.keys:
        return ("not checked", None)
    key_id = find_signer(found, policy.keys, where=where)
    return ("wrong", None) if key_id is None else ("signed", key_id)


def _build_signature_finding(
    state: SignatureState, key_id: str | None, policy: VerifyPolicy
) -> CertificateFinding:
    ids = " or ".join(key.key_id for key in policy.keys)
    expected = f"signed with {ids}" if policy.keys else "signed with a given key"
    said = {
        "signed": f"signed with {key_id}",
        "unsigned": "unsigned",
        "not checked": "signature not checked: no key was given",
        "wrong": "no signature that fits",
    }[state]
    if state == "signed":
        return CertificateFinding(check="signature", status="ok", expected=expected, found=said)
    if policy.allow_unsigned:
        allowed = "nothing: --allow-unsigned"
        return CertificateFinding(
            check="signature", status="unchecked", expected=allowed, found=said
        )
    return CertificateFinding(check="signature", status="mismatch", expected=expected, found=said)


def _open_statement(found: Statement | Envelope, *, where: str) -> Statement:
    if isinstance(found, Statement):
        return found
    return read_statement(decode_base64(found.payload, where=where), where=where)


def _select_definition(manifest: Manifest, wanted: str | None, *, where: str) -> AgentDefinition:
    """The agent that is to be deployed. Several, and none named: any certificate would do."""
    agents = manifest.agents
    if wanted is None:
        found = [each for each in agents.values() if each.evaluation is not None]
    else:
        found = [each for key, each in agents.items() if wanted in (key, each.id)]
    listed = f"its agents are: {', '.join(agents) or 'none'}"
    if len(found) > 1:
        raise ConfigError("say which agent with --agent", where=where, hint=listed)
    if not found or found[0].evaluation is None:
        what = "no agent" if wanted is None else f"no agent {wanted!r}"
        raise ConfigError(f"{what} has an `evaluation`", where=where, hint=listed)
    return found[0]


def _build_requirements(
    definition: AgentDefinition, manifest: Manifest, policy: VerifyPolicy, *, where: str
) -> CertificateRequirements:
    profile = definition.evaluation
    assert profile is not None  # chosen for having one
    root = manifest.root or Path.cwd()
    if profile.golden_dataset_uri is None:
        raise ConfigError("there is no `golden_dataset_uri`", where=f"{where}: evaluation")
    criteria = _resolve_all_criteria(profile, CodeIndex(root, manifest), root=root, where=where)
    judged = any(criterion.graded_by.by == "judge" for criterion in criteria)
    return CertificateRequirements(
        agent=definition.id,
        definition_sha256=digest_definition(definition),
        definitions=digest_named_definitions(definition, manifest),
        model=strip_provider(definition.model or definition.id),
        criteria=criteria,
        repeats=profile.repeats,
        dataset_uri=read_address(profile.golden_dataset_uri, policy.fetch).shown,
        dataset_sha256=profile.golden_dataset_sha256,
        fetched_sha256=_fetch_dataset_sha256(profile.golden_dataset_uri, root, policy),
        judge=strip_provider(profile.evaluator_model or "") if judged else None,
        subjects=policy.subjects,
        runner=policy.runner,
        endpoint=build_certified_endpoint(policy.endpoint),
        max_age=policy.max_age,
        max_tries=policy.max_tries,
        judge_host=policy.judge_host,
        judge_models=policy.judge_models,
    )


def _digest_runner_files(
    certification: Certification, manifest: Manifest
) -> Mapping[str, str] | None:
    """The files of the runner as they are now, by the name that the certificate has for it.

    None for a runner that is not code.
    """
    agent, root = certification.agent, manifest.root or Path.cwd()
    named = certification.manifest.run_from
    # Wherever `verify` is called: the files are those beside which the agent was run.
    run_from = None if named is None else root.resolve() / named
    index = CodeIndex(root, manifest, run_from=run_from)
    name = agent.tools or agent.runner
    if not (agent.tools or name.startswith(COMMAND_PREFIX) or is_code_name(name)):
        return None
    code = index.runner(name)
    # Where the code names the manifest that was certified, that may have another name here.
    said = certification.manifest
    known = {said.path, *said.references, certification.dataset.uri}
    files = {} if code is None else code.files
    return {file: sha256 for file, sha256 in files.items() if file not in known}


def _fetch_dataset_sha256(uri: str, root: Path, policy: VerifyPolicy) -> str | None:
    if not policy.refetch_dataset:
        return None
    with TemporaryDirectory(prefix="assay-") as folder:
        # Without the pin: what is there is compared, and told with its digest.
        return fetch_golden(uri, root=root, rules=policy.fetch, cache=Path(folder)).sha256


def _resolve_all_criteria(
    profile: EvaluationProfile, code: CodeIndex, *, root: Path, where: str
) -> tuple[ResolvedCriterion, ...]:
    context = CriteriaContext(
        root, where, lambda: _build_placeholder_judge(profile), code, load=False
    )
    graders = resolve_criteria(profile, context)
    latency = resolve_latency_criterion(profile, where=where)
    scores = tuple(grader.criterion for grader in graders)
    return scores if latency is None else (*scores, latency)


def _build_placeholder_judge(profile: EvaluationProfile) -> JudgeModel | None:
    """In the place of the judge, which is not asked, and for which a verifier has no key."""
    named = profile.evaluator_model is not None
    return JudgeModel(Endpoint(provider="mock", model="echo")) if named else None
