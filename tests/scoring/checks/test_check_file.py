"""Reading YAML: plain data with lines, and refusals that name them."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import ConfigError, MissingExtra
from assay.scoring.checks.check_file import read_check_file
from scoring.checks.check_files import written


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read_check_file(written(folder, text))
    return str(caught.value).removeprefix(f"{folder}/")


def test_values_come_as_plain_data_with_their_lines(tmp_path: Path) -> None:
    path = written(tmp_path, "a: [1, -2.5, 1e3, true, null, 'no', x]\nb:\n  c: \"010\"\n")

    found = read_check_file(path)

    assert found.value == {"a": [1, -2.5, 1000.0, True, None, "no", "x"], "b": {"c": "010"}}
    assert str(found.at("b").at("c").wrong("w")) == f"{path}:3: b.c: w"


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("a: 1\nb: 2\na: 3\n", "checks.yaml:3: the key 'a' is given twice; see 1"),
        ("x:\n  - {a: 1, a: 2}\n", "checks.yaml:2: x[0]: the key 'a' is given twice; see 2"),
        ("a: !!python/object/apply:os.system [ls]\n", "checks.yaml:1: a: has the tag"),
        ("a: !mine 1\n", "checks.yaml:1: a: has the tag '!mine'"),
        ("a:\n  b: no\n", "checks.yaml:2: a.b: 'no' is YAML's spelling of a bool"),
        ("a: 12:30\n", "checks.yaml:1: a: '12:30' is YAML's spelling of a int"),
        ("a: 010\n", "checks.yaml:1: a: '010' is YAML's spelling of a int"),
        ("a: .inf\n", "checks.yaml:1: a: '.inf' is YAML's spelling of a float"),
        ("a: 2026-01-01\n", "checks.yaml:1: a: '2026-01-01' is YAML's spelling of a timestamp"),
        ("1: a\n", "checks.yaml:1: '1' cannot be a key here: keys are text"),
        ("? [a]\n: b\n", "checks.yaml:1: a key that is not text cannot be a key here"),
        ("x: &x {a: 1}\ny:\n  <<: *x\n", "checks.yaml:3: y: '<<' cannot be a key here"),
        ("a: [1\nb: 2\n", "checks.yaml:2: is not YAML"),
        ("a: b: c\n", "checks.yaml:1: is not YAML"),
        ("a: 1\n---\nb: 2\n", "checks.yaml:2: is not YAML: expected a single document"),
        ("a: &a [*a]\n", "checks.yaml:1: a[0][0]"),
        ("", "checks.yaml: is empty"),
        ("a: \x00\n", "checks.yaml: is not YAML"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(text: str, refused: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, text).startswith(refused)


def test_aliases_may_be_used_but_not_to_blow_up(tmp_path: Path) -> None:
    shared = read_check_file(written(tmp_path, "a: &x {b: 1}\nc: *x\n"))
    assert shared.value == {"a": {"b": 1}, "c": {"b": 1}}

    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))

    assert "holds more than 20000 values" in refusal(tmp_path, bomb)


def test_depth_and_size_are_bounded(tmp_path: Path) -> None:
    assert "nested more than 40 deep" in refusal(tmp_path, "[" * 60 + "]" * 60)
    assert "nested more than 40 deep" in refusal(tmp_path, "[" * 20_000 + "]" * 20_000)
    assert "is larger than 262144 bytes" in refusal(tmp_path, "a: " + "x" * 262144)
    assert "over 100 digits" in refusal(tmp_path, "a: " + "1" * 101)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_check_file(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_check_file(tmp_path)

    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nb: \xe9\n")
    with pytest.raises(ConfigError, match=r"latin\.yaml:2: is not UTF-8"):
        read_check_file(tmp_path / "latin.yaml")


def test_without_the_package_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.scoring.checks.check_file.find_spec", lambda name: None)

    with pytest.raises(MissingExtra, match=r"pyyaml.*\n.*assay\[checks\]"):
        read_check_file(written(tmp_path, "a: 1"))


@given(st.lists(st.sampled_from([*"[]{}:,-?&*!|>'\"%@#\n\t ", "a", "<<", "1", "no", "- ", ": "])))
@settings(deadline=None)
def test_any_text_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str]
) -> None:
    path = written(tmp_path_factory.getbasetemp(), "".join(parts), "any.yaml")

    with contextlib.suppress(ConfigError):
        read_check_file(path)
