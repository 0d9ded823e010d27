"""Digests: the same for the same definition however it is written, another for any other."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from assay.certify.code_digests import digest_definition
from assay.types.digests import compute_code_sha256, compute_file_sha256
from assay.types.manifest import AgentDefinition
from certifying import RIGHT, agent, profile


def digest(**fields: Any) -> str:
    given = {**agent(profile()), **fields}
    return digest_definition(AgentDefinition.model_validate(given))


def test_spelling_out_a_default_changes_nothing() -> None:
    plain = AgentDefinition.model_validate(agent(profile(RIGHT)))
    spelled = AgentDefinition.model_validate(
        agent(profile({**RIGHT, "strict": True}, gate="point", repeats=1))
    )

    assert digest_definition(plain) == digest_definition(spelled)


@pytest.mark.parametrize(
    "change",
    [
        {"goal": "Another."},
        {"evaluation": profile({**RIGHT, "threshold": 0.91})},
        {"evaluation": profile({**RIGHT, "strict": False})},
        {"model": None},
    ],
)
def test_any_change_of_the_definition_changes_the_digest(change: dict[str, Any]) -> None:
    assert digest(**change) != digest()


def test_code_is_digested_with_the_file_it_is_in() -> None:
    assert compute_code_sha256(digest) == compute_file_sha256(Path(__file__))
    assert (
        compute_file_sha256(Path(__file__))
        == hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    )


def test_code_without_a_file_has_no_digest() -> None:
    assert compute_code_sha256(len) is None
