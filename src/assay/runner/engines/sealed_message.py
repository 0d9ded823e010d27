"""Messages that only one process can read: how keys reach the workers of a cluster.

Arguments of remote calls are kept in the memory and the logs of other processes of the cluster.
A worker makes a key pair that never leaves it, and messages are encrypted with its public key.
"""

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_PUBLIC_BYTES = 32
# Each message has a key of its own, so that the nonce need not differ.
_NONCE = bytes(12)


class MessageReader:
    """The private key of a process."""

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()

    def unseal(self, message: bytes) -> bytes:
        """Decrypt a message of `seal_message`. Raises `InvalidTag` for any other."""
        sender, body = message[:_PUBLIC_BYTES], message[_PUBLIC_BYTES:]
        secret = self._private.exchange(X25519PublicKey.from_public_bytes(sender))
        return _build_cipher(secret, sender, self.public).decrypt(_NONCE, body, sender)


def seal_message(text: bytes, reader: bytes) -> bytes:
    """Encrypt a message for the process with this public key."""
    own = X25519PrivateKey.generate()
    sender = own.public_key().public_bytes_raw()
    secret = own.exchange(X25519PublicKey.from_public_bytes(reader))
    return sender + _build_cipher(secret, sender, reader).encrypt(_NONCE, text, sender)


def _build_cipher(secret: bytes, sender: bytes, reader: bytes) -> ChaCha20Poly1305:
    derive = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"assay ray" + sender + reader)
    return ChaCha20Poly1305(derive.derive(secret))
