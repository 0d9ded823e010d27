"""The plugin as a user's pytest session sees it."""

import pytest

_TESTS = """
    import pytest

    @pytest.mark.evaluation
    def test_scores(): pass

    def test_plain(): pass
"""


@pytest.fixture(autouse=True)
def _session(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(_TESTS)


def test_the_marker_is_known_under_strict_markers(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--strict-markers")

    result.assert_outcomes(passed=2)


def test_evaluations_can_be_selected_and_left_out(pytester: pytest.Pytester) -> None:
    only = pytester.runpytest_subprocess("--strict-markers", "-m", "evaluation", "-v")
    others = pytester.runpytest_subprocess("--strict-markers", "-m", "not evaluation", "-v")

    only.assert_outcomes(passed=1, deselected=1)
    only.stdout.fnmatch_lines(["*test_scores PASSED*"])
    others.assert_outcomes(passed=1, deselected=1)
    others.stdout.fnmatch_lines(["*test_plain PASSED*"])


def test_the_marker_explains_itself(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--markers")

    result.stdout.fnmatch_lines(["@pytest.mark.evaluation: a test that scores samples"])


def test_without_the_plugin_the_marker_is_unknown(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--strict-markers", "-p", "no:assay")

    assert result.ret != 0
    result.stdout.fnmatch_lines(["*'evaluation' not found in `markers`*"])
