"""Reading certificates that somebody else may have written, and the envelopes around them."""

import base64
import binascii
import json
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay.errors import WireError

from .certificate import Statement

MAX_CERTIFICATE_BYTES = 8 * 1024 * 1024
"""Bytes of a certificate. One of a whole manifest has far less."""

PAYLOAD_TYPE = "application/vnd.in-toto+json"
_CertificateModel = TypeVar("_CertificateModel", bound=BaseModel)
_CERTIFICATE_HINT = (
    "give a certificate.json or certificate.dsse.json as `assay certify run -o` writes it"
)


class EnvelopeSignature(BaseModel):
    """One signature. The key's id is a hint only: nobody vouches for it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    sig: str
    keyid: str = ""


class Envelope(BaseModel):
    """A DSSE envelope: a statement as bytes, and the signatures over them."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    payload: str
    payload_type: Literal["application/vnd.in-toto+json"] = Field(alias="payloadType")
    signatures: tuple[EnvelopeSignature, ...] = Field(max_length=16)


def read_certificate(data: bytes, *, where: str) -> Statement | Envelope:
    """The statement in a file, or the envelope around one. Raises `WireError` for all else."""
    value = _parse_certificate_json(data, where)
    if "payload" in value or "payloadType" in value or "signatures" in value:
        return _validate_certificate(Envelope, value, where)
    return _validate_certificate(Statement, value, where)


def read_statement(data: bytes, *, where: str) -> Statement:
    """The statement that an envelope holds."""
    return _validate_certificate(Statement, _parse_certificate_json(data, where), where)


def decode_base64(text: str, *, where: str) -> bytes:
    """Base64 as DSSE has it: of either alphabet, but whole."""
    try:
        return base64.b64decode(text.translate(str.maketrans("-_", "+/")), validate=True)
    except (binascii.Error, ValueError) as error:
        raise WireError(f"the envelope is damaged: not base64: {error}", where=where) from None


def _parse_certificate_json(data: bytes, where: str) -> dict[str, Any]:
    if len(data) > MAX_CERTIFICATE_BYTES:
        raise WireError(
            f"has more than {MAX_CERTIFICATE_BYTES:,} bytes", where=where, hint=_CERTIFICATE_HINT
        )
    try:
        value = json.loads(
            data.decode(),
            object_pairs_hook=_reject_duplicate_names,
            parse_constant=_reject_json_constant,
        )
    except (ValueError, RecursionError) as error:
        raise WireError(f"is not JSON: {error}", where=where, hint=_CERTIFICATE_HINT) from None
    if not isinstance(value, dict):
        raise WireError("is not a JSON object", where=where, hint=_CERTIFICATE_HINT)
    return value


def _validate_certificate(
    kind: type[_CertificateModel], value: dict[str, Any], where: str
) -> _CertificateModel:
    try:
        # As JSON: neither a number for a text nor a text for a number.
        return kind.model_validate_json(json.dumps(value))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        said = first["msg"].removeprefix("Value error, ")
        said = f"{place}: {said}" if place else said
        raise WireError(f"is no certificate: {said}", where=where, hint=_CERTIFICATE_HINT) from None


def _reject_duplicate_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names are all different: two readers must not see two certificates."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found


def _reject_json_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")
