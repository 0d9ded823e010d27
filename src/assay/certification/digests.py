"""Digests that others can make again: of definitions, of code, of files."""

import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path

from assay.models.manifest import AgentDefinition

from .canonical_form import canonical


def definition_sha256(agent: AgentDefinition) -> str:
    """The digest of an agent's definition: the same however its file is laid out.

    Fields that are at their defaults do not count, whether or not they were written.
    """
    return sha256_of(canonical(agent.model_dump(mode="json", exclude_defaults=True)))


def code_sha256(function: Callable[..., object]) -> str | None:
    """The digest of the file that holds a function; None where there is none to be read.

    The whole file: a metric is also the helpers beside it.
    """
    try:
        file = inspect.getsourcefile(inspect.unwrap(function))
        return None if file is None else file_sha256(Path(file))
    except (OSError, TypeError, ValueError):
        return None


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
