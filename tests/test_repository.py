"""What holds for the repository as a whole: its papers, its fragments, its version."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import assay
from assay.cli.quickstart import FOLDER
from assay.errors import DISTRIBUTION, install_command
from assay.types import Sample
from commands import call_main

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "assay"

MADE_BY_TOOLS = re.compile(
    r"\.git|\.venv[\w-]*|\.npm-agents"
    r"|\.\w+_cache|\.coverage.*|\.hypothesis|\.assay|__pycache__|assay-quickstart|build|dist|site"
    r"|.*\.egg-info"
)
MACHINE_PATH = re.compile(r"(?<![\w.-])/(?:work|root|home)/")
REGISTRY = re.compile(
    r"pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|docker\.io|ghcr\.io|quay\.io"
    r"|anaconda\.org|download\.pytorch\.org|jfrog\.io|--(?:extra-)?index-url\b",
    re.IGNORECASE,
)
FRAGMENT = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\.(?:added|changed|fixed|removed)\.md")


def files_under(root: Path) -> Iterator[Path]:
    """Every file that belongs to the repository, rather than to a tool that was run in it."""
    for path in sorted(root.iterdir()):
        if MADE_BY_TOOLS.fullmatch(path.name):
            continue
        if path.is_dir():
            yield from files_under(path)
        else:
            yield path


def private_places(root: Path) -> list[str]:
    """Lines that only make sense on one machine or behind one mirror."""
    found = []
    for path in files_under(root):
        lines = path.read_text("utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines, start=1):
            if match := MACHINE_PATH.search(line) or REGISTRY.search(line):
                found.append(f"{path.relative_to(root)}:{number}: {match[0]}")
    return found


def units_of(source: Path) -> set[str]:
    """Units as the table names them: `types/`, `errors.py`. Dunder files are no units."""
    return {
        f"{path.name}/" if path.is_dir() else path.name
        for path in source.iterdir()
        if not path.name.startswith("_") and (path.suffix == ".py" or any(path.glob("*.py")))
    }


def table_mistakes(page: str, root: Path) -> list[str]:
    """Units without a line in the table, and paths on the page that lead nowhere."""
    source = root / "src" / "assay"
    listed = set(re.findall(r"^\| \d \| `([^`]+)` \|", page, re.MULTILINE))
    missing = [f"{unit} is not in the table" for unit in sorted(units_of(source) - listed)]
    return missing + lost_paths(page, root)


def lost_paths(page: str, root: Path) -> list[str]:
    """Paths on a page that lead nowhere."""
    named = dict.fromkeys(re.findall(r"`([\w./<>-]+(?:/|\.\w+))`", page))
    source = root / "src" / "assay"
    return [f"{path} does not exist" for path in named if not _exists(path, root, source)]


def _exists(path: str, root: Path, source: Path) -> bool:
    """A path is written from the root or from the package; `<name>` stands for any name."""
    pattern = re.sub(r"<\w+>", "*", path).rstrip("/")
    return any(any(base.glob(pattern)) for base in (root, source))


def fragment_mistakes(folder: Path) -> list[str]:
    """Changelog fragments that are misnamed, empty, or more than one paragraph."""
    mistakes = []
    # A release takes all fragments, and git keeps no empty folder.
    for path in sorted(folder.iterdir()) if folder.exists() else ():
        text = path.read_text("utf-8").strip()
        if not FRAGMENT.fullmatch(path.name):
            mistakes.append(f"{path.name}: name it <slug>.<added|changed|fixed|removed>.md")
        elif not text.endswith(".") or "\n\n" in text:
            mistakes.append(f"{path.name}: one sentence on what a user can do or observe")
    return mistakes


def index_mistakes(docs: Path) -> list[str]:
    """Pages that the index does not link exactly once, and links of it that lead nowhere."""
    index = docs / "index.md"
    links = re.findall(r"\]\(([^)#:]+\.md)\)", index.read_text("utf-8"))
    pages = [path.name for path in sorted(docs.glob("*.md")) if path != index]
    return [
        *(
            f"{page} is linked {links.count(page)} times"
            for page in pages
            if links.count(page) != 1
        ),
        *(f"{link} does not exist" for link in links if not (docs / link).is_file()),
    ]


def test_the_index_links_every_page_once() -> None:
    assert index_mistakes(ROOT / "docs") == []
    assert "(docs/index.md)" in (ROOT / "README.md").read_text("utf-8")


def test_the_install_page_lists_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = set(project["optional-dependencies"]) - {"dev", "test"}
    _, _, below = (ROOT / "docs" / "install.md").read_text("utf-8").partition("## Extras")
    table, _, _ = below.partition("\n## ")

    rows = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)

    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == extras


def test_the_architecture_page_names_every_unit_and_only_what_exists() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")

    assert table_mistakes(page, ROOT) == []


def units_without_a_row(page: str, source: Path) -> list[str]:
    """Units of which the table "to change X, open Y" opens no file."""
    table = page.partition("## To change X, open Y")[2]
    opened = re.findall(r"^\|[^|]*\|([^|]*)\|", table, re.MULTILINE)
    paths = re.findall(r"`([^`]+)`", " ".join(opened))
    return [unit for unit in sorted(units_of(source)) if not any(p.startswith(unit) for p in paths)]


def test_the_architecture_page_leads_into_every_unit() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")

    assert units_without_a_row(page, SOURCE) == []


def test_a_unit_that_no_row_opens_is_caught(tmp_path: Path) -> None:
    repository(tmp_path, "errors.py", "stats/gate_verdict.py", "web/page.py")
    page = "`web/`\n## To change X, open Y\n| gates | `stats/gate_verdict.py` | `errors.py` |\n"

    assert units_without_a_row(page, tmp_path) == ["errors.py", "web/"]


RECIPES = (
    "a provider with its own API|a kind of agent|an environment|a scorer|a check rule"
    "|a session source|an export format|a command|a page of the viewer|a page of the docs"
)


def test_the_recipes_for_contributors_name_files_and_a_test_that_exist() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    recipes = page.partition("## Recipes")[2].partition("\n## ")[0]

    assert lost_paths(recipes, ROOT) == []
    rows = [line.split(" | ") for line in recipes.splitlines() if line.startswith("| ")]
    tests = {row[0].removeprefix("| "): row[2] for row in rows if len(row) == 4}
    for recipe in RECIPES.split("|"):
        assert "`tests/" in tests[recipe]


def test_the_path_of_a_sample_has_the_fields_of_a_recorded_one(tmp_path: Path) -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    example = re.search(r"```json\n(.*?)\n```", page, re.DOTALL)
    table = page.partition("| field | written by |")[2].partition("\n\n")[0]
    shown = re.findall(r"`(\w+)`", "".join(re.findall(r"^\|([^|]+)\|", table, re.MULTILINE)))
    assert example is not None
    (tmp_path / "line.jsonl").write_text(example[1])
    words = ("eval", "line.jsonl", "--agent", "mock:echo", "--scorer", "exact_answer")
    call_main(tmp_path, *words)
    call_main(tmp_path, "export", "sample", "latest", "-o", "sample.jsonl")

    recorded = json.loads((tmp_path / "sample.jsonl").read_text("utf-8"))

    assert set(recorded) - set(shown) == set()
    assert set(shown) - set(Sample.model_fields) == set()


def test_hooks_run_programs_and_tests_of_the_repository_alone() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))

    # Hooks of other repositories would be downloaded, in versions that differ from those of CI.
    (repository,) = config["repos"]
    assert repository["repo"] == "local"
    for hook in repository["hooks"]:
        program, *words = hook["entry"].split()
        assert program in (".venv/bin/ruff", ".venv/bin/python")
        assert [word for word in words if word.endswith(".py") and not (ROOT / word).exists()] == []


def test_templates_of_issues_ask_for_something() -> None:
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text("utf-8"))
        if path.stem != "config":
            assert {"name", "description", "body"} <= form.keys()
            assert any(part.get("validations", {}).get("required") for part in form["body"])


def test_changelog_fragments_are_named_and_worded_as_agreed() -> None:
    assert fragment_mistakes(ROOT / "changelog.d") == []


def test_no_file_names_a_machine_or_a_registry() -> None:
    assert private_places(ROOT) == []


def test_the_version_is_the_packaged_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    assert assay.__version__ == project["version"]


def test_hints_name_the_packaged_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    assert project["name"] == DISTRIBUTION
    assert install_command("hf") == f"pip install '{project['name']}[hf]'"


def repository(folder: Path, *paths: str) -> Path:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).touch()
    return folder


def test_a_unit_missing_from_the_table_is_caught(tmp_path: Path) -> None:
    repository(
        tmp_path, "src/assay/errors.py", "src/assay/stats/gate_verdict.py", "src/assay/__main__.py"
    )

    assert table_mistakes("| 0 | `errors.py` | all |", tmp_path) == ["stats/ is not in the table"]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("[A](a.md)", "b.md is linked 0 times"),
        ("[A](a.md), [B](b.md) and [again](b.md)", "b.md is linked 2 times"),
        ("[A](a.md), [B](b.md), [C](c.md)", "c.md does not exist"),
    ],
)
def test_a_page_that_the_index_misses_is_caught(text: str, mistake: str, tmp_path: Path) -> None:
    repository(tmp_path, "a.md", "b.md")
    (tmp_path / "index.md").write_text(text)

    assert index_mistakes(tmp_path) == [mistake]


@pytest.mark.parametrize(
    "path",
    ["errors.py", "stats/", "stats/<name>.py", "docs/page.md", "src/assay/stats/gate_verdict.py"],
)
def test_a_path_that_leads_nowhere_is_caught(path: str, tmp_path: Path) -> None:
    repository(tmp_path, "src/assay/__init__.py")
    assert table_mistakes(f"see `{path}`", tmp_path) == [f"{path} does not exist"]

    whole = repository(
        tmp_path, "docs/page.md", "src/assay/errors.py", "src/assay/stats/gate_verdict.py"
    )
    listed = "| 0 | `errors.py` | a |\n| 3 | `stats/` | b |\n"

    assert table_mistakes(f"{listed} see `{path}`", whole) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Quick.added.md", "Works."),
        ("quick.new.md", "Works."),
        ("quick.added.txt", "Works."),
        ("added.md", "Works."),
        ("quick.added.md", ""),
        ("quick.added.md", "Works"),
        ("quick.added.md", "Works.\n\nAnd more."),
    ],
)
def test_a_bad_fragment_is_caught(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "good-one.fixed.md").write_text("Works.\n")
    (tmp_path / name).write_text(text)

    assert [mistake.partition(":")[0] for mistake in fragment_mistakes(tmp_path)] == [name]


@pytest.mark.parametrize(
    "parts",
    [
        ("x = '/", "home/me/data'"),
        ("file:///", "root/.cache"),
        ("cd /", "work/here"),
        ("https://PyPI", ".org/simple"),
        ("pip install --extra-", "index-url x"),
        ("image: ghcr.", "io/me/it"),
    ],
)
def test_a_private_place_is_caught(parts: tuple[str, str], tmp_path: Path) -> None:
    # Written in two parts, or this file would be caught too.
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("fine\n" + "".join(parts))

    (found,) = private_places(tmp_path)

    assert found.startswith("docs/page.md:2: ")


def test_no_fragments_are_no_mistake(tmp_path: Path) -> None:
    assert fragment_mistakes(tmp_path / "changelog.d") == []


def test_what_tools_leave_behind_is_not_read(tmp_path: Path) -> None:
    for folder in (".git", ".venv", ".mypy_cache", "__pycache__", "assay.egg-info"):
        repository(tmp_path, f"{folder}/file")
    repository(tmp_path, "docs/page.md", ".ci/run")

    assert [path.name for path in files_under(tmp_path)] == ["run", "page.md"]


def test_what_quickstart_writes_is_no_part_of_the_repository() -> None:
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()

    assert f"{FOLDER}/" in ignored
    assert MADE_BY_TOOLS.fullmatch(FOLDER.name)


def test_ordinary_addresses_are_no_private_place(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("https://example.com/work/1 and ./home/index and homework/")

    assert private_places(tmp_path) == []


def test_the_readme_leads_to_the_security_page() -> None:
    page = (ROOT / "SECURITY.md").read_text("utf-8")

    assert "(SECURITY.md)" in (ROOT / "README.md").read_text("utf-8")
    assert [part for part in ("not trusted", "does not guard", "Report") if part not in page] == []
