"""Plain data from YAML: what each spelling is read as, and what is refused, with its line."""

from typing import Any

import pytest

from assay.errors import ConfigError
from assay.types.guarded_yaml import parse_yaml
from assay.types.yaml_values import is_number


def read(text: str, **options: Any) -> Any:
    return parse_yaml(text, file="f.yaml", **options).value


def refused(text: str, **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("spelled", "value"),
    [
        ("1", 1),
        ("-2.5", -2.5),
        ("+3", 3),
        ("1e-2", 0.01),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'no'", "no"),
        ('"010"', "010"),
        ("'1e3'", "1e3"),
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T10:00:00Z", "2026-01-01T10:00:00Z"),
        ("=", "="),
        ("a b", "a b"),
        ("!!str 5", "5"),
        ("!!int '5'", 5),
        ("[]", []),
        ("{}", {}),
    ],
)
def test_each_spelling_is_read_as_it_looks(spelled: str, value: Any) -> None:
    found = read(f"a: {spelled}\n")["a"]

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3:1: the key 'a' is given twice; first in line 1"),
        (
            "x:\n  - {a: 1, a: 2}\n",
            "f.yaml:2:12: x[0]: the key 'a' is given twice; first in line 2",
        ),
        ("a: !!python/object/apply:os.system [ls]\n", "f.yaml:1:4: a: the tag"),
        ("a: !mine 1\n", "f.yaml:1:4: a: the tag '!mine' is not supported"),
        ("a: !mine {}\n", "f.yaml:1:4: a: the tag '!mine' is not supported"),
        ("!mine a: 1\n", "f.yaml:1:1: the key 'a' has the tag '!mine'"),
        ("a: !!binary aGk=\n", "f.yaml:1:4: a: 'aGk=' is YAML's spelling of a binary"),
        ("a:\n  b: no\n", "f.yaml:2:6: a.b: 'no' is YAML's spelling of a bool\n  hint: write true"),
        ("a: 12:30\n", "f.yaml:1:4: a: '12:30' is YAML's spelling of an int"),
        ("a: 010\n", "f.yaml:1:4: a: '010' is YAML's spelling of an int"),
        ("a: 0x1f\n", "f.yaml:1:4: a: '0x1f' is YAML's spelling of an int"),
        ("a: 1_000\n", "f.yaml:1:4: a: '1_000' is YAML's spelling of an int"),
        ("a: .inf\n", "f.yaml:1:4: a: '.inf' is not a finite number"),
        ("a: .NaN\n", "f.yaml:1:4: a: '.NaN' is not a finite number"),
        ("a: 1e999\n", "f.yaml:1:4: a: 1e999 is too large for a number"),
        ("a: " + "1" * 101, "f.yaml:1:4: a: the number has more than 100 digits"),
        ("? [a]\n: b\n", "f.yaml:1:3: the mapping has a key that is not text"),
        ("x: &x {a: 1}\ny:\n  <<: *x\n", "f.yaml:3:3: y: the merge key `<<` is not supported"),
        ("a: &a [*a]\n", "f.yaml:1:8: a[0]: the alias *a is used inside its own anchor"),
        ("a: *b\n", "f.yaml:1:4: a: the alias *b has no anchor"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2:1: the file contains more than one document"),
        ("", "f.yaml: the file is empty"),
        ("# nothing\n", "f.yaml: the file is empty"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(text: str, said: str) -> None:
    assert refused(text).startswith(said)


def test_keys_are_the_text_they_are_written_with() -> None:
    assert read("1: a\n0.5: b\nno: c\n2026-01-01: d\n'<<': e\n") == {
        "1": "a",
        "0.5": "b",
        "no": "c",
        "2026-01-01": "d",
        "<<": "e",
    }


def test_yes_and_no_are_words_only_where_that_is_asked_for() -> None:
    assert read("[yes, No, on, OFF]", yes_and_no=True) == [True, False, True, False]
    assert refused("[yes]").startswith("f.yaml:1:2: [0]: 'yes' is YAML's spelling of a bool")


def test_all_problems_of_a_text_are_told_at_once() -> None:
    said = refused("a: 010\nb: .nan\nc: *x\nd: {e: 1, e: 2}\n")

    assert said.startswith("f.yaml: the file has 4 problems\n")
    assert [f"f.yaml:{line}:" in said for line in (1, 2, 3, 4)] == [True] * 4


def test_a_text_of_nothing_but_problems_is_not_read_to_its_end() -> None:
    assert refused("a: [" + "010, " * 5000 + "]").startswith("f.yaml: the file has 100 problems\n")


def test_aliases_may_be_used_but_not_to_blow_up() -> None:
    assert read("a: &x {b: 1}\nc: *x\n") == {"a": {"b": 1}, "c": {"b": 1}}

    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))

    assert "the file contains more than 20,000 values\n  hint: an alias counts" in refused(bomb)
    assert "the file contains more than 20,000 values" in refused("[" + "1," * 20_001 + "]")


def test_depth_is_bounded_also_where_aliases_make_it() -> None:
    ladder = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 60))

    assert "is nested more than 40 deep" in refused("[" * 60 + "]" * 60)
    assert "is nested more than 40 deep" in refused("[" * 300_000)
    assert "is nested more than 40 deep" in refused(ladder)
    assert read("[" * 40 + "]" * 40) != []


@pytest.mark.parametrize(
    ("text", "number"), [("1", True), ("1e3", True), ("017", False), ("1:30", False), ("", False)]
)
def test_a_text_that_would_be_a_number_is_known(text: str, number: bool) -> None:
    assert is_number(text) is number


def test_aliases_of_one_long_text_are_refused_by_what_they_add_up_to() -> None:
    uses = "\n".join("  - *text" for _ in range(1600))
    text = f"text: &text {'a' * 500_000}\nuses:\n{uses}\n"

    assert "f.yaml:10:5: uses[7]: the file contains more than 4,194,304 characters" in refused(text)


def test_aliases_of_long_keys_count_as_well() -> None:
    uses = "\n".join("  - *map" for _ in range(1600))
    text = f"map: &map {{? {'k' * 500_000} : 1}}\nuses:\n{uses}\n"

    assert "the file contains more than 4,194,304 characters" in refused(text)


def test_a_text_as_long_as_a_file_may_be_is_read() -> None:
    assert len(read(f"a: {'a' * 1_000_000}\n")["a"]) == 1_000_000
