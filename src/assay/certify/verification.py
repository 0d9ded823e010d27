"""Verification of a certificate against a manifest. Reports every mismatch.

No agent or judge is called, and no code of the manifest or the certificate is imported: digests are
computed from the files.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from assay.agents import COMMAND_PREFIX
from assay.datasets import fetch_golden, read_address
from assay.errors import ConfigError
from assay.scorers import is_code_ref
from assay.stats import ReportSection
from assay.types import AgentDefinition, Endpoint, EvaluationProfile, Manifest

from .asked_models import strip_provider
from .certificate import Certification, Statement
from .certificate_checks import (
    CertificateFinding,
    CertificateRequirements,
    VerifyPolicy,
    build_finding,
    check_certificate,
)
from .certificate_file import (
    MAX_CERTIFICATE_BYTES,
    Envelope,
    decode_base64,
    read_certificate,
    read_small_file,
    read_statement,
)
from .code_digests import digest_definition, digest_named_definitions
from .code_index import CodeIndex
from .criteria import ResolvedCriterion
from .graders import CriteriaContext, resolve_criteria, resolve_latency_criterion
from .judge_client import JudgeModel
from .signatures import find_signer

SignatureState = Literal["signed", "unsigned", "not checked", "wrong"]
"""`signed`: made with one of the given keys; `wrong`: made with none of them."""


class Verification(ReportSection):
    """The result of verifying a certificate against a manifest."""

    verified: bool
    signature: SignatureState
    key_id: str | None
    findings: tuple[CertificateFinding, ...]
    certification: Certification | None
    """None when the signature is wrong: then nothing in it can be trusted."""

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
    """Verify a certificate against one agent of a manifest.

    Raises `WireError` for an invalid certificate file, `ConfigError` for a manifest that cannot be
    certified, and `DatasetError` when the dataset cannot be fetched.
    """
    policy = policy or VerifyPolicy()
    where = str(certificate)
    data = read_small_file(certificate, MAX_CERTIFICATE_BYTES, what="certificate")
    found = read_certificate(data, where=where)
    signature, key_id = _check_certificate_signature(found, policy, where=where)
    first = _build_signature_finding(signature, key_id, policy)
    if signature == "wrong":
        # Do not even parse the payload: its content is untrusted.
        return Verification(
            verified=False,
            signature=signature,
            key_id=None,
            findings=(first,),
            certification=None,
        )
    statement = found
    if isinstance(statement, Envelope):
        statement = read_statement(decode_base64(statement.payload, where=where), where=where)
    loaded = Manifest.load(manifest)
    definition = _select_definition(loaded, agent, where=str(manifest))
    index = _build_code_index(statement.certification, loaded)
    where = f"{manifest}: {definition.id}"
    expected = _build_requirements(definition, loaded, index, policy, where=where)
    expected = replace(expected, code=_digest_runner_files(statement.certification, index))
    findings = (first, *check_certificate(statement, expected, now=now()))
    return Verification(
        verified=all(each.status != "mismatch" for each in findings),
        signature=signature,
        key_id=key_id,
        findings=findings,
        certification=statement.certification,
    )


def _check_certificate_signature(
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
    expected = f"signed with {ids or 'a given key'}"
    found = {
        "signed": f"signed with {key_id}",
        "unsigned": "unsigned",
        "not checked": "signature not checked: no key was given",
        "wrong": "no signature by a given key",
    }[state]
    if state != "signed" and policy.allow_unsigned:
        return build_finding("signature", "nothing: --allow-unsigned", found, ok=None)
    return build_finding("signature", expected, found, ok=state == "signed")


def _select_definition(manifest: Manifest, wanted: str | None, *, where: str) -> AgentDefinition:
    """Return the agent to verify."""
    # Never guessed among several: a certificate of any of them would then verify.
    selected = manifest.select_agents(wanted).values()
    found = [each for each in selected if wanted is not None or each.evaluation is not None]
    listed = f"agents of the manifest: {', '.join(manifest.agents) or 'none'}"
    if len(found) > 1:
        raise ConfigError(
            "the manifest has several agents: choose one with --agent", where=where, hint=listed
        )
    if not found or found[0].evaluation is None:
        what = "no agent" if wanted is None else f"no agent {wanted!r}"
        raise ConfigError(f"{what} has an `evaluation`", where=where, hint=listed)
    return found[0]


def _build_code_index(certification: Certification, manifest: Manifest) -> CodeIndex:
    root, named = manifest.root or Path.cwd(), certification.manifest.run_from
    # Independent of the current folder: files are looked up where the agent was run.
    run_from = None if named is None else root.resolve() / named
    return CodeIndex(root, manifest, run_from=run_from)


def _build_requirements(
    definition: AgentDefinition,
    manifest: Manifest,
    index: CodeIndex,
    policy: VerifyPolicy,
    *,
    where: str,
) -> CertificateRequirements:
    profile = definition.evaluation
    assert profile is not None  # chosen for having one
    root = manifest.root or Path.cwd()
    if profile.golden_dataset_uri is None:
        raise ConfigError("`golden_dataset_uri` is missing", where=f"{where}: evaluation")
    criteria = _resolve_all_criteria(profile, index, root=root, where=where)
    judged = any(criterion.graded_by.by == "judge" for criterion in criteria)
    uri, fetched = profile.golden_dataset_uri, None
    if policy.refetch_dataset:
        with TemporaryDirectory(prefix="assay-") as folder:
            # Fetched without the pin, so that a changed dataset is reported as a mismatch.
            fetched = fetch_golden(uri, root=root, rules=policy.fetch, cache=Path(folder)).sha256
    return CertificateRequirements(
        agent=definition.id,
        definition_sha256=digest_definition(definition),
        definitions=digest_named_definitions(definition, manifest),
        model=strip_provider(definition.model or definition.id),
        criteria=criteria,
        repeats=profile.repeats,
        dataset_uri=read_address(uri, policy.fetch).shown,
        dataset_sha256=profile.golden_dataset_sha256,
        fetched_sha256=fetched,
        judge=strip_provider(profile.evaluator_model or "") if judged else None,
        policy=policy,
    )


def _digest_runner_files(
    certification: Certification, index: CodeIndex
) -> Mapping[str, str] | None:
    """Digest the current files of the certified runner; None for a runner that is not code."""
    agent = certification.agent
    name = agent.tools or agent.runner
    if not (agent.tools or name.startswith(COMMAND_PREFIX) or is_code_ref(name)):
        return None
    code = index.find("runner", name)
    # The certified manifest may have another name here. Manifest and dataset have checks of
    # their own.
    file = certification.manifest
    known = {file.path, *file.references, certification.dataset.uri}
    files = {} if code is None else code.files
    return {name: sha256 for name, sha256 in files.items() if name not in known}


def _resolve_all_criteria(
    profile: EvaluationProfile, code: CodeIndex, *, root: Path, where: str
) -> tuple[ResolvedCriterion, ...]:
    # A placeholder: the judge is never called, and a verifier has no key for it.
    judge = None
    if profile.evaluator_model is not None:
        judge = JudgeModel(Endpoint(provider="mock", model="echo"))
    context = CriteriaContext(root, where, lambda: judge, code, load=False)
    graders = resolve_criteria(profile, context)
    latency = resolve_latency_criterion(profile, where=where)
    scores = tuple(grader.criterion for grader in graders)
    return scores if latency is None else (*scores, latency)
