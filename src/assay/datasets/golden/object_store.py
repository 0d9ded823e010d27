"""Golden datasets in object stores and on the Hugging Face hub, through fsspec.

The address names a bucket and an object only. The servers and the credentials come from the user
who runs the fetch.
"""

from importlib.util import find_spec
from typing import Any

from assay.errors import DatasetError, DatasetOutOfReach, MissingExtra

from .access_rules import FetchRules, FileVersion
from .addresses import DatasetAddress, ObjectStore
from .download import Download

_OBJECT_CHUNK_BYTES = 1024 * 1024
_OBJECT_BLOCK_BYTES = 8 * 1024 * 1024
_ETAG_FIELDS = ("ETag", "etag", "md5Hash", "content_md5", "blob_id")
_VERSION_FIELDS = ("VersionId", "generation", "version_id", "last_commit")
_ACCESS_ERRORS = (
    *("Forbidden", "NoCredentials", "DefaultCredentials", "CredentialsNotLoaded"),
    *("Unauthorized", "GatedRepo"),
)
_NOT_FOUND_ERRORS = ("EntryNotFound", "RepositoryNotFound", "RevisionNotFound", "NoSuchBucket")


def require_store(address: DatasetAddress) -> ObjectStore:
    """Return the store of an address. Raises `MissingExtra` without its package."""
    store = address.store
    if store is None:
        raise DatasetError("the address is not in an object store", where=address.shown)
    for package in ("fsspec", store.package):
        if find_spec(package) is None:
            by = f"fetching from {address.shown}"
            raise MissingExtra.build(store.extra, by=by, package=package)
    return store


def copy_object(address: DatasetAddress, download: Download, rules: FetchRules) -> FileVersion:
    """Copy an object. Raises `DatasetError`, or `DatasetOutOfReach` if it may still exist."""
    options: dict[str, Any] = {}
    if require_store(address).protocol == "s3":
        timeouts = {"connect_timeout": 10, "read_timeout": 60, "retries": {"max_attempts": 2}}
        options = {"config_kwargs": timeouts, "use_listings_cache": False}
        if rules.endpoint_url is not None:
            options["endpoint_url"] = rules.endpoint_url
    try:
        try:
            return _copy_with_options(address, download, options)
        except Exception as error:
            # By name: botocore is an optional dependency. Bytes that arrived cannot be taken back.
            if type(error).__name__ != "NoCredentialsError" or download.size:
                raise
        # Without credentials of the user, the object may still be public.
        return _copy_with_options(address, download, {**options, "anon": True})
    except DatasetError:
        raise
    # Each library has its own exceptions, and lets through those of its HTTP client.
    except Exception as error:
        raise _explain_store_error(error, address) from error


def _copy_with_options(
    address: DatasetAddress, download: Download, options: dict[str, Any]
) -> FileVersion:
    from fsspec.core import url_to_fs

    # Not from the instance cache, which would keep credentials and listings of earlier fetches.
    files, path = url_to_fs(address.text, skip_instance_cache=True, **options)
    about = files.info(path)
    if about.get("type") == "directory":
        raise DatasetError("the address is a folder", where=address.shown, hint="name a file in it")
    download.expect(about.get("size"))
    with files.open(path, "rb", block_size=_OBJECT_BLOCK_BYTES) as file:
        while piece := file.read(_OBJECT_CHUNK_BYTES):
            download.write(piece)
    return FileVersion(
        etag=_read_first_field(about, _ETAG_FIELDS),
        version=_read_first_field(about, _VERSION_FIELDS),
    )


def _read_first_field(about: dict[str, Any], names: tuple[str, ...]) -> str | None:
    found = next((about[name] for name in names if about.get(name)), None)
    # S3 calls the only version of an object "null".
    return None if found in (None, "null") else str(found).strip('"')[:200]


def _explain_store_error(error: Exception, address: DatasetAddress) -> DatasetError:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, FileNotFoundError) or _matches_any(kinds, _NOT_FOUND_ERRORS):
        return DatasetError(
            "the object or its bucket does not exist",
            where=address.shown,
            hint="check the address, and that your credentials belong to the right account",
        )
    if isinstance(error, PermissionError) or _matches_any(kinds, _ACCESS_ERRORS):
        return DatasetError(
            "access to the object is denied",
            where=address.shown,
            hint="provide credentials as for the store's own tools",
        )
    if isinstance(error, ImportError):
        package = address.store.package if address.store else "fsspec"
        message = f"the package `{package}` cannot be loaded: {error}"
        return DatasetError(message, where=address.shown)
    cause = " ".join(str(error).split())[:300].replace(address.text, address.shown)
    return DatasetOutOfReach(
        f"the object cannot be fetched: {type(error).__name__}: {cause}", where=address.shown
    )


def _matches_any(kinds: set[str], parts: tuple[str, ...]) -> bool:
    return any(part in kind for part in parts for kind in kinds)
