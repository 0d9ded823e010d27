"""Reads a manifest and resolves its references, with the position of each value.

A reference replaces a definition or a part of its `evaluation`: `$ref: file.yaml` or
`$ref: file.yaml#/pointer`. It may only lead to a YAML or JSON file inside one folder: no URL, no
link out of the folder, no cycle.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any

from assay.errors import ManifestError

from .file_problems import (
    FileProblem,
    Position,
    ValuePath,
    build_problems_error,
    escape_unprintable,
    quote_value,
    suggest_name,
)
from .guarded_yaml import YamlDocument, decode_utf8, parse_yaml, read_limited_bytes
from .yaml_values import MAX_YAML_DEPTH

MANIFEST_SUFFIXES = (".yaml", ".yml", ".json")
# Both bound the work: a few short files can refer to each other exponentially often.
_MAX_MANIFEST_REFERENCES = 200
_MAX_EXPANDED_VALUES = 100_000
# At least two letters: `c:` is a Windows drive.
_URI_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


@dataclass(frozen=True)
class SourceFile:
    """A file that a manifest was read from."""

    path: Path
    sha256: str


@dataclass(frozen=True)
class ManifestDocument(YamlDocument):
    """The plain values of a manifest with all references resolved."""

    root: Path | None = None
    files: tuple[SourceFile, ...] = ()


@dataclass(frozen=True)
class _ManifestNode:
    """A value, its document, and its path in the resolved manifest (`becomes`)."""

    value: Any
    document: YamlDocument
    place: ValuePath
    path: Path | None
    becomes: ValuePath

    def refuse(self, message: str, hint: str | None = None) -> "_UnresolvedReference":
        problem = FileProblem(self.document.find_position(self.place), self.becomes, message, hint)
        return _UnresolvedReference(problem)

    def at(self, part: str | int) -> "_ManifestNode":
        place, becomes = (*self.place, part), (*self.becomes, part)
        return _ManifestNode(self.value[part], self.document, place, self.path, becomes)


# The references that led to a value: a repeated one is a cycle.
_ReferenceChain = tuple[tuple[Path | None, ValuePath], ...]


class _UnresolvedReference(Exception):
    """A reference cannot be resolved."""

    def __init__(self, problem: FileProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def read_manifest(
    source: str | PathLike[str] | Mapping[str, Any], root: str | PathLike[str] | None
) -> ManifestDocument:
    """Read the plain values of a manifest and resolve its references. Raises `ManifestError`."""
    folder = None if root is None else Path(root).resolve()
    if isinstance(source, Mapping):
        return _ReferenceResolver(folder).resolve_references(
            YamlDocument(source, "manifest"), None, ()
        )
    if not isinstance(source, str | PathLike) or not os.fspath(source):
        message = f"{quote_value(source)} is neither a path nor a mapping"
        raise ManifestError(message, where="Manifest.load()")
    path = Path(source)
    document, file = _read_source_file(path)
    own = path.parent.resolve()
    if folder is not None and not own.is_relative_to(folder):
        raise ManifestError(f"the manifest is outside the folder {str(folder)!r}", where=str(path))
    return _ReferenceResolver(folder or own).resolve_references(document, path, (file,))


def _read_source_file(path: Path) -> tuple[YamlDocument, SourceFile]:
    """Read a manifest's file or one that it refers to, with its digest."""
    # Read once, so that data and digest describe the same content.
    data = read_limited_bytes(path, kind=ManifestError)
    text = decode_utf8(data, file=str(path), kind=ManifestError)
    document = parse_yaml(text, file=str(path), yes_and_no=True, kind=ManifestError)
    return document, SourceFile(path, sha256(data).hexdigest())


