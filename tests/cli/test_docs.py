"""`assay docs`: which file is a page, when it is opened, and what is printed instead."""

import json
from pathlib import Path

import pytest

from assay.cli import docs, main
from assay.cli.docs import find_page, find_page_list, read_pages
from assay.errors import ConfigError

LISTING = """# assay

Start with [SKILL.md](SKILL.md): for agents.

## Guides

- [Datasets](docs/datasets.md): read files as samples
- [The data model](docs/data-model.md): types and fields

- [Tutorial](docs/tutorials/datasets.md): from an empty folder

## Python API

- [assay.runner](docs/api/assay.runner.md): evaluation
- [Architecture](ARCHITECTURE.md): the units
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The root of a clone with four pages that are not built."""
    (tmp_path / "docs" / "api").mkdir(parents=True)
    (tmp_path / "llms.txt").write_text(LISTING)
    (tmp_path / "docs" / "datasets.md").write_text("# Datasets\n\nRead files.\n")
    return tmp_path


def build(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("<html>")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that a browser was asked to open."""
    addresses: list[str] = []
    monkeypatch.setattr("webbrowser.open", addresses.append)
    return addresses


def test_a_clone_has_markdown_until_its_pages_are_built(clone: Path) -> None:
    before = read_pages(clone / "llms.txt")["datasets"]
    build(clone, "site/datasets.html", "site/api/assay.runner.html", "site/architecture.html")
    pages = read_pages(clone / "llms.txt")

    assert (before.path, before.html) == (clone / "docs" / "datasets.md", None)
    assert pages["datasets"].path == clone / "site" / "datasets.html"
    assert pages["assay.runner"].path == clone / "site" / "api" / "assay.runner.html"
    assert pages["architecture"].path == clone / "site" / "architecture.html"
    assert pages["architecture"].text == clone / "ARCHITECTURE.md"
    assert next(iter(pages)) == "index"
    assert pages["tutorials/datasets"].path == clone / "docs" / "tutorials" / "datasets.md"


def test_an_installed_package_has_its_pages_inside(tmp_path: Path) -> None:
    package = tmp_path / "lib" / "site-packages" / "assay"
    build(package / "site", "datasets.html", "index.html")
    (package / "site" / "llms.txt").write_text(LISTING.replace("](docs/", "]("))

    pages = read_pages(find_page_list(package))

    assert pages["datasets"].path == package / "site" / "datasets.html"
    assert pages["datasets"].text == package / "site" / "datasets.md"
    assert pages["index"].path == package / "site" / "index.html"


def test_an_installation_without_pages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not part of this installation"):
        find_page_list(tmp_path / "lib" / "assay")


@pytest.mark.parametrize("name", ["datasets", "Datasets", "datasets.md", "docs/datasets.html"])
def test_a_page_is_found_by_its_name_or_its_file(name: str, clone: Path) -> None:
    assert find_page(read_pages(clone / "llms.txt"), name).title == "Datasets"


def test_an_unknown_page_is_refused_with_those_that_are_near(clone: Path) -> None:
    with pytest.raises(ConfigError, match="no page named 'dataset'") as caught:
        find_page(read_pages(clone / "llms.txt"), "dataset")

    assert str(caught.value.hint).startswith("did you mean `datasets` or ")


def test_the_page_opens_where_a_browser_can_appear(
    opened: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = docs.DocsPage("a", "A", "Start", "words", Path("/x/a.md"), Path("/x/a.html"))
    monkeypatch.setattr(docs, "read_pages", lambda listing: {"a": page})
    monkeypatch.setattr(docs, "has_browser", lambda: True)

    assert main(["docs", "a"]) == 0
    assert main(["docs", "a", "--no-open"]) == 0
    assert main(["docs", "a", "--json"]) == 0

    assert opened == ["file:///x/a.html"]
    assert capsys.readouterr().out.startswith("/x/a.html\n/x/a.html\n{")


def test_without_a_display_the_path_is_printed(
    opened: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["docs", "datasets"]) == 0

    assert opened == []
    assert Path(capsys.readouterr().out.strip()).stem == "datasets"


def test_the_text_of_a_page_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "datasets", "--text"]) == 0

    assert capsys.readouterr().out.startswith("# Datasets\n")


def test_pages_are_listed_by_section(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "--list"]) == 0
    printed = capsys.readouterr().out
    assert main(["docs", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["pages"]

    assert printed.startswith("Start\n  index ")
    assert "\nGuides\n  datasets " in printed
    assert [page["page"] for page in listed][:2] == ["index", "install"]
    assert {"section", "title", "summary", "text", "html"} <= listed[0].keys()


def test_an_unknown_page_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "no-such-page"]) == 2

    assert "assay docs: no page named 'no-such-page'" in capsys.readouterr().err
