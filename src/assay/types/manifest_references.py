"""References of a manifest put in place, each value remembering the file and line it came from.

A reference leads to a YAML or JSON file inside one folder, and nowhere else: no address, no link
out of the folder, no circle.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from assay.errors import ManifestError

from .file_problems import (
    FileProblem,
    ValuePath,
    build_problems_error,
    escape_unprintable,
    find_nearest_line,
    quote_value,
    suggest_name,
)
from .guarded_yaml import YamlDocument, decode_utf8, parse_yaml, read_limited_bytes
from .yaml_values import MAX_YAML_DEPTH

MANIFEST_SUFFIXES = (".yaml", ".yml", ".json")
_MAX_MANIFEST_REFERENCES = 200
_MAX_EXPANDED_VALUES = 100_000
_URI_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


@dataclass(frozen=True)
class SourceFile:
    """A file that a manifest was read from."""

    path: Path
    sha256: str


@dataclass(frozen=True)
class ManifestDocument:
    """The plain values of a manifest, its references followed."""

    value: Any
    file: str
    spots: Mapping[ValuePath, tuple[str, int]]
    """File and line of each value, as far as it came from a file."""

    root: Path | None
    files: tuple[SourceFile, ...]

    def problem(self, place: ValuePath, message: str, hint: str | None = None) -> FileProblem:
        """What is wrong with the value at a place."""
        around = (place[:end] for end in range(len(place), -1, -1))
        spot = next((self.spots[each] for each in around if each in self.spots), None)
        file, line = spot or (self.file, None)
        return FileProblem(file, line, place, message, hint)


@dataclass(frozen=True)
class _ManifestNode:
    """A value, the document it stands in, and the place it comes to in the manifest."""

    value: Any
    document: YamlDocument
    place: ValuePath
    path: Path | None
    becomes: ValuePath

    def problem(self, message: str, hint: str | None = None) -> FileProblem:
        line = find_nearest_line(self.document.lines, self.place)
        return FileProblem(self.document.file, line, self.becomes, message, hint)

    def at(self, part: str | int) -> "_ManifestNode":
        place, becomes = (*self.place, part), (*self.becomes, part)
        return _ManifestNode(self.value[part], self.document, place, self.path, becomes)


_ReferenceChain = tuple[tuple[Path | None, ValuePath], ...]
"""The references that led to a value."""


class _UnresolvedReference(Exception):
    """A reference that leads nowhere; the problem is noted."""


def read_source_file(path: Path) -> tuple[YamlDocument, SourceFile]:
    """A manifest's file, or one that it refers to, read once: data and digest are of one state."""
    data = read_limited_bytes(path, kind=ManifestError)
    text = decode_utf8(data, file=str(path), kind=ManifestError)
    document = parse_yaml(text, file=str(path), yes_and_no=True, kind=ManifestError)
    return document, SourceFile(path, sha256(data).hexdigest())


