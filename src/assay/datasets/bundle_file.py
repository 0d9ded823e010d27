"""A bundle: the samples of runs with their results, their dataset rows and their code, as one file.

Reading a bundle never runs its code. Every member is compared with the digests of the manifest
before anything is written.
"""

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from assay.errors import DatasetError
from assay.types import compute_sha256, create_private, make_private_folder

from .bundle_archive import (
    CODE,
    DATASET_FILE,
    MANIFEST,
    MAX_CODE_BYTES,
    RESULTS,
    ArchiveMember,
    build_bundle_error,
    find_name_problem,
    get_size_limit,
    read_archive,
)
from .json_text import JsonProblem, parse_json_object
from .jsonl_rows import JsonLines
from .read_limits import ReadLimits
from .rows import RowOutcome

BUNDLE_VERSION = 1
# A manifest nests a few levels; configurations inside it may add some.
_MANIFEST_DEPTH = 50
# Stores count in 64 bits.
_MAX_COUNT = 2**63 - 1
_FINGERPRINT_PATTERN = r"^[0-9A-Za-z:_-]{1,128}$"


class _BundleModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BundledFile(_BundleModel):
    """A member and the digest of its content."""

    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class BundledRun(_BundleModel):
    """A run whose samples are in the bundle."""

    id: str = Field(min_length=1)
    name: str
    status: Literal["completed", "interrupted", "failed"]
    config: dict[str, Any]
    """The description of the configuration, without secrets."""

    config_fingerprint: str | None = Field(default=None, pattern=_FINGERPRINT_PATTERN)
    dataset: str | None = None
    dataset_fingerprint: str | None = Field(default=None, pattern=_FINGERPRINT_PATTERN)
    repeats: int = Field(default=1, ge=1, le=_MAX_COUNT)
    created_at: str | None = Field(default=None, pattern=r"^[0-9T:+.Z-]{10,40}$")
    test: str | None = None
    """The id of the pytest test; None for a run of `assay eval`."""

    results: int = Field(ge=0, le=_MAX_COUNT)
    """Lines of `results.jsonl`. The runs follow one another."""

    rows: int = Field(ge=0, le=_MAX_COUNT)
    """Lines of `dataset.jsonl`."""

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        bounds = self.config.get("bounds")
        numbers = isinstance(bounds, list) and all(
            type(each) in (int, float) and abs(each) <= sys.float_info.max for each in bounds
        )
        if bounds is not None and not (numbers and len(bounds) == 2 and bounds[0] < bounds[1]):
            raise ValueError("`bounds` must be a list of two numbers, the lower one first")
        return self


