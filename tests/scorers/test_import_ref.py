"""`module:function`: imported from beside the manifest, refused in words."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.scorers.import_ref import import_function, import_object, is_code_name


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", sys.path.copy())
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_function_beside_the_manifest_is_found(folder: Path) -> None:
    (folder / "own_metric_a.py").write_text("def score(sample): return 1\n")

    function = import_function("own_metric_a:score", folders=(folder,), where="m")

    assert function(object()) == 1


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("score = 3", "is a int, which cannot be called"),
        ("def score(): ...", "cannot be called with a sample"),
        ("def score(one, two): ...", "cannot be called with a sample"),
        ("import sys; sys.exit(3)", "cannot be imported: SystemExit: 3"),
        ("1 / 0", "cannot be imported: ZeroDivisionError"),
        ("def other(sample): ...", "cannot be imported: AttributeError"),
    ],
)
def test_what_cannot_be_called_with_a_sample_is_refused(
    folder: Path, code: str, message: str
) -> None:
    name = f"own_metric_{abs(hash(code))}"
    (folder / f"{name}.py").write_text(code)

    with pytest.raises(ConfigError, match=message) as caught:
        import_function(f"{name}:score", folders=(folder,), where="agent.yaml: right: metric")

    assert str(caught.value).startswith("agent.yaml: right: metric: ")


def test_a_module_that_is_not_there_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="ModuleNotFoundError"):
        import_object("no_such_module_here", folders=(folder,), where="--tools")


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("a:b", True), ("a.b:c.d", True), ("a", False), ("a:b c", False), ("http://x", False)],
)
def test_code_has_a_name_of_its_own_form(text: str, is_one: bool) -> None:
    assert is_code_name(text) is is_one


def test_a_script_that_names_its_own_function_does_not_run_itself_again(tmp_path: Path) -> None:
    script = tmp_path / "own.py"
    script.write_text(
        "from assay.scorers import import_code_ref\n"
        "def answer(sample): return 'yes'\n"
        "print(import_code_ref('own.py:answer', where='x') is answer)\n"
    )

    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )

    assert (done.stdout, done.stderr) == ("True\n", "")
