"""Manifests as YAML, read and written.

A reference stands where a definition or a part of its `evaluation` would: `$ref: file.yaml` or
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

_MANIFEST_SHAPE_HINT = "it holds a mapping with the key `definitions`"


def read_manifest(
    source: str | PathLike[str] | Mapping[str, Any], root: str | PathLike[str] | None
) -> ManifestDocument:
    """The plain values of a manifest, its references followed. Raises `ManifestError`."""
    folder = None if root is None else Path(root).resolve()
    if isinstance(source, Mapping):
        return ReferenceResolver(folder).resolve_references(
            YamlDocument(source, "manifest", {}), None, ()
        )
    if not isinstance(source, str | PathLike) or not os.fspath(source):
        said = f"{quote_value(source)} is neither a path nor a mapping"
        raise ManifestError(said, where="Manifest.load()")
    path = Path(source)
    document, file = read_source_file(path)
    if not isinstance(document.value, dict):
        said = f"is {quote_value(document.value)}, not a mapping"
        raise ManifestError(said, where=str(path), hint=_MANIFEST_SHAPE_HINT)
    return ReferenceResolver(_choose_root(path, folder)).resolve_references(document, path, (file,))


def _choose_root(path: Path, root: Path | None) -> Path:
    """The folder that references stay in: the manifest's own, unless another one is given."""
    own = path.parent.resolve()
    if root is not None and not own.is_relative_to(root):
        raise ManifestError(f"does not lie in the folder {str(root)!r}", where=str(path))
    return root or own


def build_manifest_error(
    error: ValidationError, model: type[BaseModel], document: ManifestDocument
) -> ManifestError:
    """All that is wrong with a manifest, as one error."""
    problems = [document.problem(*complaint) for complaint in find_model_problems(error, model)]
    return build_problems_error(ManifestError, problems)


def write_manifest(data: Mapping[str, Any]) -> str:
    """Plain values as YAML that `read_manifest` reads back."""
    return write_yaml(data)
