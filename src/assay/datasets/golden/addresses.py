"""The address of a golden dataset taken apart. Only known schemes, and nothing chained."""

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from assay.errors import DatasetError

from .access_rules import FetchRules


@dataclass(frozen=True)
class Store:
    """A kind of object store: the package that speaks to it, and the extra that brings it."""

    protocol: str
    package: str
    extra: str


STORES = {
    "s3": Store("s3", "s3fs", "s3"),
    "gs": Store("gs", "gcsfs", "gcs"),
    "gcs": Store("gs", "gcsfs", "gcs"),
    "az": Store("az", "adlfs", "azure"),
    "abfs": Store("az", "adlfs", "azure"),
    "hf": Store("hf", "huggingface_hub", "hf"),
}
_MEMORY = Store("memory", "fsspec", "s3")
SCHEMES = ("file", "http", "https", *STORES)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_BRACKETED = re.compile(r"(?<=//)\[[0-9A-Fa-f:.]*\]")
"""An IPv6 host, the one place where `::` is no chain."""

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HINT = f"known are a path, {', '.join(f'{scheme}:' for scheme in SCHEMES)}"


@dataclass(frozen=True)
class Address:
    """An address of an allowed scheme."""

    scheme: str
    """`file` for a path without one."""

    text: str
    """What is opened."""

    shown: str
    """What messages and certificates say: no user, no password, no query."""

    store: Store | None = None


def read_address(uri: str, rules: FetchRules) -> Address:
    """The parts of a URI or a path. Raises `DatasetError` for what is not fetched from."""
    if not uri.strip() or not uri.isprintable():
        raise DatasetError(f"{uri!r} is no address", where="golden dataset", hint=_HINT)
    if "::" in _BRACKETED.sub("", uri):
        first = without_secrets(uri.partition("::")[0])
        raise DatasetError("is a chain of addresses", where=f"{first}::…", hint=_HINT)
    scheme = match[1].lower() if (match := _SCHEME.match(uri)) else None
    if scheme is None:
        return Address("file", uri, uri)
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise DatasetError(f"is no address: {error}", where=f"{scheme}:…") from None
    if scheme == "file":
        return _file(uri, parts)
    shown = without_secrets(uri)
    if scheme in ("http", "https"):
        if not parts.hostname:
            raise DatasetError("names no host", where=shown)
        return Address(scheme, uri, shown)
    store = _MEMORY if scheme == "memory" and rules.allow_memory else STORES.get(scheme)
    if store is None:
        raise DatasetError(f"nothing is fetched from {scheme!r}", where=shown, hint=_HINT)
    return _stored(scheme, parts, shown, store)


def _file(uri: str, parts: SplitResult) -> Address:
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        hint = "a file's address is file:///path, or simply its path"
        raise DatasetError("is no address of a file", where=without_secrets(uri), hint=hint)
    path = unquote(parts.path)
    if not path:
        raise DatasetError("names no file", where=uri)
    return Address("file", path, uri)


def _stored(scheme: str, parts: SplitResult, shown: str, store: Store) -> Address:
    # A host or a key inside the address would let a manifest choose where requests go.
    if not _BUCKET.fullmatch(parts.netloc) or parts.query or parts.fragment:
        hint = f"written {scheme}://bucket/path, without user, host and query"
        raise DatasetError("is no plain address of an object", where=shown, hint=hint)
    if not parts.path.strip("/") or ".." in parts.path.split("/"):
        hint = f"written {scheme}://bucket/path"
        raise DatasetError("names no object", where=shown, hint=hint)
    return Address(scheme, f"{store.protocol}://{parts.netloc}{parts.path}", shown, store)


def without_secrets(uri: str) -> str:
    """`uri` without user, password, query and fragment, where keys travel."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return f"{uri.partition(':')[0]}:…"
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", "")) or uri
