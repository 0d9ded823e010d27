"""YAML files: read within bounds, told about by line, and written so that they read the same."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from assay.errors import ConfigError, ManifestError
from assay.types.guarded_yaml import MAX_YAML_BYTES, parse_yaml, read_limited_text, write_yaml


def test_every_value_has_its_position() -> None:
    document = parse_yaml("a: [1,\n  2]\nb:\n  c: x\n", file="f.yaml")

    assert document.value == {"a": [1, 2], "b": {"c": "x"}}
    assert document.positions[("a", 1)] == ("f.yaml", 2, 3)
    assert document.problem(("b", "c"), "w", "h").where == "f.yaml:4:3: b.c"


def test_inside_an_alias_the_line_is_that_of_its_use() -> None:
    document = parse_yaml("a: &x {b: 1}\nc: *x\n", file="f.yaml")

    assert document.problem(("c", "b"), "w").where == "f.yaml:2:1: c.b"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1\nb: 2\n", r"f\.yaml:2:2: the file is not YAML"),
        ("a: b: c\n", r"f\.yaml:1:\d: the file is not YAML"),
        ("a: 'x\n", r"f\.yaml:\d:\d: the file is not YAML"),
        ("a: \x00\n", r"f\.yaml: the file is not YAML"),
        ("\t- a", r"f\.yaml:1:\d: the file is not YAML"),
    ],
)
def test_what_is_not_yaml_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_yaml(text, file="f.yaml")


def test_the_error_is_of_the_kind_that_is_asked_for() -> None:
    for text in ("a: [", "a: 010", ""):
        with pytest.raises(ManifestError):
            parse_yaml(text, file="f.yaml", kind=ManifestError)


def test_without_the_fast_parser_the_same_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: &x [1, 'b', ~, 1e3]\nb: {c: *x, d: !!str 5}\n"
    fast = parse_yaml(text, file="f.yaml")
    monkeypatch.delattr("yaml.CSafeLoader")

    slow = parse_yaml(text, file="f.yaml")

    assert (slow.value, slow.positions) == (fast.value, fast.positions)
    with pytest.raises(ConfigError, match="nested more than 40 deep"):
        parse_yaml("[" * 5000, file="f.yaml")


def test_a_file_is_read_up_to_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1")
    assert read_limited_text(path) == "a: 1"

    path.write_bytes(b"#" * MAX_YAML_BYTES)
    assert len(read_limited_text(path)) == MAX_YAML_BYTES
    path.write_bytes(b"#" * (MAX_YAML_BYTES + 1))
    with pytest.raises(ConfigError, match="is larger than 1,048,576 bytes"):
        read_limited_text(path)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nb: \xe9\n")

    with pytest.raises(ConfigError, match=r"latin\.yaml:2: the file is not UTF-8: byte 0xe9"):
        read_limited_text(tmp_path / "latin.yaml")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_limited_text(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_limited_text(tmp_path)


def test_json_with_characters_in_two_halves_is_read() -> None:
    given = {"a": "😀 \\ud83d\\ude00", "b": "\\\\", "c": "x/y\u2028"}

    assert parse_yaml(json.dumps(given), file="f.json").value == given
    assert parse_yaml(json.dumps(given, indent="\t"), file="f.json").value == given
    with pytest.raises(ConfigError, match="is not YAML"):
        parse_yaml('{"a": "\\ud83d"}', file="f.json")


_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**50), 10**50)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=20)
    | st.sampled_from(["1e3", "017", "no", "2026-01-01", "1:30", "~", "=", "<<", ".5", "-", "a: b"])
)
_DATA: st.SearchStrategy[Any] = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(_SCALARS.map(str), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(_DATA)
@example("\x85")
@example("a\u2028 b\r\n")
@settings(deadline=None, max_examples=200)
def test_what_is_written_is_read_back_the_same(data: Any) -> None:
    assert parse_yaml(write_yaml([data]), file="f.yaml").value == [data]


@given(st.lists(st.sampled_from([*"[]{}:,-?&*!|>'\"%@#\n\t ", "a", "<<", "1", "no", "- ", ": "])))
@settings(deadline=None)
def test_any_text_is_read_or_refused(parts: list[str]) -> None:
    with contextlib.suppress(ConfigError):
        parse_yaml("".join(parts), file="f.yaml")
