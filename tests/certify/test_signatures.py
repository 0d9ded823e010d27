"""Keys and signatures: what is signed cannot be changed, and no file is written over."""

import base64
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.certify.certificate import build_statement
from assay.certify.certificate_file import Envelope, read_certificate
from assay.certify.signatures import (
    MAX_KEY_BYTES,
    SigningKey,
    find_signer,
    generate_key,
    read_signing_key,
    read_verifying_key,
)
from assay.errors import ConfigError, MissingExtra, WireError
from bars import certification

STATEMENT = build_statement(certification(), valid_days=30).to_json()


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    return read_signing_key(generate_key(tmp_path / "key.pem").private)


def envelope(text: str, **fields: Any) -> Envelope:
    found = read_certificate(json.dumps({**json.loads(text), **fields}).encode(), where="c")
    assert isinstance(found, Envelope)
    return found


def signer(found: Envelope, *paths: Path) -> str | None:
    return find_signer(found, tuple(map(read_verifying_key, paths)), where="c")


def test_a_signed_statement_is_known_by_the_public_key(key: SigningKey, tmp_path: Path) -> None:
    signed = key.sign(STATEMENT)

    assert signer(envelope(signed), tmp_path / "key.pub.pem") == key.key_id
    assert base64.b64decode(json.loads(signed)["payload"]).decode() == STATEMENT


def test_a_key_is_written_for_its_owner_alone_and_its_public_half_beside_it(
    tmp_path: Path,
) -> None:
    made = generate_key(tmp_path / "team.pem")

    assert (made.private.name, made.public.name) == ("team.pem", "team.pub.pem")
    assert stat.S_IMODE(made.private.stat().st_mode) == 0o600
    assert b"PRIVATE" not in made.public.read_bytes()
    assert read_verifying_key(made.public).key_id == made.key_id


