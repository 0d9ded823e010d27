"""Where the files of a release come from, as an in-toto statement (SLSA provenance)."""

import json
import os
import platform
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class BuildInput:
    """What a release is built from."""

    version: str
    commit: str
    epoch: int
    """Seconds since 1970 of the commit: the date of every file in the release."""

    tools: tuple[str, ...] = ()
    """The package URLs of the build tools."""


def write_provenance(
    dist: Path,
    *,
    source: BuildInput,
    started: datetime,
    digests: Mapping[str, str],
    key: Path | None,
) -> None:
    """Write the statement and, with a key, the signed envelope around the same bytes."""
    statement = json.dumps(describe_build(source, started=started, digests=digests), indent=2)
    (dist / "provenance.json").write_text(statement + "\n", "utf-8")
    if key is not None:
        from assay.certify import read_signing_key

        passphrase = os.environ.get("ASSAY_KEY_PASSPHRASE")
        envelope = read_signing_key(key, passphrase=passphrase).sign(statement + "\n")
        (dist / "provenance.dsse.json").write_text(envelope, "utf-8")


def describe_build(
    source: BuildInput, *, started: datetime, digests: Mapping[str, str]
) -> dict[str, Any]:
    """Return the statement on the files with these digests."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": d}} for name, d in digests.items()],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:assay-eval:make-release:1",
                "externalParameters": {"command": "make release", "version": source.version},
                "internalParameters": {
                    "SOURCE_DATE_EPOCH": source.epoch,
                    "python": platform.python_version(),
                },
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": source.commit}},
                    *({"uri": tool} for tool in source.tools),
                ],
            },
            "runDetails": {
                "builder": {"id": name_builder(os.environ)},
                "metadata": {
                    "invocationId": os.environ.get("GITHUB_RUN_ID") or str(uuid.uuid4()),
                    "startedOn": f"{started:%Y-%m-%dT%H:%M:%SZ}",
                    "finishedOn": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
                },
            },
        },
    }


def name_builder(environment: Mapping[str, str]) -> str:
    """Return the workflow that builds, or that the build was made by hand."""
    workflow = environment.get("GITHUB_WORKFLOW_REF")
    if workflow is None:
        return "urn:assay-eval:builder:local"
    return f"{environment.get('GITHUB_SERVER_URL', 'https://github.com')}/{workflow}"
