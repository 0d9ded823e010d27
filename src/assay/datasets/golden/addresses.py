"""Parsing of golden dataset addresses: known schemes only, and no fsspec chains."""

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from assay.errors import DatasetError

from .access_rules import FetchRules


@dataclass(frozen=True)
class ObjectStore:
    """A kind of object store, with the package and the extra that support it."""

    protocol: str
    package: str
    extra: str


STORES = {
    "s3": ObjectStore("s3", "s3fs", "s3"),
    "gs": ObjectStore("gs", "gcsfs", "gcs"),
    "gcs": ObjectStore("gs", "gcsfs", "gcs"),
    "az": ObjectStore("az", "adlfs", "azure"),
    "abfs": ObjectStore("az", "adlfs", "azure"),
    "hf": ObjectStore("hf", "huggingface_hub", "hf"),
}
_MEMORY_STORE = ObjectStore("memory", "fsspec", "s3")
SCHEMES = ("file", "http", "https", *STORES)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
# An IPv6 host: the only place where `::` does not separate chained fsspec addresses.
_BRACKETED = re.compile(r"(?<=//)\[[0-9A-Fa-f:.]*\]")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SCHEME_HINT = f"supported are a path, {', '.join(f'{scheme}:' for scheme in SCHEMES)}"


@dataclass(frozen=True)
class DatasetAddress:
    """An address of an allowed scheme."""

    scheme: str
    """`file` for a path without one."""

    text: str
    """The address to open."""

    shown: str
    """The address for messages and certificates, without user, password and query."""

    store: ObjectStore | None = None


def read_address(uri: str, rules: FetchRules) -> DatasetAddress:
    """Parse a URI or a path. Raises `DatasetError` for one that is not supported."""
    if not uri.strip() or not uri.isprintable():
        raise DatasetError(
            f"{uri!r} is not a valid address", where="golden dataset", hint=_SCHEME_HINT
        )
    # fsspec would open a chain such as `simplecache::file://…` past the checks below.
    if "::" in _BRACKETED.sub("", uri):
        first = redact_uri(uri.partition("::")[0])
        raise DatasetError(
            "the address is a chain of several", where=f"{first}::…", hint=_SCHEME_HINT
        )
    scheme = match[1].lower() if (match := _SCHEME.match(uri)) else None
    if scheme is None:
        return DatasetAddress("file", uri, uri)
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise DatasetError(f"the address is invalid: {error}", where=f"{scheme}:…") from None
    if scheme == "file":
        return _parse_file_address(uri, parts)
    shown = redact_uri(uri)
    if scheme in ("http", "https"):
        if not parts.hostname:
            raise DatasetError("the address has no host", where=shown)
        return DatasetAddress(scheme, uri, shown)
    store = _MEMORY_STORE if scheme == "memory" and rules.allow_memory else STORES.get(scheme)
    if store is None:
        raise DatasetError(
            f"the scheme {scheme!r} is not supported", where=shown, hint=_SCHEME_HINT
        )
    return _parse_object_address(scheme, parts, shown, store)


def _parse_file_address(uri: str, parts: SplitResult) -> DatasetAddress:
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        hint = "write file:///path, or the path alone"
        raise DatasetError(
            "the address of a file must not have a host, query or fragment",
            where=redact_uri(uri),
            hint=hint,
        )
    path = unquote(parts.path)
    if not path:
        raise DatasetError("the address has no path", where=uri)
    return DatasetAddress("file", path, uri)


def _parse_object_address(
    scheme: str, parts: SplitResult, shown: str, store: ObjectStore
) -> DatasetAddress:
    # A host or a key inside the address would let a manifest choose where requests go.
    if not _BUCKET.fullmatch(parts.netloc) or parts.query or parts.fragment:
        hint = f"write {scheme}://bucket/path, without user, host and query"
        raise DatasetError(
            "the address must name a bucket and an object only", where=shown, hint=hint
        )
    if not parts.path.strip("/") or ".." in parts.path.split("/"):
        hint = f"write {scheme}://bucket/path"
        raise DatasetError("the address does not name an object", where=shown, hint=hint)
    return DatasetAddress(scheme, f"{store.protocol}://{parts.netloc}{parts.path}", shown, store)


def redact_uri(uri: str) -> str:
    """Return `uri` without user, password, query and fragment, which may contain keys."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return f"{uri.partition(':')[0]}:…"
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", "")) or uri
