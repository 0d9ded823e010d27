"""Parsing of untrusted certificates and of their envelopes."""

import base64
import binascii
import json
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay.errors import ConfigError, WireError

from .certificate import Statement

# Far more than a certificate needs: bounds the memory that an untrusted file can take.
MAX_CERTIFICATE_BYTES = 8 * 1024 * 1024

PAYLOAD_TYPE = "application/vnd.in-toto+json"
_CertificateModel = TypeVar("_CertificateModel", bound=BaseModel)
_CERTIFICATE_HINT = (
    "pass a certificate.json or certificate.dsse.json written by `assay certify run -o`"
)


class EnvelopeSignature(BaseModel):
    """One signature. The key id is not authenticated: it is a hint only."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    sig: str
    keyid: str = ""


class Envelope(BaseModel):
    """A DSSE envelope: the bytes of a statement, and the signatures over them."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    payload: str
    payload_type: Literal["application/vnd.in-toto+json"] = Field(alias="payloadType")
    signatures: tuple[EnvelopeSignature, ...] = Field(max_length=16)


def read_certificate(data: bytes, *, where: str) -> Statement | Envelope:
    """Parse a statement, or the envelope around one. Raises `WireError` for anything else."""
    value = _parse_certificate_json(data, where)
    if "payload" in value or "payloadType" in value or "signatures" in value:
        return _validate_certificate(Envelope, value, where)
    return _validate_certificate(Statement, value, where)


def read_statement(data: bytes, *, where: str) -> Statement:
    """Parse the payload of an envelope."""
    return _validate_certificate(Statement, _parse_certificate_json(data, where), where)


def read_unverified_statement(data: bytes, *, where: str) -> Statement:
    """Parse a statement, or the payload of an envelope without checking its signatures."""
    found = read_certificate(data, where=where)
    if isinstance(found, Statement):
        return found
    return read_statement(decode_base64(found.payload, where=where), where=where)


def decode_base64(text: str, *, where: str) -> bytes:
    """Decode base64 in either alphabet, as DSSE allows."""
    try:
        return base64.b64decode(text.translate(str.maketrans("-_", "+/")), validate=True)
    except (binascii.Error, ValueError) as error:
        raise WireError(
            f"the envelope is damaged: it is not base64: {error}", where=where
        ) from None


def read_small_file(path: Path, limit: int, *, what: str) -> bytes:
    """Read a file up to one byte more than `limit`. Raises `ConfigError` if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(limit + 1)
    except OSError as error:
        message = f"the {what} cannot be read: {error.strerror}"
        raise ConfigError(message, where=str(path)) from error


def _parse_certificate_json(data: bytes, where: str) -> dict[str, Any]:
    if len(data) > MAX_CERTIFICATE_BYTES:
        raise WireError(
            f"the certificate has more than {MAX_CERTIFICATE_BYTES:,} bytes",
            where=where,
            hint=_CERTIFICATE_HINT,
        )
    try:
        value = json.loads(
            data.decode(),
            object_pairs_hook=_reject_duplicate_names,
            parse_constant=_reject_json_constant,
        )
    except (ValueError, RecursionError) as error:
        message = f"the certificate is not JSON: {error}"
        raise WireError(message, where=where, hint=_CERTIFICATE_HINT) from None
    if not isinstance(value, dict):
        raise WireError("the certificate is not a JSON object", where=where, hint=_CERTIFICATE_HINT)
    return value


def _validate_certificate(
    kind: type[_CertificateModel], value: dict[str, Any], where: str
) -> _CertificateModel:
    try:
        # Validated as JSON, which is strict: no string for a number, no number for a string.
        return kind.model_validate_json(json.dumps(value))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(map(str, first["loc"]))
        reason = first["msg"].removeprefix("Value error, ")
        reason = f"{path}: {reason}" if path else reason
        message = f"the file is not a certificate: {reason}"
        raise WireError(message, where=where, hint=_CERTIFICATE_HINT) from None


def _reject_duplicate_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # JSON parsers disagree on duplicate names: two readers would see two certificates.
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object contains a name twice")
    return found


def _reject_json_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")