@pytest.mark.parametrize("name", ["key.pem", "key.pub.pem"])
def test_no_file_is_written_over(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")

    with pytest.raises(ConfigError, match=f"{name}: the key file already exists"):
        generate_key(tmp_path / "key.pem")

    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [(name, "mine")]


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written: No such file"):
        generate_key(tmp_path / "none" / "key.pem")


def test_the_key_itself_is_shown_nowhere(key: SigningKey, tmp_path: Path) -> None:
    secret = "".join((tmp_path / "key.pem").read_text().splitlines()[1:-1])

    assert secret not in repr(key)
    assert repr(key) == f"SigningKey(key_id={key.key_id!r})"


def test_a_passphrase_protects_the_key(tmp_path: Path) -> None:
    made = generate_key(tmp_path / "key.pem", passphrase="open sesame")

    assert b"ENCRYPTED" in made.private.read_bytes()
    assert read_signing_key(made.private, passphrase="open sesame").key_id == made.key_id
    with pytest.raises(ConfigError, match="protected by a passphrase"):
        read_signing_key(made.private)
    with pytest.raises(ConfigError, match="the passphrase is wrong") as caught:
        read_signing_key(made.private, passphrase="guess")
    assert "guess" not in str(caught.value)


def test_a_passphrase_that_is_not_needed_or_empty_is_refused(tmp_path: Path) -> None:
    made = generate_key(tmp_path / "key.pem")

    with pytest.raises(ConfigError, match="has no passphrase"):
        read_signing_key(made.private, passphrase="x")
    with pytest.raises(ConfigError, match="the passphrase is empty"):
        generate_key(tmp_path / "other.pem", passphrase="")


def test_a_private_key_is_refused_where_certificates_are_checked(tmp_path: Path) -> None:
    made = generate_key(tmp_path / "key.pem")

    with pytest.raises(ConfigError, match="the file contains a private key"):
        read_verifying_key(made.private)
    with pytest.raises(ConfigError, match="not a private key"):
        read_signing_key(made.public)


def test_what_is_no_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pem"
    path.write_text("hello")
    for read in (read_signing_key, read_verifying_key):
        with pytest.raises(ConfigError, match="in PEM form"):
            read(path)
        with pytest.raises(ConfigError, match="cannot be read"):
            read(tmp_path / "none.pem")
    path.write_bytes(b"x" * (MAX_KEY_BYTES + 1))
    with pytest.raises(ConfigError, match="the file is not a key"):
        read_verifying_key(path)


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    other = ec.generate_private_key(ec.SECP256R1())
    pem = serialization.Encoding.PEM
    (tmp_path / "private.pem").write_bytes(
        other.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    (tmp_path / "public.pem").write_bytes(
        other.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    )

    with pytest.raises(ConfigError, match="is not an ed25519 key"):
        read_signing_key(tmp_path / "private.pem")
    with pytest.raises(ConfigError, match="is not an ed25519 key"):
        read_verifying_key(tmp_path / "public.pem")


def test_a_payload_that_was_changed_is_not_signed(key: SigningKey, tmp_path: Path) -> None:
    other = base64.b64encode(STATEMENT.replace("helper", "hacker").encode()).decode()

    assert signer(envelope(key.sign(STATEMENT), payload=other), tmp_path / "key.pub.pem") is None


def test_a_signature_over_another_type_does_not_fit(key: SigningKey, tmp_path: Path) -> None:
    from securesystemslib.dsse import Envelope as Dsse

    other = Dsse(STATEMENT.encode(), "text/plain", {})
    other.sign(key._signer)
    swapped = {**other.to_dict(), "payloadType": "application/vnd.in-toto+json"}

    assert signer(envelope(json.dumps(swapped)), tmp_path / "key.pub.pem") is None
    with pytest.raises(WireError, match="payloadType"):
        envelope(json.dumps(other.to_dict()))


def test_another_key_does_not_fit_whatever_id_the_envelope_claims(
    key: SigningKey, tmp_path: Path
) -> None:
    other = generate_key(tmp_path / "other.pem")
    signed = json.loads(key.sign(STATEMENT))
    (signature,) = signed["signatures"]
    claimed = [{**signature, "keyid": other.key_id}]

    assert signer(envelope(json.dumps(signed)), other.public) is None
    assert signer(envelope(json.dumps(signed), signatures=claimed), other.public) is None


def test_an_envelope_without_signatures_is_not_signed(key: SigningKey, tmp_path: Path) -> None:
    stripped = envelope(key.sign(STATEMENT), signatures=[])

    assert signer(stripped, tmp_path / "key.pub.pem") is None


def test_of_several_signatures_one_that_fits_is_enough(key: SigningKey, tmp_path: Path) -> None:
    (good,) = json.loads(key.sign(STATEMENT))["signatures"]
    bad = {"sig": base64.b64encode(b"x" * 64).decode(), "keyid": good["keyid"]}
    both = envelope(key.sign(STATEMENT), signatures=[bad, good])
    neither = envelope(key.sign(STATEMENT), signatures=[bad, bad])

    assert signer(both, tmp_path / "key.pub.pem") == key.key_id
    assert signer(neither, tmp_path / "key.pub.pem") is None


def test_of_several_keys_one_that_fits_is_enough(key: SigningKey, tmp_path: Path) -> None:
    other = generate_key(tmp_path / "other.pem")

    found = signer(envelope(key.sign(STATEMENT)), other.public, tmp_path / "key.pub.pem")

    assert found == key.key_id


def test_an_id_is_not_needed_in_an_envelope(key: SigningKey, tmp_path: Path) -> None:
    (good,) = json.loads(key.sign(STATEMENT))["signatures"]
    bare = envelope(key.sign(STATEMENT), signatures=[{"sig": good["sig"]}])

    assert signer(bare, tmp_path / "key.pub.pem") == key.key_id


@pytest.mark.parametrize("size", [0, 63, 65])
def test_a_signature_of_another_size_does_not_fit(
    size: int, key: SigningKey, tmp_path: Path
) -> None:
    short = [{"sig": base64.b64encode(b"x" * size).decode()}]

    assert signer(envelope(key.sign(STATEMENT), signatures=short), tmp_path / "key.pub.pem") is None


def test_base64_that_was_cut_off_is_refused(key: SigningKey, tmp_path: Path) -> None:
    signed = json.loads(key.sign(STATEMENT))
    cut = envelope(json.dumps(signed), payload=signed["payload"][:-3])

    with pytest.raises(WireError, match="damaged"):
        signer(cut, tmp_path / "key.pub.pem")


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "securesystemslib", None)

    with pytest.raises(MissingExtra, match="needs the package `securesystemslib`") as caught:
        generate_key(tmp_path / "key.pem")

    assert caught.value.hint == "pip install 'assay-eval[sign]'"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/usr/bin/openssl"), reason="there is no openssl")
def test_keys_are_in_the_form_that_openssl_reads(tmp_path: Path) -> None:
    made = generate_key(tmp_path / "key.pem")

    done = subprocess.run(
        ["/usr/bin/openssl", "pkey", "-in", str(made.private), "-pubout"],
        capture_output=True,
        timeout=180,
    )

    assert done.stdout == made.public.read_bytes()
