"""Excerpts: short, on one line, without control characters, and bounded."""

import json

from assay.store.excerpts import MAX_EXCERPT_CHARS, build_excerpt, shorten_text
from assay.types import EvaluateResult, Sample
from make import asked, said, sample
from store_runs import broken


def test_an_excerpt_has_what_a_table_shows() -> None:
    given = sample(asked("Why?\nMore"), said("Because."), ground_truth="so")
    given.score = EvaluateResult(score=1.0, reason="right")

    assert build_excerpt(given) == ("Why?", "Because.", "so", "right", "")


def test_the_error_of_a_result_that_was_not_judged_comes_before_its_reason() -> None:
    given = Sample(prompt="?")
    given.score = EvaluateResult(is_score_valid=False, reason="not judged", error="no JSON")

    assert build_excerpt(given).reason == "no JSON"


def test_a_failure_is_the_reason_and_has_no_answer() -> None:
    excerpt = build_excerpt(broken(1, "too slow"))

    assert (excerpt.answer, excerpt.reason) == ("", "TimeoutError: too slow")


def test_texts_are_cut_and_cleaned() -> None:
    assert shorten_text("a\x1b[2J\u202eb \n c") == "a\ufffd[2J\ufffdb c"
    assert shorten_text("x" * 10_000) == "x" * (MAX_EXCERPT_CHARS - 1) + "…"
    assert shorten_text(" " * 10_000 + "late") == "…"
    assert shorten_text("a\ud800b\0") == "a\ufffdb\ufffd"


def test_only_scalar_fields_are_kept_and_few_of_them() -> None:
    row = {
        "number": 1.5,
        "text": "a\x00b",
        "flag": True,
        "nothing": None,
        "list": [1],
        "huge": 10**400,
        "long": "y" * 1000,
        "bad\x00name": 1,
        **{f"more{index}": index for index in range(100)},
    }

    fields = json.loads(build_excerpt(Sample(input=row)).fields)

    assert fields["number"] == 1.5
    assert fields["text"] == "a\ufffdb"
    assert fields["flag"] == "true"
    assert len(fields["long"]) == 120
    assert not fields.keys() & {"nothing", "list", "huge", "bad\x00name"}
    assert len(fields) == 32


def test_numbers_that_are_not_finite_are_left_out() -> None:
    row = {"nan": float("nan"), "infinite": float("inf")}

    assert build_excerpt(Sample(id="a", input=row)).fields == ""
