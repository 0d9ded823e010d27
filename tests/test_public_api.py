"""Every public name, pinned. A change of the surface is a change of the table below."""

import inspect
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from public_names import PUBLIC

SOURCE = Path(__file__).parents[1] / "src" / "assay"


def public_names(module: ModuleType) -> set[str]:
    """`__all__`, or where there is none the public classes and functions defined there."""
    if hasattr(module, "__all__"):
        return set(module.__all__)
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    }


def difference(pinned: str, module: ModuleType) -> list[str]:
    """What the table and the module disagree about, as lines of a diff. Empty when they agree."""
    wanted, found = set(pinned.split()), public_names(module)
    return [
        *(f"+ {module.__name__}.{name}: new; pin it" for name in sorted(found - wanted)),
        *(f"- {module.__name__}.{name}: pinned, but gone" for name in sorted(wanted - found)),
    ]


def unpinned_units(root: Path, table: Mapping[str, str]) -> list[str]:
    """Units of the package that the table says nothing about."""
    units = {
        path.stem
        for path in root.iterdir()
        if not path.name.startswith("_") and (path.suffix == ".py" or any(path.glob("*.py")))
    }
    return sorted(unit for unit in units if f"assay.{unit}" not in table)


def undocumented(name: str, value: object) -> str | None:
    """What is missing from the docstring of a public class or function."""
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return None
    first, _, rest = (value.__doc__ or "").partition("\n")
    if not first.strip() or first.startswith(f"{name}("):
        # A dataclass without a docstring is given its signature as one.
        return f"{name} has no docstring"
    if rest.partition("\n")[0].strip() or not first.rstrip().endswith((".", ":")):
        return f"{name}: the first line of its docstring is not one full sentence: {first!r}"
    return None


@pytest.mark.parametrize("name", PUBLIC)
def test_the_public_names_are_the_pinned_ones(name: str) -> None:
    found = difference(PUBLIC[name], import_module(name))

    assert not found, "\n".join(["the public surface changed:", *found])


def test_every_unit_is_pinned() -> None:
    assert unpinned_units(SOURCE, PUBLIC) == []


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_exists_and_says_what_it_does(name: str) -> None:
    module = import_module(name)

    problems = [undocumented(public, getattr(module, public)) for public in public_names(module)]

    assert not (module.__doc__ is None and public_names(module))
    assert [problem for problem in problems if problem] == []


def test_a_name_offered_twice_is_one_object() -> None:
    table = import_module("assay")

    for name in set(PUBLIC["assay"].split()) - {"__version__"}:
        homes = [
            module
            for unit, names in PUBLIC.items()
            if unit != "assay" and name in names.split()
            for module in [import_module(unit)]
        ]
        assert homes, f"{name} is offered by no unit"
        assert all(getattr(home, name) is getattr(table, name) for home in homes)


def test_the_lazy_table_lists_its_names_and_refuses_others() -> None:
    table = import_module("assay")

    assert set(PUBLIC["assay"].split()) <= set(dir(table))
    with pytest.raises(AttributeError, match="module 'assay' has no attribute 'Sampel'"):
        _ = table.Sampel


def module_with(**names: object) -> ModuleType:
    module = ModuleType("assay.made_up", "A module for these tests.")
    vars(module).update(names)
    return module


def test_a_changed_table_is_caught_in_both_directions() -> None:
    module = module_with(__all__=["kept", "fresh"])

    assert difference("kept gone", module) == [
        "+ assay.made_up.fresh: new; pin it",
        "- assay.made_up.gone: pinned, but gone",
    ]
    assert difference("fresh kept", module) == []


def test_a_module_without_all_is_read_by_what_it_defines() -> None:
    own = type("Own", (), {"__module__": "assay.made_up"})
    private = type("_Private", (), {"__module__": "assay.made_up"})

    found = public_names(module_with(Own=own, _Private=private, Path=Path, LIMIT=3))

    assert found == {"Own"}


def test_a_unit_missing_from_the_table_is_caught(tmp_path: Path) -> None:
    (tmp_path / "evaluation.py").touch()
    (tmp_path / "stats").mkdir()
    (tmp_path / "stats" / "__init__.py").touch()
    (tmp_path / "__pycache__").mkdir()

    assert unpinned_units(tmp_path, {"assay.stats": ""}) == ["evaluation"]


def test_a_missing_or_broken_docstring_is_caught() -> None:
    def silent() -> None: ...

    def half() -> None:
        """Opens the"""

    def wrapped() -> None:
        """Opens the file
        and closes it.
        """

    assert undocumented("silent", silent) == "silent has no docstring"
    assert "not one full sentence" in str(undocumented("half", half))
    assert "not one full sentence" in str(undocumented("wrapped", wrapped))
    assert undocumented("LIMIT", 3) is None
