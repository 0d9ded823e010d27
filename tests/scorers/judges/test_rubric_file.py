"""Rubric files: read safely, and told about by line and key."""

from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.scorers import Rubric, read_rubric, rubric_names
from assay.scorers.judges.rubric_file import parse_rubric

GOOD = """\
name: polite
description: Is it polite?
criteria:
  - name: tone
    description: Is the tone kind?
    levels: {0: rude, 0.5: cold, 1: kind}
"""


@pytest.mark.parametrize(
    "name",
    [
        "general_quality",
        "multi_turn_general_quality",
        "tool_use_quality",
        "task_success",
        "trajectory_quality",
    ],
)
def test_the_shipped_rubrics_are_found_by_name_in_any_case(name: str) -> None:
    rubric = read_rubric(name.upper())

    assert rubric.name == name
    assert name in rubric_names()
    assert all({0.0, 1.0} <= set(each.levels) for each in rubric.criteria)


def test_a_file_is_read_as_yaml_and_json(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(GOOD)
    rubric = read_rubric(tmp_path / "r.yaml")
    (tmp_path / "r.json").write_text(rubric.model_dump_json())

    assert rubric.criteria[0].levels == {0.0: "rude", 0.5: "cold", 1.0: "kind"}
    assert read_rubric(str(tmp_path / "r.json")) == rubric
    assert read_rubric(rubric) is rubric
    assert read_rubric(rubric.model_dump()) == rubric


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "thresold: 0.7\n", r"r:7:1: thresold: unknown field\n.*mean 'threshold'"),
        (GOOD + "    wieght: 2\n", r"r:7:5: criteria\[0\].wieght: unknown field\n.*mean 'weight'"),
        (GOOD + "    weight: heavy\n", r"r:7:5: criteria\[0\].weight: .*number"),
        (GOOD + "xyz: 1\n", r"r:7:1: xyz: .*\n.*known names: 'name', 'description'"),
        (GOOD.replace("name: polite\n", ""), r"r:1:1: name: the field is missing"),
        (
            GOOD.replace("    description: Is the tone kind?\n", ""),
            r"r:4:5: criteria\[0\].description: the field is missing",
        ),
        (GOOD + "name: again\nabc: 1\n", r"r:7:1: the key 'name' is given twice; first in line 1"),
        (
            GOOD + "abc: 1\nabd: 1\n",
            r"r: the file has 2 problems\n  r:7:1: abc: .*\n.*\n  r:8:1: abd: ",
        ),
        (GOOD + "guidance: [\n", r"r:8:1: the file is not YAML"),
        (GOOD.replace("0.5: cold", "2: odd"), r"r:6:23: criteria\[0\].levels.*less than or equal"),
        ("- a\n", "r:1:1: the file is a list, not a mapping\n.*criteria"),
        ("", "r: the file is empty"),
        ("a: !!python/object/apply:os.getcwd []\n", "r:1:4: a: the tag"),
        ("a: " + "[" * 5000, r"r:1:44: a(\[0\])+: the value is nested more than 40 deep"),
        ("name: a\n---\nname: b\n", "r:2:1: the file contains more than one document"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_key(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_rubric(text, where="r")

    assert caught.match(f"^{message}")


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9")
    (tmp_path / "huge.yaml").write_bytes(b"#" * (1024 * 1024 + 1))

    with pytest.raises(ConfigError, match="built-in rubrics: general_quality"):
        read_rubric("general_qualty")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_rubric(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        read_rubric(tmp_path / "latin.yaml")
    with pytest.raises(ConfigError, match="is larger than"):
        read_rubric(tmp_path / "huge.yaml")
    with pytest.raises(ConfigError, match="rubric: description: the field is missing"):
        read_rubric({"name": "a", "criteria": [{"name": "a", "description": "b"}]})


def test_two_criteria_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two criteria are named 'tone'"):
        parse_rubric(GOOD + "  - {name: tone, description: again}\n", where="r")


def test_a_rubric_is_frozen() -> None:
    assert Rubric.model_config["frozen"] is True
