"""Read rubrics by name and from files. Errors name the line and the key."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from assay.errors import ConfigError
from assay.types import (
    YamlDocument,
    build_problems_error,
    find_model_problems,
    parse_yaml,
    quote_value,
    read_limited_text,
)

from .rubric import Rubric

_RUBRIC_SUFFIXES = (".yaml", ".yml", ".json")


def rubric_names() -> list[str]:
    """Return the names of the built-in rubrics."""
    folder = files("assay.scorers.judges").joinpath("rubrics")
    return sorted(each.name.removesuffix(".yaml") for each in folder.iterdir())


def read_rubric(source: Rubric | str | Path | Mapping[str, Any]) -> Rubric:
    """Read a rubric by its name, from a YAML or JSON file, or from plain values.

    Raises `ConfigError` with the line and the key of the problem.
    """
    if isinstance(source, Rubric):
        return source
    if isinstance(source, Mapping):
        return _validate_rubric(YamlDocument(dict(source), "rubric", {}))
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
    document = parse_yaml(text, file=where)
    if not isinstance(document.value, dict):
        raise ConfigError(
            f"the rubric is {quote_value(document.value)}, not a mapping",
            where=where,
            hint="a rubric has `name`, `description` and a list of `criteria`",
        )
    return _validate_rubric(document)


def _validate_rubric(document: YamlDocument) -> Rubric:
    try:
        return Rubric.model_validate(document.value)
    except ValidationError as error:
        found = [document.problem(*complaint) for complaint in find_model_problems(error, Rubric)]
    raise build_problems_error(ConfigError, found)
