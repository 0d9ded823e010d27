"""`python: module:function` or `FILE.py:function`: found beside the file, called by its names."""

from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.scorers import Checks, checks_from
from assay.types import EvaluateResult
from check_files import session, written

MODULE = """
from assay.types import EvaluateResult

LIMIT = 3

def short(response):
    return len(response) < 5

def half(sample, messages):
    return EvaluateResult(score=0.5, reason=f"{len(messages)} messages")

def rounded(response):
    return sum([0.7] * 3) / 3

def broken(response):
    raise ValueError("boom")

def unsure(response):
    return EvaluateResult(is_score_valid=False, reason="cannot say")

def wrong(response):
    return "yes"

async def later(response):
    return True
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path / "elsewhere"))
    return tmp_path


def made(folder: Path, value: str) -> Checks:
    name = f"own_checks_{abs(hash(folder))}"
    (folder / f"{name}.py").write_text(MODULE)
    value = value.replace("own:", f"{name}:").replace("own.py:", f"{name}.py:")
    text = f"checks:\n  - name: it\n    python: {value}\n"
    return checks_from(written(folder, text))


def found(folder: Path, value: str) -> tuple[float | None, str | None]:
    result: EvaluateResult = made(folder, value)(session())
    return result.metrics["it"].score, result.metrics["it"].reason


def test_a_function_beside_the_file_is_called(folder: Path) -> None:
    assert found(folder, "own:short")[0] == 0.0
    assert found(folder, "own:half") == (0.5, "9 messages")
    assert found(folder, "own.py:short")[0] == 0.0
    assert found(folder, "./own.py:half") == (0.5, "9 messages")


@pytest.mark.parametrize(("bar", "passed"), [("", False), (", at_least: 0.5", True)])
def test_it_passes_from_its_bar_on(bar: str, passed: bool, folder: Path) -> None:
    checks = made(folder, f"{{function: 'own:half'{bar}}}")

    (finding,) = checks.findings(session())

    assert finding.passed is passed


@pytest.mark.parametrize(("bar", "passed"), [(0.7, True), (0.7001, False)])
def test_a_rounding_error_is_not_below_the_bar(bar: float, passed: bool, folder: Path) -> None:
    checks = made(folder, f"{{function: 'own:rounded', at_least: {bar}}}")

    assert checks.findings(session())[0].passed is passed


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("own:broken", "ValueError: boom"),
        ("own:unsure", "cannot say"),
        (
            "own:wrong",
            "ScorerFault: the scorer returned a str hint: return an "
            "EvaluateResult, a number or a bool",
        ),
    ],
)
def test_a_function_that_cannot_say_is_not_judged(function: str, reason: str, folder: Path) -> None:
    assert found(folder, function) == (None, reason)


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        ("own:none", "cannot be imported: AttributeError"),
        ("no_such_module:f", "cannot be imported: ModuleNotFoundError"),
        ("own:LIMIT", "is a int, which cannot be called"),
        ("own:later", "is an async function"),
        ("'os.system(1)'", "is not of the form module:function or FILE.py:function"),
        ("own.py:none", "does not define 'none'"),
        ("no_such_file.py:f", "no_such_file.py: the file does not exist"),
        ("{at_least: 1}", "python.function: the field is missing"),
    ],
)
def test_a_wrong_function_is_refused_before_anything_is_read(
    value: str, refused: str, folder: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        made(folder, value)

    assert refused in str(caught.value)
    assert "checks.yaml:3:5: checks[0].python" in str(caught.value)
