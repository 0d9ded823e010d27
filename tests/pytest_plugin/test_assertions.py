"""Failed assertions as results: their text, its length, and how many are kept."""

from assay.pytest_plugin.assertions import FailedAssertions, read_assertion


def test_long_texts_are_cut() -> None:
    found = read_assertion(AssertionError("x" * 5000))

    assert found.reason == "x" * 999 + "…"


def test_the_colours_of_a_diff_are_removed() -> None:
    coloured = "assert 'b' == 'a'\n  \x1b[0m\x1b[91m- a\x1b[39;49;00m\x1b[90m\x1b[39;49;00m"

    assert read_assertion(AssertionError(coloured)).reason == "assert 'b' == 'a'\n  - a"


def test_an_assertion_without_a_text_shows_its_line() -> None:
    reason: str | None = None
    try:
        exec(compile("assert 1 > 2", __file__, "exec"))
    except AssertionError as error:
        reason = read_assertion(error).reason

    assert (reason or "").startswith("assertion failed: ")
    assert read_assertion(AssertionError()).reason == "assertion failed: assert"


def test_secrets_are_not_quoted() -> None:
    found = read_assertion(AssertionError("assert 'Bearer sk-abcdefghijklmnopqrstuvwx' == ''"))

    assert "abcdefghijklmnopqrstuvwx" not in (found.reason or "")


def test_all_are_counted_and_the_first_are_kept() -> None:
    assertions = FailedAssertions()
    for number in range(30):
        assertions.add(f"s{number}", AssertionError("no"))

    assert (assertions.count, len(assertions.first)) == (30, 20)