class BundledCode(_BundleModel):
    """The command that runs the code of a bundle. All paths are relative to `code/`."""

    kind: Literal["eval", "pytest"]
    files: tuple[str, ...]
    """The evaluation file, or the test files."""

    tests: tuple[str, ...] = ()
    """The ids of the tests, for pytest."""

    config: str = Field(default="config", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """The name of the configuration in the evaluation file."""

    folder: str = "."
    """The working directory of the command."""

    import_folders: tuple[str, ...] = ()
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Options of `assay eval` that override the definitions of the file."""

    @model_validator(mode="after")
    def _check_paths(self) -> Self:
        for path in (*self.files, *self.import_folders, self.folder):
            if path != "." and (problem := find_name_problem(path)):
                raise ValueError(f"{path!r}: {problem}")
        if self.kind == "eval" and len(self.files) != 1:
            raise ValueError("an evaluation must have exactly one file")
        return self


class BundleManifest(_BundleModel):
    """The table of contents of a bundle."""

    format: Literal["assay-bundle"] = "assay-bundle"
    version: int = BUNDLE_VERSION
    assay: str
    """The version of assay that wrote it."""

    runs: tuple[BundledRun, ...] = Field(min_length=1)
    code: BundledCode | None = None
    left_out: tuple[str, ...] = ()
    """Files that the code refers to and that are not bundled, such as `.env`."""

    redacted: int = Field(default=0, ge=0)
    """Lines of samples from which secrets were removed."""

    files: dict[str, BundledFile]
    """Every member but the manifest itself."""


@dataclass(frozen=True)
class Bundle:
    """A bundle whose members have the digests that its manifest lists."""

    path: Path
    manifest: BundleManifest
    sha256: str
    """The digest of the manifest, which covers every member through its digests."""

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read and check a whole bundle without writing anything. Raises `DatasetError`."""
        # Named, so that the archive stays open while its first member is read.
        members = read_archive(path)
        member, pieces = next(members, (None, iter(())))
        if member is None or member.name != MANIFEST:
            raise build_bundle_error(path, f"its first member is not {MANIFEST}")
        data = b"".join(pieces)
        manifest = _parse_manifest(path, data)
        for _ in _check_members(path, manifest):
            pass
        return cls(path, manifest, compute_sha256(data))

    def extract(self, folder: Path, *, only: frozenset[str] | None = None) -> None:
        """Write the members into an empty folder.

        The digests are checked again while reading: the file may have changed since `open`.
        """
        for member, pieces in _check_members(self.path, self.manifest):
            if only is not None and member.name not in only:
                continue
            target = folder.joinpath(*member.name.split("/"))
            make_private_folder(target.parent)
            create_private(target)
            with target.open("r+b") as file:
                for piece in pieces:
                    file.write(piece)


@dataclass(frozen=True)
class BundleRows:
    """The samples of a bundle, with their results."""

    path: Path
    limits: ReadLimits
    is_text: ClassVar[bool] = True

    def where(self, position: int) -> str:
        return f"{self.path}:{RESULTS}:{position}"

    def __iter__(self) -> Iterator[tuple[int, RowOutcome]]:
        bundle = Bundle.open(self.path)
        with TemporaryDirectory(prefix="assay-bundle-") as folder:
            bundle.extract(Path(folder), only=frozenset({RESULTS}))
            yield from _ResultLines(Path(folder) / RESULTS, self.limits, self.path)


@dataclass(frozen=True)
class _ResultLines(JsonLines):
    bundle: Path

    def where(self, position: int) -> str:
        return f"{self.bundle}:{RESULTS}:{position}"


def _parse_manifest(path: Path, data: bytes) -> BundleManifest:
    try:
        plain = parse_json_object(data, max_depth=_MANIFEST_DEPTH)
        # Before validation: a newer version may have fields that would be reported instead.
        if plain.get("format") == "assay-bundle" and plain.get("version") != BUNDLE_VERSION:
            raise DatasetError(
                f"the bundle has format version {plain.get('version')!r:.40}; this assay reads "
                f"{BUNDLE_VERSION}",
                where=str(path),
                hint="upgrade assay",
            )
        manifest = BundleManifest.model_validate(plain)
    except JsonProblem as problem:
        raise build_bundle_error(path, f"{MANIFEST} {problem.message}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))[:80]
        raise build_bundle_error(path, f"{MANIFEST}: {place}: {first['msg']}") from None
    names = manifest.files.keys()
    if missing := {RESULTS, DATASET_FILE} - names:
        raise build_bundle_error(path, f"{MANIFEST} does not list {min(missing)}")
    for name, file in manifest.files.items():
        if name not in (RESULTS, DATASET_FILE) and not name.startswith(CODE):
            # An allow list: extraction must not create files that no reader expects.
            raise build_bundle_error(path, f"member {name!r} is not a part of a bundle")
        if file.size > get_size_limit(name):
            raise build_bundle_error(
                path, f"member {name!r} has {file.size} bytes, over {get_size_limit(name)}"
            )
    total = sum(file.size for name, file in manifest.files.items() if name.startswith(CODE))
    if total > MAX_CODE_BYTES:
        raise build_bundle_error(path, f"its code has {total} bytes, over {MAX_CODE_BYTES}")
    code = manifest.code
    for name in () if code is None else code.files:
        if f"{CODE}{name}" not in names:
            raise build_bundle_error(path, f"{MANIFEST} names {name!r}, which is not in {CODE}")
    folder = PurePosixPath("." if code is None else code.folder)
    for each in (folder, *folder.parents):
        if f"{CODE}{each}" in names:
            raise build_bundle_error(path, f"{MANIFEST} names the file {str(each)!r} as a folder")
    return manifest


def _check_members(
    path: Path, manifest: BundleManifest
) -> Iterator[tuple[ArchiveMember, Iterator[bytes]]]:
    """Yield the members after the manifest. Raises `DatasetError` for one that differs from it."""
    left = dict(manifest.files)
    for member, pieces in read_archive(path):
        if member.name == MANIFEST:
            continue
        listed = left.pop(member.name, None)
        if listed is None:
            raise build_bundle_error(path, f"member {member.name!r} is not listed in {MANIFEST}")
        if member.size != listed.size:
            raise build_bundle_error(path, f"member {member.name!r} does not have its listed size")
        digest = hashlib.sha256()
        yield member, _hash_chunks(pieces, digest)
        # The consumer may have stopped early: the rest still counts for the digest.
        for piece in pieces:
            digest.update(piece)
        if digest.hexdigest() != listed.sha256:
            raise build_bundle_error(
                path, f"member {member.name!r} does not have its listed digest"
            )
    if left:
        raise build_bundle_error(path, f"member {min(left)!r} is missing")


def _hash_chunks(pieces: Iterator[bytes], digest: Any) -> Iterator[bytes]:
    for piece in pieces:
        digest.update(piece)
        yield piece
