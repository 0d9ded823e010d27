"""Reads and writes manifests as YAML.

A reference replaces a definition or a part of its `evaluation`: `$ref: file.yaml` or
`$ref: file.yaml#/pointer`.
"""

import os
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from assay.errors import ManifestError

from .file_problems import build_problems_error, quote_value
from .guarded_yaml import YamlDocument, write_yaml
from .manifest_references import ManifestDocument, ReferenceResolver, read_source_file
from .model_problems import find_model_problems

_MANIFEST_SHAPE_HINT = "a manifest is a mapping with the key `definitions`"


def read_manifest(
    source: str | PathLike[str] | Mapping[str, Any], root: str | PathLike[str] | None
) -> ManifestDocument:
    """Read the plain values of a manifest and resolve its references. Raises `ManifestError`."""
    folder = None if root is None else Path(root).resolve()
    if isinstance(source, Mapping):
        return ReferenceResolver(folder).resolve_references(
            YamlDocument(source, "manifest", {}), None, ()
        )
    if not isinstance(source, str | PathLike) or not os.fspath(source):
        message = f"{quote_value(source)} is neither a path nor a mapping"
        raise ManifestError(message, where="Manifest.load()")
    path = Path(source)
    document, file = read_source_file(path)
    if not isinstance(document.value, dict):
        message = f"the file is {quote_value(document.value)}, not a mapping"
        raise ManifestError(message, where=str(path), hint=_MANIFEST_SHAPE_HINT)
    own = path.parent.resolve()
    if folder is not None and not own.is_relative_to(folder):
        raise ManifestError(f"the manifest is outside the folder {str(folder)!r}", where=str(path))
    return ReferenceResolver(folder or own).resolve_references(document, path, (file,))


def build_manifest_error(
    error: ValidationError, model: type[BaseModel], document: ManifestDocument
) -> ManifestError:
    """Return one error that lists all problems of a manifest."""
    problems = [document.problem(*complaint) for complaint in find_model_problems(error, model)]
    return build_problems_error(ManifestError, problems)


def write_manifest(data: Mapping[str, Any]) -> str:
    """Return plain values as YAML that `read_manifest` reads back."""
    return write_yaml(data)
