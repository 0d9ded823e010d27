"""Keys, and signatures of certificates: ed25519 in a DSSE envelope.

A signature covers the bytes of the certificate and their type. Only the verifier's keys decide who
may sign: the key id in an envelope is not trusted.
"""

import contextlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.errors import ConfigError, MissingExtra

from .certificate_file import PAYLOAD_TYPE, Envelope, decode_base64, read_small_file

# A PEM file has a few hundred bytes; keeps a wrong path from being read into memory.
MAX_KEY_BYTES = 64 * 1024


@dataclass(frozen=True)
class SigningKey:
    """A private key. Its `repr` omits the secret."""

    key_id: str
    _signer: Any = field(repr=False)

    def sign(self, statement: str) -> str:
        """Return the signed envelope of a statement as JSON."""
        dsse, *_ = _import_signing()
        envelope = dsse.Envelope(statement.encode(), PAYLOAD_TYPE, {})
        envelope.sign(self._signer)
        return json.dumps(envelope.to_dict(), indent=2) + "\n"


@dataclass(frozen=True)
class VerifyingKey:
    """A public key that signatures are verified with."""

    path: Path
    key_id: str
    _key: Any = field(repr=False)

    def fits(self, signature: bytes, signed: bytes) -> bool:
        """Whether the private key of this pair made the signature over the bytes."""
        from securesystemslib.exceptions import UnverifiedSignatureError, VerificationError

        _, signer, *_ = _import_signing()
        given = signer.Signature(self.key_id, signature.hex())
        try:
            self._key.verify_signature(given, signed)
        except (UnverifiedSignatureError, VerificationError):
            return False
        return True


@dataclass(frozen=True)
class KeyPair:
    """The two files of a new key."""

    private: Path
    public: Path
    key_id: str


def find_signer(envelope: Envelope, keys: tuple[VerifyingKey, ...], *, where: str) -> str | None:
    """Return the id of the key that signed an envelope; None if none of `keys` did."""
    payload = decode_base64(envelope.payload, where=where)
    dsse, *_ = _import_signing()
    signed = dsse.Envelope(payload, envelope.payload_type, {}).pae()
    for each in envelope.signatures:
        signature = decode_base64(each.sig, where=where)
        for key in keys:
            if key.fits(signature, signed):
                return key.key_id
    return None


def generate_key(path: Path, *, passphrase: str | None = None) -> KeyPair:
    """Write a new private key, readable by its owner only, and the public key beside it.

    Existing files are never overwritten: a lost key cannot be restored.
    """
    if passphrase == "":
        raise ConfigError("the passphrase is empty", hint="omit it, or choose a passphrase")
    _, signer, serialization, ed25519 = _import_signing()
    private = ed25519.Ed25519PrivateKey.generate()
    public_path = path.with_name(f"{path.stem}.pub{path.suffix or '.pem'}")
    protection = (
        serialization.NoEncryption()
        if passphrase is None
        else serialization.BestAvailableEncryption(passphrase.encode())
    )
    secret = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection
    )
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    # The public key first: if its path is taken, no private key is left behind.
    _create_key_file(public_path, public, mode=0o644)
    try:
        _create_key_file(path, secret, mode=0o600)
    except BaseException:
        public_path.unlink()
        raise
    key_id = signer.SSlibKey.from_crypto(private.public_key()).keyid
    return KeyPair(path, public_path, key_id)


def read_signing_key(path: Path, *, passphrase: str | None = None) -> SigningKey:
    """Read a private key written by `generate_key` or openssl."""
    _, signer, serialization, ed25519 = _import_signing()
    data = _read_key_file(path)
    try:
        key = serialization.load_pem_private_key(
            data, None if passphrase is None else passphrase.encode()
        )
    except TypeError as error:
        # Raised for a missing passphrase, and for one that the key does not need.
        needed = "is protected by a passphrase" if passphrase is None else "has no passphrase"
        hint = (
            "pass the variable with the passphrase as --passphrase-env" if not passphrase else None
        )
        raise ConfigError(f"the key {needed}", where=str(path), hint=hint) from error
    except ValueError:
        # The library's message may quote the file: do not show it.
        wrong = "the passphrase is wrong, or " if passphrase is not None else ""
        message = f"{wrong}the file is not a private key in PEM format"
        raise ConfigError(message, where=str(path)) from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise ConfigError("the key is not an ed25519 key", where=str(path), hint=_KEYGEN_HINT)
    key_id = signer.SSlibKey.from_crypto(key.public_key()).keyid
    return SigningKey(key_id, signer.CryptoSigner(key))


def read_verifying_key(path: Path) -> VerifyingKey:
    """Read a public key. Raises `ConfigError` for a private one."""
    _, signer, serialization, ed25519 = _import_signing()
    data = _read_key_file(path)
    if b"PRIVATE KEY" in data:
        # A private key does not belong on a machine that only verifies.
        raise ConfigError(
            "the file contains a private key",
            where=str(path),
            hint="pass the public key: NAME.pub.pem",
        )
    try:
        key = serialization.load_pem_public_key(data)
    except ValueError:
        raise ConfigError("the file is not a public key in PEM format", where=str(path)) from None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise ConfigError("the key is not an ed25519 key", where=str(path), hint=_KEYGEN_HINT)
    public = signer.SSlibKey.from_crypto(key)
    return VerifyingKey(path, public.keyid, public)


_KEYGEN_HINT = "create one with `assay certify keygen`"


def _create_key_file(path: Path, data: bytes, *, mode: int) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise ConfigError(
            "the key file already exists and is never overwritten",
            where=str(path),
            hint="choose another name",
        ) from None
    except OSError as error:
        raise ConfigError(
            f"the key file cannot be written: {error.strerror}", where=str(path)
        ) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


def _read_key_file(path: Path) -> bytes:
    data = read_small_file(path, MAX_KEY_BYTES, what="key file")
    if len(data) > MAX_KEY_BYTES:
        raise ConfigError(
            f"the file is not a key: it has more than {MAX_KEY_BYTES:,} bytes", where=str(path)
        )
    return data


def _import_signing() -> tuple[Any, Any, Any, Any]:
    """Import the modules of envelopes, signers and keys. Raises `MissingExtra` without them."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
        from securesystemslib import dsse, signer
    except ImportError:
        by = "signing certificates"
        raise MissingExtra.build("sign", by=by, package="securesystemslib") from None
    return dsse, signer, serialization, ed25519
