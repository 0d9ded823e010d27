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
    Place,
    Problem,
    near_miss,
    nearest_line,
    printable,
    refusal,
    shown,
)
from .guarded_yaml import YamlDocument, decoded, parse_yaml, read_bytes
from .yaml_values import DEEPEST

SUFFIXES = (".yaml", ".yml", ".json")
_MOST_REFERENCES = 200
_MOST_PLACES = 100_000
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


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
    spots: Mapping[Place, tuple[str, int]]
    """File and line of each value, as far as it came from a file."""

    root: Path | None
    files: tuple[SourceFile, ...]

    def problem(self, place: Place, message: str, hint: str | None = None) -> Problem:
        """What is wrong with the value at a place."""
        around = (place[:end] for end in range(len(place), -1, -1))
        spot = next((self.spots[each] for each in around if each in self.spots), None)
        file, line = spot or (self.file, None)
        return Problem(file, line, place, message, hint)


@dataclass(frozen=True)
class _Node:
    """A value, the document it stands in, and the place it comes to in the manifest."""

    value: Any
    document: YamlDocument
    place: Place
    path: Path | None
    becomes: Place

    def problem(self, message: str, hint: str | None = None) -> Problem:
        line = nearest_line(self.document.lines, self.place)
        return Problem(self.document.file, line, self.becomes, message, hint)

    def at(self, part: str | int) -> "_Node":
        place, becomes = (*self.place, part), (*self.becomes, part)
        return _Node(self.value[part], self.document, place, self.path, becomes)


_Trail = tuple[tuple[Path | None, Place], ...]
"""The references that led to a value."""


class _Lost(Exception):
    """A reference that leads nowhere; the problem is noted."""


def open_file(path: Path) -> tuple[YamlDocument, SourceFile]:
    """A manifest's file, or one that it refers to, read once: data and digest are of one state."""
    data = read_bytes(path, kind=ManifestError)
    text = decoded(data, file=str(path), kind=ManifestError)
    document = parse_yaml(text, file=str(path), yes_and_no=True, kind=ManifestError)
    return document, SourceFile(path, sha256(data).hexdigest())


