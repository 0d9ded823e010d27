"""The evaluations on the documentation pages, run with pytest."""

import re
from pathlib import Path

import pytest

from evaluation_sessions import call_pytest

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"(?<!-->\n)^```(python|jsonl)\n(.*?)^```", re.DOTALL | re.MULTILINE)
RUN = re.compile(r"test-replies-\d{8}-\d{6}-\w+")


@pytest.mark.parametrize(
    ("page", "tests"),
    [
        (
            "pytest.md",
            {
                "test_replies": 1.0,
                "test_by_level[True]": 1.0,
                "test_by_level[False]": 1.0,
                "test_all_at_once": 1.0,
                "test_all_rows": 1.0,
                "test_shortest_wins[mock:fixed]": 1.0,
                "test_shortest_wins[mock:fixed#2]": 0.0,
                "test_models[mock:fixed]": 0.5,
                "test_models[mock:fixed#2]": 0.5,
                "test_asserted": 0.5,
                "test_proven": 1.0,
            },
        ),
        ("ci.md", {"test_sums": 1.0}),
    ],
)
def test_the_evaluations_of_a_page_pass(page: str, tests: dict[str, float], tmp_path: Path) -> None:
    blocks = BLOCK.findall((DOCS / page).read_text("utf-8"))
    code = "\n".join(text for language, text in blocks if language == "python")
    (tmp_path / "test_sums.py").write_text(code, "utf-8")
    for text in (text for language, text in blocks if language == "jsonl"):
        (tmp_path / "sums.jsonl").write_text(text, "utf-8")

    session = call_pytest(tmp_path)

    assert session.status == 0, session.output
    assert {name: test["score"] for name, test in session.tests.items()} == tests
    if page == "pytest.md":
        shown = (DOCS / page).read_text("utf-8").partition("passed  test_sums")[2]
        assert shown.partition("summary:")[0].strip() in session.output.replace("passed  ", "", 1)


def test_a_test_fails_as_the_page_shows(tmp_path: Path) -> None:
    page = (DOCS / "pytest.md").read_text("utf-8")
    (first, *_) = (text for language, text in BLOCK.findall(page) if language == "python")
    (rows,) = (text for language, text in BLOCK.findall(page) if language == "jsonl")
    raising = "    if not reply[0].isdigit():\n        raise ValueError(f'cannot read {reply!r}')\n"
    (tmp_path / "test_sums.py").write_text(first.replace("    return", f"{raising}    return"))
    (tmp_path / "sums.jsonl").write_text(rows.replace("The answer is 51", "fifty-one"))

    session = call_pytest(tmp_path)

    (shown,) = re.findall(r"^```text\n(test_replies: .*?)^```", page, re.DOTALL | re.MULTILINE)
    assert session.status == 1
    assert RUN.sub("RUN", shown) in RUN.sub("RUN", session.output)
