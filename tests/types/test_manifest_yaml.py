"""Manifests as YAML: plain values with their places, and back."""

from pathlib import Path

import pytest

from assay.errors import ManifestError
from assay.types.manifest_yaml import read_manifest, write_manifest
from manifest_files import GOOD, written


def test_a_manifest_is_read_as_plain_values_with_their_places(tmp_path: Path) -> None:
    path = written(tmp_path)

    document = read_manifest(path, None)

    assert document.value["definitions"]["teller"]["id"] == "teller"
    assert document.spots[("definitions", "teller", "id")] == (str(path), 4)
    assert document.root == tmp_path


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    data = read_manifest(written(tmp_path), None).value

    assert read_manifest(written(tmp_path, write_manifest(data), "b.yaml"), None).value == data


def test_a_manifest_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="is 'text', not a mapping"):
        read_manifest(written(tmp_path, "text"), None)
    assert read_manifest({"definitions": GOOD}, None).root is None
