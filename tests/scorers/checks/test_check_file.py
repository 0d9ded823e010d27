"""Check files: read by the guarded reader, with lines, and refusals that name them."""

from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.scorers.checks.check_file import read_check_file
from check_files import written


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read_check_file(written(folder, text))
    return str(caught.value).removeprefix(f"{folder}/")


def test_values_come_as_plain_data_with_their_lines(tmp_path: Path) -> None:
    path = written(tmp_path, "a: [1, -2.5, 1e3, true, null, 'no', x]\nb:\n  c: \"010\"\n")

    found = read_check_file(path)

    assert found.value == {"a": [1, -2.5, 1000.0, True, None, "no", "x"], "b": {"c": "010"}}
    assert str(found.at("b").at("c").wrong("w")) == f"{path}:3: b.c: w"


def test_inside_an_alias_the_line_of_its_use_is_told(tmp_path: Path) -> None:
    found = read_check_file(written(tmp_path, "a: &x {b: 1}\nc: *x\n"))

    assert str(found.at("c").at("b").wrong("w")).endswith("checks.yaml:2: c.b: w")


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("a: 1\nb: 2\na: 3\n", "checks.yaml:3: the key 'a' is given twice"),
        ("a:\n  b: no\n", "checks.yaml:2: a.b: 'no' is YAML's spelling of a bool"),
        ("a: 12:30\n", "checks.yaml:1: a: '12:30' is YAML's spelling of an int"),
        ("a: !mine 1\n", "checks.yaml:1: a: the tag '!mine' is not supported"),
        ("a: [1\nb: 2\n", "checks.yaml:2: the file is not YAML"),
        ("", "checks.yaml: the file is empty"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(text: str, refused: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, text).startswith(refused)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_check_file(tmp_path / "none.yaml")
