"""What is wrong with a file, in words: where it is, and what was meant."""

from assay.errors import ConfigError
from assay.types.file_problems import (
    FileProblem,
    Position,
    build_problems_error,
    format_value_path,
    quote_value,
    suggest_name,
)


def test_one_problem_is_told_with_file_line_path_and_hint() -> None:
    problem = FileProblem(Position("a.yaml", 7, 5), ("checks", 2, "weight"), "is 5", "so")

    assert str(build_problems_error(ConfigError, [problem])) == (
        "a.yaml:7:5: checks[2].weight: is 5\n  hint: so"
    )
    assert (
        str(build_problems_error(ConfigError, [FileProblem(Position("a.yaml"), (), "is 5")]))
        == "a.yaml: is 5"
    )


def test_several_problems_are_told_at_once_from_top_to_bottom() -> None:
    problems = [
        FileProblem(Position("b.yaml", 2, 1), (), "is 6"),
        FileProblem(Position("a.yaml", 1, 1), ("a",), "is 5", "so"),
    ]

    assert str(build_problems_error(ConfigError, problems)) == (
        "a.yaml: the file has 2 problems\n  a.yaml:1:1: a: is 5\n    hint: so\n  b.yaml:2:1: is 6"
    )


def test_problems_that_are_not_listed_are_counted() -> None:
    text = str(
        build_problems_error(ConfigError, [FileProblem(Position("a.yaml", 1), (), "is 5")] * 30)
    )

    assert text.startswith("a.yaml: the file has 30 problems\n")
    assert text.endswith("  and 5 more")


def test_a_word_that_is_not_known_suggests_the_near_miss() -> None:
    assert suggest_name("at_leest", ("at_least", "at_most")) == "did you mean 'at_least'?"
    assert suggest_name("xyz", ("one", "two")) == "known names: 'one', 'two'"


def test_values_are_quoted_as_the_file_has_them() -> None:
    values: tuple[object, ...] = (None, True, {}, [], (), 5, "a\n")

    assert [quote_value(value) for value in values] == [
        "null",
        "true",
        "a mapping",
        "a list",
        "a list",
        "5",
        "'a\\n'",
    ]
    assert len(quote_value("x" * 1000)) < 70
    assert quote_value("x" * 1000).endswith("…")


def test_a_long_key_is_cut_in_a_path() -> None:
    assert format_value_path(("a", "k" * 500, 0)) == f"a.{'k' * 80}[0]"


def test_a_key_never_reaches_the_terminal_as_a_code() -> None:
    assert format_value_path(("a", "\x1b[2J\n")) == "a.\\x1b[2J\\n"