class _ReferenceResolver:
    """Resolves the references of one manifest."""

    def __init__(self, root: Path | None) -> None:
        self._root = root
        self._opened: dict[Path, tuple[YamlDocument, SourceFile]] = {}
        self._positions: dict[ValuePath, Position] = {}
        self._followed = 0
        self._problems: list[FileProblem] = []

    def resolve_references(
        self, document: YamlDocument, path: Path | None, files: tuple[SourceFile, ...]
    ) -> ManifestDocument:
        """Return the resolved manifest. Raises `ManifestError` that lists all bad references."""
        top = _ManifestNode(document.value, document, (), path, ())
        self._record_positions(top)
        trail: _ReferenceChain = ((path and path.resolve(), ()),)
        value = document.value
        # Anything but a mapping of definitions is left to the validation of the manifest.
        if isinstance(value, Mapping) and isinstance(value.get("definitions"), Mapping):
            node = top.at("definitions")
            found: dict[str, Any] = {}
            for key in node.value:
                try:
                    target, path_to = self._follow_references(node.at(key), trail)
                    found[key] = target.value
                    if isinstance(target.value, Mapping) and "evaluation" in target.value:
                        evaluation = self._resolve_value(target.at("evaluation"), path_to)
                        found[key] = {**target.value, "evaluation": evaluation}
                except _UnresolvedReference as error:
                    # The other definitions are still checked.
                    self._problems.append(error.problem)
            value = {**value, "definitions": found}
        if self._problems:
            raise build_problems_error(ManifestError, self._problems)
        files = (*files, *(source for _, source in self._opened.values()))
        return ManifestDocument(value, document.file, self._positions, self._root, files)

    def _resolve_value(self, node: _ManifestNode, trail: _ReferenceChain) -> Any:
        node, trail = self._follow_references(node, trail)
        if len(node.becomes) > MAX_YAML_DEPTH:
            raise node.refuse(f"the value is nested more than {MAX_YAML_DEPTH} deep")
        if isinstance(node.value, Mapping):
            return {key: self._resolve_value(node.at(key), trail) for key in node.value}
        if isinstance(node.value, list | tuple):
            positions = range(len(node.value))
            return [self._resolve_value(node.at(each), trail) for each in positions]
        return node.value

    def _follow_references(
        self, node: _ManifestNode, trail: _ReferenceChain
    ) -> tuple[_ManifestNode, _ReferenceChain]:
        # A reference may lead to another reference.
        while isinstance(node.value, Mapping) and "$ref" in node.value:
            self._followed += 1
            if self._followed > _MAX_MANIFEST_REFERENCES:
                raise node.refuse(
                    f"the manifest has more than {_MAX_MANIFEST_REFERENCES} references"
                )
            target = self._find_target(node)
            step = (target.path and target.path.resolve(), target.place)
            if step in trail:
                raise node.refuse(f"{_quote_reference(node)} is circular")
            trail = (*trail, step)
            self._record_positions(target)
            node = target
        return node, trail

    def _find_target(self, node: _ManifestNode) -> _ManifestNode:
        siblings = [key for key in node.value if key != "$ref"]
        if siblings:
            listed = ", ".join(map(repr, siblings[:5]))
            message = f"the fields {listed} beside `$ref` would be dropped"
            raise node.refuse(message, "move them into the file that `$ref` names")
        reference = node.value["$ref"]
        if not isinstance(reference, str) or not reference.strip():
            hint = "write file.yaml or file.yaml#/part"
            raise node.refuse(f"`$ref` is {quote_value(reference)}, not text", hint)
        name, _, pointer = reference.partition("#")
        path, document = node.path, node.document
        if name:
            path = self._locate_file(node, name)
            # Each file is read once, so that all references see the same content.
            source = path.resolve()
            if source not in self._opened:
                self._opened[source] = _read_source_file(path)
            document = self._opened[source][0]
        value, place = self._resolve_pointer(node, document.value, pointer)
        return _ManifestNode(value, document, place, path, node.becomes)

    def _locate_file(self, node: _ManifestNode, name: str) -> Path:
        """Return the file of that name if it is inside the root folder."""
        if _URI_SCHEME.match(name) or name.startswith("//"):
            hint = "refer to a file in the manifest's folder"
            raise node.refuse(f"{_quote_reference(node)} is a URL", hint)
        if self._root is None:
            hint = "pass root=, the folder that contains all referenced files"
            raise node.refuse(f"{_quote_reference(node)} has no base folder", hint)
        folder = node.path.parent if node.path else self._root
        path = folder / name
        try:
            # Resolved, because a symbolic link may lead out of the folder.
            inside = path.resolve().is_relative_to(self._root)
        except (OSError, ValueError, RuntimeError):
            raise node.refuse(f"{_quote_reference(node)} is not a path") from None
        if not inside:
            hint = f"refer to a file inside {str(self._root)!r}"
            raise node.refuse(f"{_quote_reference(node)} leads outside the folder", hint)
        if path.suffix.lower() not in MANIFEST_SUFFIXES:
            message = f"{_quote_reference(node)} is not a {'/'.join(MANIFEST_SUFFIXES)} file"
            raise node.refuse(message)
        if not path.is_file():
            raise node.refuse(f"{_quote_reference(node)}: the file does not exist")
        return path

    def _resolve_pointer(
        self, node: _ManifestNode, value: Any, pointer: str
    ) -> tuple[Any, ValuePath]:
        """Return the value that a JSON pointer names, and its path in the document."""
        if pointer and not pointer.startswith("/"):
            hint = "the part after `#` must start with `/`, as in file.yaml#/definitions/name"
            raise node.refuse(f"{_quote_reference(node)} is not a valid reference", hint)
        place: ValuePath = ()
        for written in pointer.split("/")[1:]:
            part = written.replace("~1", "/").replace("~0", "~")  # in this order (RFC 6901)
            if isinstance(value, Mapping) and part in value:
                value, place = value[part], (*place, part)
            elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
                value, place = value[int(part)], (*place, int(part))
            else:
                known = [str(key) for key in value] if isinstance(value, Mapping) else []
                message = f"{_quote_reference(node)}: {part!r} does not exist in the file"
                raise node.refuse(message, suggest_name(part, known) if known else None)
        return value, place

    def _record_positions(self, node: _ManifestNode) -> None:
        start = len(node.place)
        for place, position in node.document.positions.items():
            if place[:start] == node.place:
                self._positions[(*node.becomes, *place[start:])] = position
        if len(self._positions) > _MAX_EXPANDED_VALUES:
            message = f"the references expand to more than {_MAX_EXPANDED_VALUES:,} values"
            raise build_problems_error(ManifestError, [node.refuse(message).problem])


def _quote_reference(node: _ManifestNode) -> str:
    return f"`$ref: {escape_unprintable(str(node.value['$ref'])[:200])}`"