class ReferenceResolver:
    """Follows the references of one manifest."""

    def __init__(self, root: Path | None) -> None:
        self._root = root
        self._opened: dict[Path, tuple[YamlDocument, SourceFile]] = {}
        self._spots: dict[ValuePath, tuple[str, int]] = {}
        self._followed = 0
        self._problems: list[FileProblem] = []

    def resolve_references(
        self, document: YamlDocument, path: Path | None, files: tuple[SourceFile, ...]
    ) -> ManifestDocument:
        """The manifest with everything in place. Raises `ManifestError` for all bad references."""
        top = _ManifestNode(document.value, document, (), path, ())
        self._record_positions(top)
        trail: _ReferenceChain = ((path and path.resolve(), ()),)
        value = dict(document.value)
        definitions = value.get("definitions")
        if isinstance(definitions, Mapping):
            node = top.at("definitions")
            found = {key: self._resolve_definition(node.at(key), trail) for key in definitions}
            value["definitions"] = found
        if self._problems:
            raise build_problems_error(ManifestError, self._problems)
        files = (*files, *(source for _, source in self._opened.values()))
        return ManifestDocument(value, document.file, self._spots, self._root, files)

    def _resolve_definition(self, node: _ManifestNode, trail: _ReferenceChain) -> Any:
        try:
            node, trail = self._follow_references(node, trail)
            if not isinstance(node.value, Mapping) or "evaluation" not in node.value:
                return node.value
            evaluation = self._resolve_value(node.at("evaluation"), trail)
            return {**node.value, "evaluation": evaluation}
        except _UnresolvedReference:
            return None

    def _resolve_value(self, node: _ManifestNode, trail: _ReferenceChain) -> Any:
        """A value with all references inside it followed."""
        node, trail = self._follow_references(node, trail)
        if len(node.becomes) > MAX_YAML_DEPTH:
            raise self._record_unresolved(
                node.problem(f"is nested more than {MAX_YAML_DEPTH} deep")
            )
        if isinstance(node.value, Mapping):
            return {key: self._resolve_value(node.at(key), trail) for key in node.value}
        if isinstance(node.value, list | tuple):
            positions = range(len(node.value))
            return [self._resolve_value(node.at(each), trail) for each in positions]
        return node.value

    def _follow_references(
        self, node: _ManifestNode, trail: _ReferenceChain
    ) -> tuple[_ManifestNode, _ReferenceChain]:
        """The value that stands here, after as many references as there are in a row."""
        while isinstance(node.value, Mapping) and "$ref" in node.value:
            self._followed += 1
            if self._followed > _MAX_MANIFEST_REFERENCES:
                raise self._record_unresolved(
                    node.problem(f"is one of over {_MAX_MANIFEST_REFERENCES} references")
                )
            target = self._find_target(node)
            step = (target.path and target.path.resolve(), target.place)
            if step in trail:
                raise self._record_unresolved(
                    node.problem(f"{_quote_reference(node)} leads back to itself")
                )
            trail = (*trail, step)
            self._record_positions(target)
            node = target
        return node, trail

    def _find_target(self, node: _ManifestNode) -> _ManifestNode:
        """What a reference leads to."""
        siblings = [key for key in node.value if key != "$ref"]
        if siblings:
            listed = ", ".join(map(repr, siblings[:5]))
            said = f"has {listed} beside `$ref`, which would be lost"
            raise self._record_unresolved(
                node.problem(said, "write it in the file that is referred to")
            )
        reference = node.value["$ref"]
        if not isinstance(reference, str) or not reference.strip():
            hint = "a reference is text: file.yaml or file.yaml#/part"
            raise self._record_unresolved(node.problem(f"`$ref` is {quote_value(reference)}", hint))
        name, _, pointer = reference.partition("#")
        path, document = node.path, node.document
        if name:
            path = self._locate_file(node, name)
            document = self._load_document(path)
        value, place = self._resolve_pointer(node, document.value, pointer)
        return _ManifestNode(value, document, place, path, node.becomes)

    def _locate_file(self, node: _ManifestNode, name: str) -> Path:
        """The file of that name, when it lies in the folder."""
        if _URI_SCHEME.match(name) or name.startswith("//"):
            hint = "only files in the manifest's folder can be referred to"
            raise self._record_unresolved(
                node.problem(f"{_quote_reference(node)} is an address", hint)
            )
        if self._root is None:
            hint = "pass root=, the folder that references stay in"
            raise self._record_unresolved(
                node.problem(f"{_quote_reference(node)} has no folder to start from", hint)
            )
        folder = node.path.parent if node.path else self._root
        path = folder / name
        try:
            inside = path.resolve().is_relative_to(self._root)
        except (OSError, ValueError, RuntimeError):
            raise self._record_unresolved(
                node.problem(f"{_quote_reference(node)} is not a path")
            ) from None
        if not inside:
            hint = f"it must stay inside {str(self._root)!r}"
            raise self._record_unresolved(
                node.problem(f"{_quote_reference(node)} leads out of the folder", hint)
            )
        if path.suffix.lower() not in MANIFEST_SUFFIXES:
            said = f"{_quote_reference(node)} is no {'/'.join(MANIFEST_SUFFIXES)} file"
            raise self._record_unresolved(node.problem(said))
        if not path.is_file():
            raise self._record_unresolved(
                node.problem(f"{_quote_reference(node)}: there is no such file")
            )
        return path

    def _load_document(self, path: Path) -> YamlDocument:
        place = path.resolve()
        if place not in self._opened:
            self._opened[place] = read_source_file(path)
        return self._opened[place][0]

    def _resolve_pointer(
        self, node: _ManifestNode, value: Any, pointer: str
    ) -> tuple[Any, ValuePath]:
        """The part of a document that a JSON pointer names, and its place there."""
        if pointer and not pointer.startswith("/"):
            hint = "what follows `#` begins with `/`, as in file.yaml#/definitions/name"
            raise self._record_unresolved(
                node.problem(f"{_quote_reference(node)} is not understood", hint)
            )
        place: ValuePath = ()
        for written in pointer.split("/")[1:]:
            part = written.replace("~1", "/").replace("~0", "~")
            if isinstance(value, Mapping) and part in value:
                value, place = value[part], (*place, part)
            elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
                value, place = value[int(part)], (*place, int(part))
            else:
                known = [str(key) for key in value] if isinstance(value, Mapping) else []
                said = f"{_quote_reference(node)}: there is no {part!r}"
                raise self._record_unresolved(
                    node.problem(said, suggest_name(part, known) if known else None)
                )
        return value, place

    def _record_positions(self, node: _ManifestNode) -> None:
        start = len(node.place)
        for place, line in node.document.lines.items():
            if place[:start] == node.place:
                self._spots[(*node.becomes, *place[start:])] = (node.document.file, line)
        if len(self._spots) > _MAX_EXPANDED_VALUES:
            said = f"grows to over {_MAX_EXPANDED_VALUES:,} values by its references"
            raise build_problems_error(ManifestError, [node.problem(said)])

    def _record_unresolved(self, problem: FileProblem) -> _UnresolvedReference:
        self._problems.append(problem)
        return _UnresolvedReference()


def _quote_reference(node: _ManifestNode) -> str:
    return f"`$ref: {escape_unprintable(str(node.value['$ref'])[:200])}`"
