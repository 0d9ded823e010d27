"""How changelog fragments become a section of CHANGELOG.md."""

import runpy
from pathlib import Path

import pytest

main = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "make_changelog.py"))["main"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n')
    (tmp_path / "changelog.d").mkdir()
    return tmp_path


def test_fragments_become_the_newest_section_and_are_removed(project: Path) -> None:
    (project / "CHANGELOG.md").write_text("# Changelog\n\n## 0.1.0 (2026-01-01)\n")
    (project / "changelog.d" / "b.fixed.md").write_text("A stop is\na stop.\n")
    (project / "changelog.d" / "a.added.md").write_text("Runs resume.\n")

    main(project)

    head, added, fixed, older = (project / "CHANGELOG.md").read_text().split("\n#")[1:]
    assert head.startswith("# 0.2.0 (")
    assert added == "## Added\n\n- Runs resume.\n"
    assert fixed == "## Fixed\n\n- A stop is a stop.\n"
    assert older == "# 0.1.0 (2026-01-01)\n"
    assert not list((project / "changelog.d").iterdir())


def test_later_fragments_join_the_section_of_their_version(project: Path) -> None:
    (project / "CHANGELOG.md").write_text("# Changelog\n\n## 0.1.0 (2026-01-01)\n\n- Old.\n")
    (project / "changelog.d" / "a.added.md").write_text("Runs resume.\n")
    (project / "changelog.d" / "c.removed.md").write_text("Nothing.\n")
    main(project)
    (project / "changelog.d" / "a.added.md").write_text("Runs compare.\n")
    (project / "changelog.d" / "b.fixed.md").write_text("A stop is a stop.\n")

    main(project)

    page = (project / "CHANGELOG.md").read_text()
    assert page.count("## 0.2.0 (") == 1
    assert "### Added\n\n- Runs resume.\n- Runs compare.\n\n### Fixed\n\n- A stop" in page
    assert page.endswith("### Removed\n\n- Nothing.\n\n## 0.1.0 (2026-01-01)\n\n- Old.\n")


def test_without_fragments_nothing_is_written(project: Path) -> None:
    with pytest.raises(SystemExit, match="nothing to assemble"):
        main(project)

    assert not (project / "CHANGELOG.md").exists()
