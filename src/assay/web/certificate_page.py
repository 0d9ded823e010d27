"""Certificates of a project folder: criteria with their evidence, and whether they verify."""

import os
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request

from assay.certify import (
    MAX_CERTIFICATE_BYTES,
    Certification,
    VerifyPolicy,
    read_unverified_statement,
    verify_certificate,
)
from assay.errors import AssayError
from assay.store import Store

from .page import PageModel, build_page_routes, copy_fields, find_context, read_parameter

_NAMES = ("certificate.dsse.json", "certificate.json")
_MAX_CERTIFICATES = 100
_MAX_FOLDERS = 2000
_MAX_DEPTH = 5
_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "site-packages", "venv"})


class CertificateHead(PageModel):
    """One certificate of the list."""

    file: str
    """Relative to the project's folder."""

    agent: str | None
    verdict: str | None
    """None for a file that cannot be read as a certificate."""

    valid_until: str | None
    is_valid: bool
    """Whether it has not expired. Nothing else is checked in the list."""

    problem: str | None


class CriterionView(PageModel):
    """One criterion and its evidence."""

    name: str
    description: str
    status: str
    evidence: str | None
    strict: bool
    direction: str
    """`max`: the value must be at least the threshold; `min`: at most."""

    threshold: float
    value: float | None
    lower: float | None
    upper: float | None
    proven_bound: float | None
    """The one-sided bound that decides the evidence."""

    scale: tuple[float, float] | None
    samples: int
    unscored: int
    agent_errors: int
    graded_by: str
    reason: str


class VerificationView(PageModel):
    """The result of verifying a certificate, without a key and without fetching its dataset."""

    verified: bool
    signature: str
    checks: tuple[tuple[str, str, str, str], ...]
    """Name, status, expected and found of each check."""


class CertificateView(PageModel):
    """The list of certificates, or one of them."""

    project: str | None
    certificates: tuple[CertificateHead, ...] = ()
    truncated: bool
    """Whether the folder has more than could be searched."""

    file: str | None = None
    agent: str | None = None
    verdict: str | None = None
    criteria: tuple[CriterionView, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    verification: VerificationView | None = None
    not_verified: str | None = None
    """Why the certificate was not verified."""

    command: str | None = None


def read_certificates(store: Store, request: Request) -> CertificateView:
    """Read the certificates of the project, or the one that is asked for."""
    project = find_context(request).project
    found = [] if project is None else list(_find_certificates(project))
    wanted = read_parameter(request, "file")
    view = CertificateView(
        project=None if project is None else str(project),
        truncated=len(found) >= _MAX_CERTIFICATES,
    )
    if not wanted or project is None:
        heads = tuple(_describe_head(project, path) for path in found if project is not None)
        return view.model_copy(update={"certificates": heads})
    # Looked up among the files that were found: an address can never name another one.
    for path in found:
        if path.relative_to(project).as_posix() == wanted:
            return _describe_certificate(view, project, path)
    raise HTTPException(404, "the project has no such certificate")


def _find_certificates(project: Path) -> Iterator[Path]:
    count = 0
    for folders, (folder, names, files) in enumerate(os.walk(project), start=1):
        depth = len(Path(folder).relative_to(project).parts)
        names[:] = sorted(
            name
            for name in names
            if depth < _MAX_DEPTH and name not in _SKIPPED_FOLDERS and not name.startswith(".")
        )
        for name in _NAMES:
            path = Path(folder) / name
            # A link could lead out of the folder.
            if name in files and not path.is_symlink():
                yield path
                count += 1
        if count >= _MAX_CERTIFICATES or folders >= _MAX_FOLDERS:
            return


def _read_certification(path: Path) -> Certification:
    with path.open("rb") as file:
        data = file.read(MAX_CERTIFICATE_BYTES + 1)
    return read_unverified_statement(data, where=path.name).certification


def _describe_head(project: Path, path: Path) -> CertificateHead:
    name = path.relative_to(project).as_posix()
    try:
        found = _read_certification(path)
    # One damaged file must not hide the others.
    except (AssayError, OSError) as error:
        return CertificateHead(
            file=name,
            agent=None,
            verdict=None,
            valid_until=None,
            is_valid=False,
            problem=str(error),
        )
    return CertificateHead(
        file=name,
        agent=found.agent.name,
        verdict=str(found.verdict),
        valid_until=found.valid_until.isoformat(),
        is_valid=found.valid_until > datetime.now(UTC),
        problem=None,
    )


def _describe_certificate(view: CertificateView, project: Path, path: Path) -> CertificateView:
    try:
        found = _read_certification(path)
    except OSError as error:
        raise HTTPException(404, f"the certificate cannot be read: {error.strerror}") from None
    manifest = _find_manifest(project, path, found)
    verification, problem = None, None
    if manifest is None:
        problem = f"the manifest {found.manifest.path} was not found in the project"
    else:
        try:
            # The page has no key: it shows whether there is a signature, and does not check it.
            policy = VerifyPolicy(allow_unsigned=True)
            result = verify_certificate(path, manifest, agent=found.agent.id, policy=policy)
            verification = VerificationView(
                verified=result.verified,
                signature=result.signature,
                checks=tuple(
                    (each.check, str(each.status), each.expected, each.found)
                    for each in result.findings
                ),
            )
        except AssayError as error:
            problem = str(error)
    return view.model_copy(
        update={
            "file": path.relative_to(project).as_posix(),
            "agent": found.agent.name,
            "verdict": str(found.verdict),
            "criteria": tuple(
                copy_fields(
                    CriterionView,
                    each,
                    status=str(each.status),
                    evidence=None if each.evidence is None else str(each.evidence),
                    proven_bound=each.at_least if each.direction == "max" else each.at_most,
                    scale=each.range,
                    graded_by=f"{each.graded_by.by} {each.graded_by.name}",
                )
                for each in found.outcomes
            ),
            "facts": tuple(_list_facts(found)),
            "warnings": tuple(each.text for each in found.warnings),
            "verification": verification,
            "not_verified": problem,
            "command": shlex.join(
                ["assay", "certify", "verify", str(path), str(manifest or found.manifest.path)]
            ),
        }
    )


def _find_manifest(project: Path, path: Path, found: Certification) -> Path | None:
    """Return the manifest of a certificate; the path inside it must not leave the project."""
    root = project.resolve()
    for folder in (project, path.parent, *path.parent.parents):
        if not folder.resolve().is_relative_to(root):
            break
        manifest = (folder / found.manifest.path).resolve()
        if manifest.is_relative_to(root) and manifest.is_file():
            return manifest
    return None


def _list_facts(found: Certification) -> Iterator[tuple[str, str]]:
    yield "agent", f"{found.agent.name} ({found.agent.id})"
    yield "runner", found.agent.runner
    yield "dataset", f"{found.dataset.uri}, {found.dataset.size}"
    yield (
        "judge",
        "none: code measures every criterion" if found.judge is None else found.judge.asked,
    )
    yield "repeats", str(found.repeats)
    yield "tries", "not counted" if found.tries is None else found.tries.words
    yield "run", found.run
    yield "measured", f"{found.started:%Y-%m-%d %H:%M} to {found.finished:%Y-%m-%d %H:%M}"
    yield "valid until", f"{found.valid_until:%Y-%m-%d}"
    yield "manifest", f"{found.manifest.path}, sha256 {found.manifest.sha256[:12]}…"


ROUTES = build_page_routes(
    "/certificates",
    "/api/certificates",
    template="certificates.html",
    section="certificates",
    read=read_certificates,
)
