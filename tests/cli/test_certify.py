"""`assay certify`: its actions, and every wrong manifest refused before anything is called."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.cli.certify import CERTIFY_ACTIONS
from certifying import JUDGED, RIGHT, golden, manifest, profile


def test_every_action_has_help_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    for name in CERTIFY_ACTIONS:
        assert main(["certify", name, "--help"]) == 0
        assert f"usage: assay certify {name}" in capsys.readouterr().out


def test_an_action_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify"]) == 2
    assert "the following arguments are required: ACTION" in capsys.readouterr().err


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a misspelt field": ({"expected_latency": 5}, "expected_latency"),
    "a misspelt field of a criterion": (
        {"grading_rubric": [{**RIGHT, "treshold": 1}]},
        "treshold",
    ),
    "NaN": ({"grading_rubric": [{**RIGHT, "threshold": float("nan")}]}, "threshold"),
    "a negative latency": ({"expected_latency_ms": -5}, "expected_latency_ms"),
    "out of range": ({"grading_rubric": [{**RIGHT, "threshold": 90}]}, "did you mean 0.9?"),
    "no direction": (
        {"grading_rubric": [{**RIGHT, "name": "hallucination_rate"}]},
        "direction: min",
    ),
    "an empty rubric": ({"grading_rubric": []}, "neither criteria nor a latency limit"),
    "two of one name": ({"grading_rubric": [RIGHT, RIGHT]}, "two criteria are named"),
    "no judge": ({"grading_rubric": [JUDGED]}, "evaluator_model"),
    "an unknown judge": (
        {"grading_rubric": [JUDGED], "evaluator_model": "nobody"},
        "the provider of the model 'nobody' is unknown",
    ),
    "an unknown metric": ({"grading_rubric": [{**RIGHT, "metric": "nope"}]}, "'nope'"),
    "no dataset": ({"golden_dataset_uri": None}, "golden_dataset_uri"),
    "a dataset that is not there": ({"golden_dataset_uri": "gone.jsonl"}, "gone.jsonl"),
    "a dataset outside": ({"golden_dataset_uri": "../x.jsonl"}, "x.jsonl"),
    "an unknown scheme": ({"golden_dataset_uri": "ftp://x/y.jsonl"}, "ftp"),
    "another dataset than pinned": ({"golden_dataset_sha256": "0" * 64}, "pinned"),
    "proof that cannot be": ({"gate": "proven"}, "at least 29 samples"),
}


@pytest.mark.parametrize(("fields", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_a_manifest_exits_2_and_records_nothing(
    fields: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = manifest(tmp_path, {**profile(), **fields})
    store = tmp_path / "store.db"

    assert main(["certify", "run", str(path), "--store", str(store), "--quiet"]) == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert not store.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": "a", "question": "?"}\n{"id": "b", oops}\n', "golden.jsonl:2"),
        ("", "no samples"),
        ('{"id": "a", "question": "?"}\n{"id": "a", "question": "!"}\n', "'a'"),
    ],
)
def test_a_broken_dataset_exits_2(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "golden.jsonl").write_text(text)
    path = manifest(tmp_path, profile())

    assert main(["certify", "plan", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_a_manifest_that_is_not_there_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "plan", "no-such-manifest.yaml"]) == 2
    assert "no-such-manifest.yaml" in capsys.readouterr().err


def test_json_says_what_the_plan_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden(tmp_path, rows=3)
    path = manifest(tmp_path, profile())

    assert main(["certify", "plan", str(path), "--json"]) == 0

    (plan,) = json.loads(capsys.readouterr().out)["plans"]
    assert (plan["agent_calls"], plan["criteria"][0]["rows_needed"]) == (3, 29)
