"""Read rubrics by name and from files. Errors name the position and the key."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from assay.errors import ConfigError
from assay.types import YamlDocument, parse_yaml, read_limited_text, validate_document

from .rubric import Rubric

_RUBRIC_SUFFIXES = (".yaml", ".yml", ".json")


def rubric_names() -> list[str]:
    """Return the names of the built-in rubrics."""
    folder = files("assay.scorers.judges").joinpath("rubrics")
    return sorted(each.name.removesuffix(".yaml") for each in folder.iterdir())


def read_rubric(source: Rubric | str | Path | Mapping[str, Any]) -> Rubric:
    """Read a rubric by its name, from a YAML or JSON file, or from plain values.

    Raises `ConfigError` with the position and the key of each problem.
    """
    if isinstance(source, Rubric):
        return source
    if isinstance(source, Mapping):
        return validate_document(YamlDocument(dict(source), "rubric"), Rubric)
    path = Path(source)
    name = str(source).lower()

    if isinstance(source, str) and name in rubric_names():
        text = files("assay.scorers.judges").joinpath(f"rubrics/{name}.yaml").read_text("utf-8")
        return parse_rubric(text, where=name)
    if path.suffix.lower() in _RUBRIC_SUFFIXES:
        return parse_rubric(read_limited_text(path), where=str(path))
    raise ConfigError(
        f"{str(source)!r} is neither a built-in rubric nor a {'/'.join(_RUBRIC_SUFFIXES)} file",
        where="rubric",
        hint=f"built-in rubrics: {', '.join(rubric_names())}",
    )


def parse_rubric(text: str, *, where: str) -> Rubric:
    """Parse a rubric from YAML; JSON is YAML too."""
    return validate_document(parse_yaml(text, file=where), Rubric)
