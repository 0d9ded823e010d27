"""Metadata by key and by attribute."""

import pickle
from copy import deepcopy

import pytest

from assay.types import Sample
from assay.types.input_metadata import InputMetadata


def test_keys_are_attributes() -> None:
    metadata = InputMetadata(row_id="a", own=1)
    metadata.session_data = {"at": 2}
    del metadata.own

    assert metadata == {"row_id": "a", "session_data": {"at": 2}}
    assert metadata.row_id == "a"


def test_known_fields_are_empty_until_they_are_set() -> None:
    metadata = InputMetadata()

    assert metadata.row_id is metadata.dataset_info is metadata.session_data is None
    assert metadata == {}
    metadata.completion_params["model"] = "m"
    assert metadata == {"completion_params": {"model": "m"}}


def test_an_unknown_field_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"has no 'b'; it has \['a'\]"):
        _ = InputMetadata(a=1).b
    with pytest.raises(AttributeError, match="has no 'b'"):
        del InputMetadata(a=1).b


def test_copies_are_metadata_too() -> None:
    metadata = InputMetadata(dataset_info={"a": [1]})

    for copied in (deepcopy(metadata), pickle.loads(pickle.dumps(metadata))):
        assert type(copied) is InputMetadata
        assert copied.dataset_info == {"a": [1]}


def test_what_is_set_on_the_metadata_of_a_sample_is_kept() -> None:
    sample = Sample(prompt="?", input_metadata=InputMetadata(row_id="a"))
    before = sample.to_json()
    assert sample.input_metadata.row_id == "a"
    assert sample.to_json() == before

    sample.input_metadata.dataset_info = {"seed": 1}

    assert sample.metadata == {"row_id": "a", "dataset_info": {"seed": 1}}
    assert Sample.from_json(sample.to_json()) == sample
    assert Sample(prompt="?").to_json() == Sample(prompt="?").to_json()
