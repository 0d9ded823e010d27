"""Certificates, keys and manifests that belong together, for tests of verification."""

import asyncio
import json
from pathlib import Path
from typing import Any

from assay.certify import CertifySettings, certify, plan_certifications
from assay.certify.certificate import Resource
from assay.certify.report_files import IssueOptions, write_reports
from assay.certify.signatures import generate_key, read_signing_key
from certifying import manifest, profile, right


def issued(
    folder: Path, evaluation: dict[str, Any] | None = None, *, sign: bool = True, **settings: Any
) -> Path:
    """Certify the agent of a manifest in `folder`; the certificate, signed with `key.pem`."""
    path = manifest(folder, profile() if evaluation is None else evaluation)
    given = CertifySettings(**{"runner": right, **settings})
    (plan,) = plan_certifications(path, given, folder=folder / "fetched")
    result = asyncio.run(certify(plan, store=folder / "store.db"))
    key = read_signing_key(generate_key(folder / "key.pem").private) if sign else None
    commit = Resource(name="git", digest={"gitCommit": "0123abcd" * 5})
    written = write_reports(
        result, folder / "out", options=IssueOptions(subjects=(commit,), key=key)
    )
    return written[-1]


def change(path: Path, *keys: str | int, to: Any) -> None:
    """Put another value into a JSON file."""
    whole = value = json.loads(path.read_text())
    for key in keys[:-1]:
        value = value[key]
    value[keys[-1]] = to
    path.write_text(json.dumps(whole))