class References:
    """Follows the references of one manifest."""

    def __init__(self, root: Path | None) -> None:
        self._root = root
        self._opened: dict[Path, tuple[YamlDocument, SourceFile]] = {}
        self._spots: dict[Place, tuple[str, int]] = {}
        self._followed = 0
        self._problems: list[Problem] = []

    def followed(
        self, document: YamlDocument, path: Path | None, files: tuple[SourceFile, ...]
    ) -> ManifestDocument:
        """The manifest with everything in place. Raises `ManifestError` for all bad references."""
        top = _Node(document.value, document, (), path, ())
        self._note_spots(top)
        trail: _Trail = ((path and path.resolve(), ()),)
        value = dict(document.value)
        definitions = value.get("definitions")
        if isinstance(definitions, Mapping):
            node = top.at("definitions")
            found = {key: self._definition(node.at(key), trail) for key in definitions}
            value["definitions"] = found
        if self._problems:
            raise refusal(ManifestError, self._problems)
        files = (*files, *(source for _, source in self._opened.values()))
        return ManifestDocument(value, document.file, self._spots, self._root, files)

    def _definition(self, node: _Node, trail: _Trail) -> Any:
        try:
            node, trail = self._follow(node, trail)
            if not isinstance(node.value, Mapping) or "evaluation" not in node.value:
                return node.value
            evaluation = self._whole(node.at("evaluation"), trail)
            return {**node.value, "evaluation": evaluation}
        except _Lost:
            return None

    def _whole(self, node: _Node, trail: _Trail) -> Any:
        """A value with all references inside it followed."""
        node, trail = self._follow(node, trail)
        if len(node.becomes) > DEEPEST:
            raise self._lost(node.problem(f"is nested more than {DEEPEST} deep"))
        if isinstance(node.value, Mapping):
            return {key: self._whole(node.at(key), trail) for key in node.value}
        if isinstance(node.value, list | tuple):
            positions = range(len(node.value))
            return [self._whole(node.at(each), trail) for each in positions]
        return node.value

    def _follow(self, node: _Node, trail: _Trail) -> tuple[_Node, _Trail]:
        """The value that stands here, after as many references as there are in a row."""
        while isinstance(node.value, Mapping) and "$ref" in node.value:
            self._followed += 1
            if self._followed > _MOST_REFERENCES:
                raise self._lost(node.problem(f"is one of over {_MOST_REFERENCES} references"))
            target = self._target(node)
            step = (target.path and target.path.resolve(), target.place)
            if step in trail:
                raise self._lost(node.problem(f"{_quoted(node)} leads back to itself"))
            trail = (*trail, step)
            self._note_spots(target)
            node = target
        return node, trail

    def _target(self, node: _Node) -> _Node:
        """What a reference leads to."""
        siblings = [key for key in node.value if key != "$ref"]
        if siblings:
            listed = ", ".join(map(repr, siblings[:5]))
            said = f"has {listed} beside `$ref`, which would be lost"
            raise self._lost(node.problem(said, "write it in the file that is referred to"))
        reference = node.value["$ref"]
        if not isinstance(reference, str) or not reference.strip():
            hint = "a reference is text: file.yaml or file.yaml#/part"
            raise self._lost(node.problem(f"`$ref` is {shown(reference)}", hint))
        name, _, pointer = reference.partition("#")
        path, document = node.path, node.document
        if name:
            path = self._inside(node, name)
            document = self._document(path)
        value, place = self._pointed(node, document.value, pointer)
        return _Node(value, document, place, path, node.becomes)

    def _inside(self, node: _Node, name: str) -> Path:
        """The file of that name, when it lies in the folder."""
        if _ADDRESS.match(name) or name.startswith("//"):
            hint = "only files in the manifest's folder can be referred to"
            raise self._lost(node.problem(f"{_quoted(node)} is an address", hint))
        if self._root is None:
            hint = "pass root=, the folder that references stay in"
            raise self._lost(node.problem(f"{_quoted(node)} has no folder to start from", hint))
        folder = node.path.parent if node.path else self._root
        path = folder / name
        try:
            inside = path.resolve().is_relative_to(self._root)
        except (OSError, ValueError, RuntimeError):
            raise self._lost(node.problem(f"{_quoted(node)} is not a path")) from None
        if not inside:
            hint = f"it must stay inside {str(self._root)!r}"
            raise self._lost(node.problem(f"{_quoted(node)} leads out of the folder", hint))
        if path.suffix.lower() not in SUFFIXES:
            said = f"{_quoted(node)} is no {'/'.join(SUFFIXES)} file"
            raise self._lost(node.problem(said))
        if not path.is_file():
            raise self._lost(node.problem(f"{_quoted(node)}: there is no such file"))
        return path

    def _document(self, path: Path) -> YamlDocument:
        place = path.resolve()
        if place not in self._opened:
            self._opened[place] = open_file(path)
        return self._opened[place][0]

    def _pointed(self, node: _Node, value: Any, pointer: str) -> tuple[Any, Place]:
        """The part of a document that a JSON pointer names, and its place there."""
        if pointer and not pointer.startswith("/"):
            hint = "what follows `#` begins with `/`, as in file.yaml#/definitions/name"
            raise self._lost(node.problem(f"{_quoted(node)} is not understood", hint))
        place: Place = ()
        for written in pointer.split("/")[1:]:
            part = written.replace("~1", "/").replace("~0", "~")
            if isinstance(value, Mapping) and part in value:
                value, place = value[part], (*place, part)
            elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
                value, place = value[int(part)], (*place, int(part))
            else:
                known = [str(key) for key in value] if isinstance(value, Mapping) else []
                said = f"{_quoted(node)}: there is no {part!r}"
                raise self._lost(node.problem(said, near_miss(part, known) if known else None))
        return value, place

    def _note_spots(self, node: _Node) -> None:
        start = len(node.place)
        for place, line in node.document.lines.items():
            if place[:start] == node.place:
                self._spots[(*node.becomes, *place[start:])] = (node.document.file, line)
        if len(self._spots) > _MOST_PLACES:
            said = f"grows to over {_MOST_PLACES:,} values by its references"
            raise refusal(ManifestError, [node.problem(said)])

    def _lost(self, problem: Problem) -> _Lost:
        self._problems.append(problem)
        return _Lost()


def _quoted(node: _Node) -> str:
    return f"`$ref: {printable(str(node.value['$ref'])[:200])}`"
