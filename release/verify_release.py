"""Verifies a downloaded release: its signature, and that its files are the ones that were signed.

python release/verify_release.py dist key.pub.pem
"""

import hashlib
import json
import sys
from pathlib import Path

from assay.certify import read_verifying_key
from assay.certify.certificate_file import Envelope, decode_base64
from assay.certify.signatures import find_signer

ENVELOPE = "provenance.dsse.json"


def verify(folder: Path, key: Path) -> str:
    """Return the commit that the files were built from. Exits if anything does not match."""
    path = folder / ENVELOPE
    envelope = Envelope.model_validate_json(path.read_bytes())
    if find_signer(envelope, (read_verifying_key(key),), where=str(path)) is None:
        raise SystemExit(f"{path} is not signed with {key}")
    # Only what was signed is trusted: the statement beside the envelope is not read.
    statement = json.loads(decode_base64(envelope.payload, where=str(path)))
    for subject in statement["subject"]:
        file = folder / subject["name"]
        if not file.is_file():
            raise SystemExit(f"{file} is missing")
        if hashlib.sha256(file.read_bytes()).hexdigest() != subject["digest"]["sha256"]:
            raise SystemExit(f"{file} is not the file that was signed")
    source, *_ = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    commit: str = source["digest"]["gitCommit"]
    return commit


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    print(f"verified; built from commit {verify(Path(sys.argv[1]), Path(sys.argv[2]))}")
