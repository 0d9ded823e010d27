"""Certificates: in-toto's shape, consistent lists, and none of a run with deviations."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError

from assay.certify.certificate import Resource, Statement, build_statement, is_valid
from assay.certify.criterion_decisions import Timings, decide_latency
from bars import SHA, certification, latency_bar, outcome

DIGEST_SET = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": {"type": "string", "pattern": "^[0-9a-f]+$"},
}
RESOURCE = {
    "type": "object",
    "anyOf": [{"required": ["uri"]}, {"required": ["digest"]}, {"required": ["content"]}],
    "properties": {
        "name": {"type": "string"},
        "uri": {"type": "string", "pattern": "^[a-z0-9+.-]+:"},
        "digest": DIGEST_SET,
    },
}
TESTS = {"type": "array", "items": {"type": "string"}}
IN_TOTO = {
    "type": "object",
    "required": ["_type", "subject", "predicateType", "predicate"],
    "properties": {
        "_type": {"const": "https://in-toto.io/Statement/v1"},
        "subject": {
            "type": "array",
            "minItems": 1,
            "items": {**RESOURCE, "required": ["digest"]},
        },
        "predicateType": {"const": "https://in-toto.io/attestation/test-result/v0.1"},
        "predicate": {
            "type": "object",
            "required": ["result", "configuration"],
            "properties": {
                "result": {"enum": ["PASSED", "WARNED", "FAILED"]},
                "configuration": {"type": "array", "items": RESOURCE},
                "passedTests": TESTS,
                "warnedTests": TESTS,
                "failedTests": TESTS,
            },
        },
    },
}
"""The statement of in-toto v1 with the test-result predicate v0.1, as their specifications say."""


def written(statement: Statement) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(statement.to_json())
    return found


def test_a_certificate_has_the_shape_that_in_toto_asks_for() -> None:
    result = certification(
        outcome(),
        outcome(right=3, name="polite", strict=False),
        outcome(right=3, name="short", strict=True),
        dataset={"uri": "s3://bucket/golden.jsonl", "sha256": SHA, "rows": 30},
    )

    made = written(build_statement(result, valid_days=30))

    jsonschema.validate(made, IN_TOTO)
    predicate = made["predicate"]
    assert predicate["result"] == "FAILED"
    assert predicate["passedTests"] == ["exact_answer"]
    assert predicate["warnedTests"] == ["polite"]
    assert predicate["failedTests"] == ["short"]
    assert {"uri": "s3://bucket/golden.jsonl"}.items() <= predicate["configuration"][1].items()


def test_everything_that_decides_the_result_is_there_by_digest() -> None:
    judged = outcome(name="kind", graded_by={"by": "judge", "name": "mock:fixed", "sha256": SHA})
    unknown = outcome(name="odd", graded_by={"by": "metric", "name": "builtins:bool"})
    files = {"path": "agent.yaml", "sha256": SHA, "references": {"parts/bar.yaml": SHA}}

    made = written(
        build_statement(certification(outcome(), judged, unknown, manifest=files), valid_days=1)
    )

    assert [each["name"] for each in made["predicate"]["configuration"]] == [
        "manifest:agent.yaml",
        "manifest:parts/bar.yaml",
        "dataset:golden.jsonl",
        "metric:exact_answer",
        "judge-prompt:kind",
    ]


def test_the_subjects_are_the_definition_the_code_and_what_is_named_beside() -> None:
    result = certification()
    agent = result.agent.model_copy(update={"runner": "my:agent", "runner_sha256": "cd" * 32})
    image = Resource(name="image", digest={"sha256": "ef" * 32})

    made = build_statement(
        result.model_copy(update={"agent": agent}), valid_days=1, subjects=(image,)
    )

    assert [each.name for each in made.subject] == ["agent:helper", "code:my:agent", "image"]


def test_a_certificate_reads_back_as_it_was() -> None:
    late = decide_latency(latency_bar(), Timings([[0.1]] * 30), agent_errors=0)
    made = build_statement(certification(outcome(), late), valid_days=30)

    assert Statement.model_validate_json(made.to_json()) == made


def test_deviations_keep_the_key_of_earlier_certificates() -> None:
    made = build_statement(certification(), valid_days=30)

    written = json.loads(made.to_json())["predicate"]["certification"]
    assert written["rehearsal"] == []
    assert "deviations" not in written


def test_fields_of_others_are_ignored_as_in_toto_asks() -> None:
    made = build_statement(certification(), valid_days=30)
    changed = written(made)
    changed["extra"] = changed["predicate"]["extra"] = 1

    assert Statement.model_validate(changed) == made


def test_it_holds_from_the_last_measurement_for_so_many_days() -> None:
    found = build_statement(certification(), valid_days=30).certification
    measured = datetime(2026, 3, 1, 12, tzinfo=UTC)

    assert found.valid_until == measured + timedelta(days=30)
    assert is_valid(found, measured)
    assert is_valid(found, measured + timedelta(days=30))
    assert not is_valid(found, measured + timedelta(days=30, seconds=1))
    assert not is_valid(found, measured - timedelta(hours=1))


@pytest.mark.parametrize(
    "result",
    [
        certification(deviations=["only 3 samples"]),
        certification(outcome(unscored=1)),
    ],
    ids=["deviations", "what could not be told"],
)
def test_there_is_no_certificate_of(result: Any) -> None:
    with pytest.raises(
        ValueError, match="a run with deviations or an ERROR verdict cannot be certified"
    ):
        build_statement(result, valid_days=30)


LIES: dict[str, tuple[tuple[str | int, ...], Any, str]] = {
    "another result": (("predicate", "result"), "PASSED", "`result` does not agree"),
    "a test that failed as passed": (
        ("predicate", "passedTests"),
        ["exact_answer", "polite"],
        "`passed` does not agree",
    ),
    "a hidden warning": (("predicate", "warnedTests"), [], "`warned` does not agree"),
    "another subject": (
        ("subject", 0, "digest"),
        {"sha256": "0" * 64},
        "`subject` does not agree",
    ),
    "another dataset": (
        ("predicate", "configuration", 1, "digest"),
        {"sha256": "0" * 64},
        "`configuration` does not agree",
    ),
    "a verdict that does not add up": (
        ("predicate", "certification", "verdict"),
        "PASSED",
        "does not follow from the outcomes",
    ),
    "a value below its bar": (
        ("predicate", "certification", "outcomes", 0, "value"),
        0.1,
        "its value misses the threshold",
    ),
    "a pass that is not proven": (
        ("predicate", "certification", "outcomes", 0, "gate"),
        "proven",
        "is not proven",
    ),
    "some of the samples": (
        ("predicate", "certification", "dataset", "rows"),
        300,
        "30 of 300 samples",
    ),
    "a time without zone": (
        ("predicate", "certification", "valid_until"),
        "2026-03-01T12:00:00",
        "timezone",
    ),
    "a field of ours that is not known": (
        ("predicate", "certification", "waived"),
        ["exact_answer"],
        "Extra inputs",
    ),
    "no subject": (("subject",), [], "at least 1 item"),
    "another type": (("_type",), "https://in-toto.io/Statement/v0.1", "Input should be"),
    "another predicate": (("predicateType",), "https://slsa.dev/provenance/v1", "Input should be"),
}


@pytest.mark.parametrize(("place", "value", "message"), LIES.values(), ids=LIES)
def test_a_certificate_that_contradicts_itself_is_refused(
    place: tuple[str | int, ...], value: Any, message: str
) -> None:
    shaky = outcome(right=28)
    changed = written(
        build_statement(certification(shaky, outcome(3, name="polite", strict=False)), valid_days=9)
    )
    part: Any = changed
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value

    with pytest.raises(ValidationError, match=message):
        Statement.model_validate(changed)


@pytest.mark.parametrize("name", ["_type", "predicateType", "subject", "predicate"])
def test_no_part_of_a_statement_may_be_left_out(name: str) -> None:
    changed = written(build_statement(certification(), valid_days=9))
    del changed[name]

    with pytest.raises(ValidationError, match="Field required"):
        Statement.model_validate(changed)
