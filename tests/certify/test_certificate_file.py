"""Files that claim to be certificates: two forms are read, everything else is refused."""

import base64
import json

import pytest

from assay.certify.certificate import Statement, build_statement
from assay.certify.certificate_file import (
    MAX_CERTIFICATE_BYTES,
    Envelope,
    decode_base64,
    read_certificate,
    read_statement,
)
from assay.errors import WireError
from bars import certification

STATEMENT = build_statement(certification(), valid_days=30)
TEXT = STATEMENT.to_json()


def enveloped(**fields: object) -> bytes:
    given = {
        "payload": base64.b64encode(TEXT.encode()).decode(),
        "payloadType": "application/vnd.in-toto+json",
        "signatures": [{"sig": "AAAA", "keyid": "k"}],
    }
    return json.dumps({**given, **fields}).encode()


def test_a_statement_is_read() -> None:
    assert read_certificate(TEXT.encode(), where="c.json") == STATEMENT


def test_an_envelope_is_read_and_its_statement_after_it() -> None:
    found = read_certificate(enveloped(), where="c.json")

    assert isinstance(found, Envelope)
    assert read_statement(decode_base64(found.payload, where="c.json"), where="c.json") == STATEMENT


def test_base64_of_either_alphabet_is_understood() -> None:
    data = b"\xfb\xff\xbe"

    assert decode_base64("+/++", where="c") == decode_base64("-_--", where="c") == data


@pytest.mark.parametrize("text", ["AAA", "A A=", "ÄÄÄÄ", "AA=A"])
def test_base64_that_is_damaged_is_refused(text: str) -> None:
    with pytest.raises(WireError, match=r"c\.json: the envelope is damaged: it is not base64"):
        decode_base64(text, where="c.json")


BAD = {
    "not JSON": (b"{", "is not JSON"),
    "nothing": (b"", "is not JSON"),
    "not text": (b"\xff\xfe{\x00}\x00", "is not JSON"),
    "not an object": (b"[]", "is not a JSON object"),
    "deep": (b"[" * 100_000, "is not JSON"),
    "a name twice": (b'{"_type": "a", "_type": "b"}', "an object contains a name twice"),
    "NaN": (b'{"_type": NaN}', "NaN is not a JSON number"),
    "another file of ours": (
        certification().model_dump_json().encode(),
        "the file is not a certificate",
    ),
    "another payload": (
        enveloped(payloadType="text/plain"),
        "the file is not a certificate: payloadType",
    ),
    "signatures that are none": (
        enveloped(signatures="x"),
        "the file is not a certificate: signatures",
    ),
    "too many signatures": (enveloped(signatures=[{"sig": "AAAA"}] * 17), "at most 16 items"),
    "an envelope without payload": (
        b'{"signatures": []}',
        "the file is not a certificate: payload",
    ),
    "a lone surrogate": (TEXT.replace("Helper", "\\ud800").encode(), "Invalid JSON"),
}


@pytest.mark.parametrize(("data", "message"), BAD.values(), ids=BAD)
def test_what_is_no_certificate_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(WireError, match=message) as caught:
        read_certificate(data, where="c.json")

    assert str(caught.value).startswith("c.json: ")
    assert caught.value.hint is not None


def test_a_file_that_is_too_large_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(WireError, match="has more than 8,388,608 bytes"):
        read_certificate(b" " * (MAX_CERTIFICATE_BYTES + 1), where="c.json")


def test_reading_leaves_the_statement_as_it_was_written() -> None:
    found = read_certificate(TEXT.encode(), where="c.json")

    assert isinstance(found, Statement)
    assert found.to_json() == TEXT
