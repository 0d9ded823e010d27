"""No model and no dataset brings code of its own: every loader is told so."""

import ast
from pathlib import Path

import pytest

from assay.train import trl_trainer

SOURCE = Path(__file__).parents[1] / "src" / "assay"
LOADERS = {"from_pretrained", "load_dataset", "from_config"}


def trusting(source: str) -> list[int]:
    """The lines with a loader that is not told `trust_remote_code=False`."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [call.lineno for call in calls if _name(call) in LOADERS and not _distrusts(call)]


def _name(call: ast.Call) -> str:
    called = call.func
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _distrusts(call: ast.Call) -> bool:
    return any(
        each.arg == "trust_remote_code"
        and isinstance(each.value, ast.Constant)
        and each.value.value is False
        for each in call.keywords
    )


def test_every_loader_is_told_to_run_no_code_of_others() -> None:
    found = {
        f"{path.relative_to(SOURCE)}:{line}"
        for path in SOURCE.rglob("*.py")
        for line in trusting(path.read_text("utf-8"))
    }

    assert found == set()


def test_there_are_loaders_to_look_at() -> None:
    told = [path for path in SOURCE.rglob("*.py") if "trust_remote_code=False" in path.read_text()]

    assert len(told) >= 3


@pytest.mark.parametrize(
    "source",
    [
        "AutoModel.from_pretrained(name)",
        "load_dataset(name, trust_remote_code=True)",
        "datasets.load_dataset(name, trust_remote_code=flag)",
    ],
)
def test_a_loader_that_is_not_told_is_found(source: str) -> None:
    assert trusting(source) == [1]


def test_trl_is_told_as_well() -> None:
    assert trl_trainer._FIXED_ARGUMENTS["trust_remote_code"] is False
