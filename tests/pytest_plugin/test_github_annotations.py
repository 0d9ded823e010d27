"""What GitHub Actions is told: text stays text, whatever a test or a sample is called."""

from dataclasses import replace
from pathlib import Path

import pytest

from assay.pytest_plugin.baseline import TestComparison
from assay.pytest_plugin.evaluation_record import Record
from assay.pytest_plugin.github_annotations import annotate, render_step_summary, write_step_summary

GOOD = Record(
    test="evals/test_a.py::test_one",
    file="evals/test_a.py",
    line=7,
    passed=True,
    score=0.9,
    interval=(0.7, 0.98),
    threshold=0.8,
    results=30,
    judged=30,
)
BAD = replace(GOOD, passed=False, score=0.5, reason="mean 0.500 is below 0.800")
WORSE = TestComparison(GOOD.test, None, True, "-0.400 over 30 pairs, worse")


def test_the_table_has_a_line_for_each_test() -> None:
    lines = render_step_summary([GOOD], [replace(WORSE, regressed=False)]).splitlines()

    assert lines[4] == (
        "| evals/test\\_a.py::test\\_one | 0.900 | 0.700 to 0.980 | 30 of 30 | 0.800 "
        "| -0.400 over 30 pairs, worse | ✅ |"
    )


def test_what_failed_is_marked() -> None:
    assert "❌ mean 0.500 is below 0.800" in render_step_summary([BAD], [])


def test_what_was_expected_to_fail_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    expected = replace(BAD, passed=True, xfail="known")

    assert "| ✅ xfailed |" in render_step_summary([expected], [])
    assert list(annotate([expected], root=Path("/r"))) == []


def test_tests_of_the_baseline_only_are_listed_below() -> None:
    gone = TestComparison("test_gone", None, False, "the test is not in this session")

    assert render_step_summary([GOOD], [gone]).endswith(
        "\n- test\\_gone: the test is not in this session\n"
    )


def test_nothing_in_a_cell_is_markup() -> None:
    evil = replace(BAD, reason="a|b\n<img src=x> `c` [d](e) \x1b[31m & @user")

    (line,) = [line for line in render_step_summary([evil], []).splitlines() if "❌" in line]

    assert "a\\|b &lt;img src=x> \\`c\\` \\[d\\](e) \ufffd\\[31m &amp; \\@user" in line


def test_annotations_are_for_github_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)

    assert list(annotate([BAD], root=Path("/r"))) == []


def test_an_annotation_stands_at_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)

    (failed,) = annotate([BAD], root=Path("/r"))

    assert failed.startswith("::error file=evals/test_a.py,line=7::evals/test_a.py::test_one: ")
    assert failed.endswith(": mean 0.500 is below 0.800")


def test_a_path_is_told_from_the_top_of_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", "/checkout")

    (line,) = annotate([BAD], root=Path("/checkout/python"))

    assert line.startswith("::error file=python/evals/test_a.py,line=7::")


def test_a_command_cannot_be_smuggled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    evil = replace(BAD, file="a,line=1::b.py", reason="100%\r\n::add-mask::x")

    (line,) = annotate([evil], root=Path("/r"))

    assert line.startswith("::error file=a%2Cline=1%3A%3Ab.py,line=7::")
    assert line.endswith("100%25%0D%0A::add-mask::x")
    assert "\n" not in line


def test_the_step_summary_is_added_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "step.md"
    page.write_text("earlier\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))

    write_step_summary([GOOD], [])

    assert page.read_text("utf-8").startswith("earlier\n### Evaluations\n")
