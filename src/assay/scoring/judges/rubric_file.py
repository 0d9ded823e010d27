"""Rubrics by name and from files. What is wrong with a file is told with its line and key."""

import difflib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from assay.errors import ConfigError

from .rubric import Criterion, Rubric

if TYPE_CHECKING:
    from yaml import Node

_LARGEST = 1_000_000
_DEEPEST = 10
_SUFFIXES = (".yaml", ".yml", ".json")

Place = tuple[str, ...]
"""The keys and numbers that lead to a value of a file."""


def rubric_names() -> list[str]:
    """The rubrics that come with the package."""
    folder = files("assay.scoring.judges").joinpath("rubrics")
    return sorted(each.name.removesuffix(".yaml") for each in folder.iterdir())


def read_rubric(source: Rubric | str | Path | Mapping[str, Any]) -> Rubric:
    """A rubric by its name, from a YAML or JSON file, or from plain values.

    Raises `ConfigError` that names the line and the key, before anything is judged.
    """
    if isinstance(source, Rubric):
        return source
    if isinstance(source, Mapping):
        return _validated(dict(source), {}, "rubric")
    path = Path(source)
    name = str(source).lower()
    if isinstance(source, str) and name in rubric_names():
        text = files("assay.scoring.judges").joinpath(f"rubrics/{name}.yaml").read_text("utf-8")
        return parse_rubric(text, where=name)
    if path.suffix.lower() in _SUFFIXES:
        return parse_rubric(_read(path), where=str(path))
    raise ConfigError(
        f"{str(source)!r} is neither a rubric of assay's nor a {'/'.join(_SUFFIXES)} file",
        where="rubric",
        hint=f"the rubrics are: {', '.join(rubric_names())}",
    )


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8: {error.reason}", where=str(path)) from None
    if len(data) > _LARGEST:
        raise ConfigError(f"is larger than {_LARGEST:,} bytes", where=str(path))
    return text


def parse_rubric(text: str, *, where: str) -> Rubric:
    """The rubric that a YAML text holds; JSON is YAML too."""
    import yaml

    try:
        _refuse_tricks(text, where)
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            raise ConfigError("is empty", where=where)
        lines = dict(_lines(node, (), where))
        data = loader.construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = where if mark is None else f"{where}:{mark.line + 1}"
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigError(f"not YAML: {problem}", where=place) from None
    except ValueError as error:
        # A date or a number that YAML knows and Python cannot hold.
        raise ConfigError(f"cannot be read: {error}", where=where) from None
    if not isinstance(data, dict):
        raise ConfigError(
            "is not a mapping",
            where=where,
            hint="it has `name`, `description` and a list of `criteria`",
        )
    return _validated(data, lines, where)


def _refuse_tricks(text: str, where: str) -> None:
    """Raise for what makes a small file a large value, or takes long to read."""
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        mark = event.start_mark
        place = where if mark is None else f"{where}:{mark.line + 1}"
        if isinstance(event, yaml.AliasEvent):
            raise ConfigError(f"uses the alias *{event.anchor}", where=place, hint="write it out")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise ConfigError("is nested too deeply", where=place)


def _lines(node: "Node", path: Place, where: str) -> Iterator[tuple[Place, int]]:
    """The line of every value. Raises `ConfigError` for a key that comes twice."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in seen:
                raise ConfigError(
                    f"the key `{name}` stands in line {seen[name]} already",
                    where=f"{where}:{line}",
                )
            seen[name] = line
            yield (*path, name), line
            yield from _lines(value, (*path, name), where)
    elif isinstance(node, yaml.SequenceNode):
        for place, value in enumerate(node.value):
            yield (*path, str(place)), value.start_mark.line + 1
            yield from _lines(value, (*path, str(place)), where)


def _validated(data: dict[Any, Any], lines: Mapping[Place, int], where: str) -> Rubric:
    try:
        return Rubric.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = tuple(str(part) for part in first["loc"])
    raise ConfigError(
        f"`{_dotted(path)}`: {_problem(first['type'], first['msg'])}" if path else first["msg"],
        where=f"{where}:{line}" if (line := _line_of(path, lines)) else where,
        hint=_near_miss(path) if first["type"] == "extra_forbidden" else None,
    )


def _problem(kind: str, message: str) -> str:
    words = {"extra_forbidden": "is not a key of a rubric", "missing": "is missing"}
    return words.get(kind, message)


def _dotted(path: Place) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if part.isdecimal() else f".{part}" if text else part
    return text


def _line_of(path: Place, lines: Mapping[Place, int]) -> int | None:
    """The line of the value, or of the nearest thing around it."""
    return next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), None)


def _near_miss(path: Place) -> str | None:
    own = Criterion if "criteria" in path else Rubric
    near = difflib.get_close_matches(path[-1], own.model_fields, n=1)
    if near:
        return f"did you mean `{near[0]}`?"
    return f"the keys are: {', '.join(own.model_fields)}"
