"""The documentation as a whole: links, spelling, generated pages, the site and the wheel."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import make_commands
import make_errors
import make_llms
import make_schema
from assay.cli import COMMANDS
from view_fixtures import WatchedPage

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), ROOT / "llms.txt", *sorted(DOCS.rglob("*.md"))]
SPELLED = ("README.md", "SKILL.md", "llms.txt", "docs", "src", "examples", "changelog.d")

_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
_CODE = re.compile(r"(?P<ticks>`+).*?(?P=ticks)", re.DOTALL)
_FENCED = re.compile(r"^ *(?P<fence>`{3,}|~{3,}).*?^ *(?P=fence)`* *$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#+ +(?P<text>.+?)\s*$", re.MULTILINE)
_DOCS_HINT = re.compile(r"`assay docs (?P<page>[a-z][\w.-]*)")


def read_anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as repositories and the site make them."""
    anchors: set[str] = set()
    for heading in _HEADING.finditer(_FENCED.sub("", page)):
        text = _LINK.sub("]", heading["text"].replace("\\", ""))
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        number = 1
        unique = slug
        while unique in anchors:
            unique, number = f"{slug}-{number}", number + 1
        anchors.add(unique)
    return anchors


def broken_links(path: Path) -> Iterator[str]:
    """Links of a page to files and headings that do not exist, and malformed addresses."""
    text = path.read_text("utf-8")
    for link in _LINK.finditer(_CODE.sub("", _FENCED.sub("", text))):
        target = link["target"]
        parts = urlsplit(target)
        if parts.scheme or parts.netloc:
            # There is no network in tests: an address is only checked for its form.
            if parts.scheme not in ("http", "https") or "." not in parts.netloc:
                yield f"{path.name}: {target} is not an address"
            continue
        file = (path.parent / parts.path).resolve() if parts.path else path
        if not file.exists():
            yield f"{path.name}: {target} does not exist"
        elif parts.fragment and parts.fragment not in read_anchors(file.read_text("utf-8")):
            yield f"{path.name}: {target} has no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("[x](gone.md)", "gone.md does not exist"),
        ("[x](#gone)", "#gone has no such heading"),
        ("[x](page.md#a-heading-2)", "page.md#a-heading-2 has no such heading"),
        ("[x](ftp://example.com/x)", "ftp://example.com/x is not an address"),
        ("[x](https://nowhere)", "https://nowhere is not an address"),
    ],
)
def test_a_broken_link_is_caught(link: str, problem: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A heading\n\n## A `heading`\n\n{link}\n")

    assert list(broken_links(page)) == [f"page.md: {problem}"]


def test_links_in_code_are_not_followed_and_good_links_pass(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A heading\n\n# A heading\n\n`[x](gone.md)`\n\n"
        "```text\n[x](gone.md)\n# No heading\n```\n\n"
        "[a](#a-heading-1), [b](page.md), [c](https://example.com/x#y)\n"
    )

    assert list(broken_links(page)) == []


def check_spelling(folder: Path, *paths: str) -> str:
    """The misspelled words, one on each line, as codespell finds them."""
    pytest.importorskip("codespell_lib", reason="of the extra `dev`")
    settings = ("--toml", str(ROOT / "pyproject.toml"))
    command = [sys.executable, "-m", "codespell_lib", *settings, *paths]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout


def test_words_are_spelled_correctly() -> None:
    assert check_spelling(ROOT, *SPELLED) == ""


def test_a_misspelled_word_is_caught_and_words_of_the_field_are_not(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("A rollout has logprobs, a rubric and a baseline.\n")
    assert check_spelling(tmp_path, "page.md") == ""

    (tmp_path / "page.md").write_text("Two seperate agents.\n")
    assert "seperate ==> separate" in check_spelling(tmp_path, "page.md")


def test_the_page_of_commands_has_the_help_of_every_command_and_action() -> None:
    page = (DOCS / "commands.md").read_text("utf-8")

    assert make_commands.list_missing(page) == []
    assert make_commands.fill_page(page) == page, "run `make reference`"


def test_a_command_without_its_help_is_caught() -> None:
    page = (DOCS / "commands.md").read_text("utf-8")

    assert make_commands.list_missing(page.replace("$ assay runs wait --help", "")) == ["runs wait"]


def test_generated_pages_are_current() -> None:
    made = {
        DOCS / "store-schema.md": make_schema.build_page(),
        DOCS / "errors.md": make_errors.build_page(),
        ROOT / "llms.txt": make_llms.build_list(),
    }

    written = {path: path.read_text("utf-8") for path in made}
    assert written == made, "run `make reference`"


def test_every_message_of_the_code_is_listed_with_its_hint() -> None:
    messages = make_errors.build_messages()

    line = "| the scorer returned a … | `ScorerFault` "
    assert f"{line}| return an EvaluateResult, a number or a bool |" in messages


def test_the_list_for_agents_has_every_page_of_the_index_and_of_the_api() -> None:
    listed = set(re.findall(r"\]\(docs/([\w./-]+)\)", make_llms.build_list()))

    written = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    # Pages of tutorials are listed once the index has them.
    assert {page for page in written if "/" not in page} - listed == {"index.md"}
    assert {f"api/{path.name}" for path in (DOCS / "api").iterdir()} <= listed


def test_tutorials_are_listed_from_their_own_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_llms, "DOCS", tmp_path)
    assert make_llms.read_tutorials() == []
    (tmp_path / "tutorials").mkdir()
    (tmp_path / "tutorials" / "index.md").write_text(
        "| tutorial | time | what you have |\n|---|---|---|\n"
        "| [A gate](ci-gate.md) | 10 minutes | a test that fails |\n"
    )

    assert [tuple(entry) for entry in make_llms.read_tutorials()] == [
        ("Tutorials", "A gate", "tutorials/ci-gate.md", "a test that fails")
    ]


def test_hints_name_pages_that_exist() -> None:
    sources = {path: path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py")}
    named = {hint["page"] for text in sources.values() for hint in _DOCS_HINT.finditer(text)}

    assert named
    assert [page for page in named if not (DOCS / f"{page}.md").is_file()] == []
    # A path would only lead somewhere in a clone.
    assert [
        str(path) for path, text in sources.items() if re.search(r"docs/[\w-]+\.md", text)
    ] == []


def test_the_skill_names_commands_and_options_that_exist() -> None:
    page = (ROOT / "SKILL.md").read_text("utf-8")
    _, front, _ = page.split("---\n", 2)
    assert re.findall(r"^(\w+): \S", front, re.MULTILINE) == ["name", "description"]

    for command, rest in re.findall(r"assay ([a-z]+)((?: [^`\n|]+)?)", page):
        if command not in COMMANDS:
            continue
        action = re.match(r" (run|grpo)\b", rest)
        shown = make_commands.read_help(command + (action[0] if action else ""))
        unknown = [each for each in re.findall(r"--[a-z-]+", rest) if each not in shown]
        assert unknown == [], f"assay {command}{rest}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built pages."""
    pytest.importorskip("mkdocs", reason="of the extra `docs`")
    folder = tmp_path_factory.mktemp("built") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={"NO_MKDOCS_2_WARNING": "1"}
    )
    assert (built.returncode, built.stderr) == (0, "")
    return folder


@pytest.mark.slow
def test_the_site_has_every_page_in_the_order_of_the_index(site: Path) -> None:
    home = (site / "index.html").read_text("utf-8")
    navigation = home[: home.index("<article")]
    places = [
        navigation.find(f'href="{entry.page.lower().removeprefix("../").removesuffix(".md")}.html"')
        for entry in make_llms.read_index()
    ]

    assert -1 not in places
    assert places == sorted(places)
    assert all((site / page.relative_to(DOCS)).is_file() for page in DOCS.rglob("*.md"))
    assert "](datasets.md)" in (site / "llms.txt").read_text("utf-8")


@pytest.mark.slow
def test_no_page_of_the_site_loads_anything_from_another_host(site: Path) -> None:
    loaded = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?(https?:)?//""")

    pages = {path.name: path.read_text("utf-8") for path in site.rglob("*.html")}
    assert [name for name, text in pages.items() if loaded.search(text)] == []
    assert not re.search(r"url\(['\"]?(https?:)?//", (site / "assets" / "site.css").read_text())


@pytest.mark.slow
def test_the_site_is_small(site: Path) -> None:
    sizes = {path: path.stat().st_size for path in site.rglob("*") if path.is_file()}

    assert not [path for path in sizes if path.suffix == ".map"]
    assert sum(sizes.values()) < 10_000_000


@pytest.mark.slow
def test_search_works_in_pages_that_are_opened_as_files(site: Path, watched: WatchedPage) -> None:
    page = watched.page
    page.goto((site / "index.html").as_uri())
    page.keyboard.press("/")
    page.keyboard.type("what a certificate does not prove")

    found = page.locator(".md-search-result__item").first
    found.wait_for()
    assert "Certification" in found.inner_text()
    assert watched.problems == []
    assert [url for url in watched.requests if not url.startswith(("file:", "data:"))] == []


@pytest.fixture
def list_files() -> Callable[[Path], dict[str, str]]:
    """What the hook of the wheel adds."""
    pytest.importorskip("hatchling", reason="of the extra `dev`")
    from wheel_hook import list_files

    return list_files


def test_a_wheel_has_the_built_pages_or_their_markdown(
    list_files: Callable[[Path], dict[str, str]], tmp_path: Path
) -> None:
    for name in ("docs/index.md", "docs/api/assay.md", "docs/make.py", "llms.txt", "SECURITY.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    markdown = list_files(tmp_path)

    for name in ("llms.txt", "index.html", "search/search_index.js", "search/search_index.json"):
        (tmp_path / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / name).touch()
    built = list_files(tmp_path)

    assert {"assay/site/docs/api/assay.md", "assay/site/llms.txt"} <= set(markdown.values())
    assert "assay/site/docs/make.py" not in markdown.values()
    assert sorted(built.values()) == [
        "assay/site/index.html",
        "assay/site/llms.txt",
        "assay/site/search/search_index.js",
    ]


def test_the_packaged_files_exist(list_files: Callable[[Path], dict[str, str]]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    targets = project["tool"]["hatch"]["build"]["targets"]

    assert (ROOT / targets["wheel"]["hooks"]["custom"]["path"]).is_file()
    assert {"llms.txt", "SKILL.md", "mkdocs.yml"} <= set(targets["sdist"]["include"])
    assert [source for source in list_files(ROOT) if not Path(source).is_file()] == []
