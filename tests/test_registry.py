"""Plug-ins by entry point: found, listed, and refused with the package that registers them."""

import subprocess
import sys
from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.registry import (
    Plugin,
    PluginEntry,
    PluginGroup,
    find_plugin,
    list_plugin_names,
    list_plugins,
)
from plugin_package import install_package

SCORERS: PluginGroup = "assay.scorers"


def load(name: str) -> Plugin | None:
    return find_plugin(SCORERS, name)


def test_a_plugin_is_found_by_its_name_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_package(tmp_path, monkeypatch, {"scorers.polite": "acme_assay:VALUE"}, code="VALUE = 7")

    assert find_plugin(SCORERS, "polite") == Plugin(SCORERS, "polite", 7, "acme-assay 1.0")
    assert list_plugin_names(SCORERS) == ["polite"]
    assert find_plugin(SCORERS, "rude") is None
    assert find_plugin("assay.agents", "polite") is None


def test_a_broken_import_is_an_error_of_its_own_name_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_package(
        tmp_path, monkeypatch, {"scorers.broken": "acme_assay:f"}, code="import no_such_module"
    )
    install_package(
        tmp_path, monkeypatch, {"scorers.fine": "other_assay:f"}, name="other-assay", code="f = 1"
    )

    found = find_plugin(SCORERS, "fine")
    with pytest.raises(ConfigError) as refused:
        find_plugin(SCORERS, "broken")

    assert found is not None
    assert found.value == 1
    assert refused.value.message == (
        "the entry point `broken = acme_assay:f` of acme-assay 1.0 cannot be imported: "
        "ModuleNotFoundError: No module named 'no_such_module'"
    )
    assert [(each.name, each.error is None) for each in list_plugins(SCORERS, (), load)] == [
        ("fine", True),
        ("broken", False),
    ]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("", "AttributeError: module 'acme_assay' has no attribute 'f'"),
        ("def", "SyntaxError: "),
    ],
)
def test_a_module_that_cannot_be_used_is_refused_with_its_reason(
    code: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_package(tmp_path, monkeypatch, {"scorers.broken": "acme_assay:f"}, code=code)

    with pytest.raises(ConfigError, match=reason):
        find_plugin(SCORERS, "broken")


def test_an_interrupted_import_is_not_an_error_of_the_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "raise KeyboardInterrupt"
    install_package(tmp_path, monkeypatch, {"scorers.broken": "acme_assay:f"}, code=code)

    with pytest.raises(KeyboardInterrupt):
        find_plugin(SCORERS, "broken")


def test_a_name_of_two_packages_is_refused_with_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_package(tmp_path, monkeypatch, {"scorers.polite": "acme_assay:f"}, code="f = 1")
    install_package(
        tmp_path, monkeypatch, {"scorers.polite": "other_assay:f"}, name="other-assay", code="f = 2"
    )

    with pytest.raises(ConfigError, match=r"other-assay 1\.0 and acme-assay 1\.0"):
        find_plugin(SCORERS, "polite")

    assert list_plugin_names(SCORERS) == ["polite"]
    listed = list_plugins(SCORERS, (), load)
    assert [each.origin for each in listed] == ["other-assay 1.0", "acme-assay 1.0"]
    assert all("is registered by" in str(each.error) for each in listed)


def test_a_name_of_assay_is_not_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "raise AssertionError('it was imported')"
    install_package(tmp_path, monkeypatch, {"scorers.exact_answer": "acme_assay:f"}, code=code)

    assert list_plugins(SCORERS, ["exact_answer"], load) == [
        PluginEntry("exact_answer", "assay"),
        PluginEntry(
            "exact_answer",
            "acme-assay 1.0",
            "the name 'exact_answer' belongs to assay; the package must choose another",
        ),
    ]


def test_a_package_without_readable_metadata_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_package(tmp_path, monkeypatch, {"scorers.polite": "acme_assay:f"}, code="f = 1")
    next(tmp_path.rglob("METADATA")).write_text("")

    found = find_plugin(SCORERS, "polite")

    assert found is not None
    assert found.origin == "an unnamed package"


def test_a_package_in_a_folder_that_is_added_later_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_plugin(SCORERS, "polite") is None

    install_package(tmp_path, monkeypatch, {"scorers.polite": "acme_assay:f"}, code="f = 1")

    assert find_plugin(SCORERS, "polite") is not None


def test_packages_are_read_once_and_not_before_a_name_is_used() -> None:
    source = Path(__file__).parents[1] / "src"
    code = (
        f"import sys; sys.path.insert(0, {str(source)!r})\n"
        "import assay.registry as registry\n"
        "assert 'importlib.metadata' not in sys.modules\n"
        "registry.find_plugin('assay.scorers', 'polite')\n"
        "assert 'importlib.metadata' in sys.modules\n"
        "first = registry._find_group_entries('assay.scorers')\n"
        "assert registry._find_group_entries('assay.scorers') is first\n"
    )

    # Without `site`: the import hooks of installed packages load the module themselves.
    subprocess.run([sys.executable, "-S", "-c", code], check=True, timeout=120)
