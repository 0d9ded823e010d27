"""Names and texts use the words of the field: functions are verbs. Proven to say no."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "assay"
PAGES = sorted(
    page
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "llms.txt")
    # Pages made from docstrings, which are read as texts.
    if page.name not in ("CHANGELOG.md", "reference.md") and page.parent.name != "api"
)

DIALECT = re.compile(
    r"\b(?:(?:go(?:es|ing|ne)?|went) on|(?:is|are) no (?!longer|more|later|less)[a-z]+"
    r"|stands?|tells?|told"
    r"|says?|said|nobody|somebody|whoever|held to|holds? (?:\w+ ){1,3}to|had of|lets? go"
    r"|is there already|what (?:is|was|are|were|of|it|they))\b",
    re.IGNORECASE,
)
"""Turns of phrase that readers have to translate: resume, contains, is not, is located, reports."""

SENT_TO_MODELS = (
    "certify/judge_client.py",
    "scorers/judges/judge_prompt.py",
)
"""Prompts: a change of their words would change what judges answer."""

WRITTEN_VALUES = ("could not tell", "too few to tell")
"""Values of fields in files that other programs read."""

PAGE_DIALECT = re.compile(
    r"\b(?:(?:go(?:es|ing|ne)?|went) on|stands?|tells?|told|says?|said|nobody|somebody|whoever"
    r"|held to|holds? (?:\w+ ){1,3}to|had of|is there already)\b",
    re.IGNORECASE,
)
"""The same for pages, where a clause such as "what is trusted" is ordinary English."""

OTHERS_WORDS = re.compile(r"`[^`]*`|\*\*too few to tell\*\*|\"[^\"]*\"")
"""Code, labels of the output and quotes: a page shows them as they are."""

IRREGULAR = frozenset(
    "begun bound broken brought built chosen done drawn found given gone heard held hidden kept "
    "known laid left lost made meant met paid said seen sent shown spent spoken taken told "
    "written".split()
)
NOT_PARTICIPLES = frozenset("embed feed need seed speed".split())


def texts(tree: ast.Module) -> Iterator[ast.Constant]:
    """Every string with more than one word: messages, help texts and docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node


def dialect(path: str, code: str) -> list[str]:
    """Where a text uses a turn of phrase that is not the field's."""
    return [
        f"{path}:{node.lineno}: {match[0]!r} in {' '.join(str(node.value).split())[:80]!r}"
        for node in texts(ast.parse(code))
        if path not in SENT_TO_MODELS and node.value not in WRITTEN_VALUES
        for match in DIALECT.finditer(str(node.value))
    ]


def page_dialect(name: str, page: str) -> list[str]:
    """Where the prose of a page, outside of code, uses a turn of phrase that is not the field's."""
    found, fence = [], None
    for number, line in enumerate(page.splitlines(), start=1):
        ticks = re.match(r"\s*(`{3,}|~{3,})", line)
        if fence is not None:
            fence = None if line.strip() == fence else fence
        elif ticks:
            fence = ticks[1]
        elif match := PAGE_DIALECT.search(OTHERS_WORDS.sub("", line)):
            found.append(f"{name}:{number}: {match[0]!r} in {line.strip()[:80]!r}")
    return found


def is_participle(name: str) -> bool:
    word = name.strip("_").split("_")[0]
    return word in IRREGULAR or (word.endswith("ed") and word not in NOT_PARTICIPLES)


def functions(code: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions and methods. Properties and validators are named after their value."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not any(
            "property" in ast.unparse(each) or "validator" in ast.unparse(each)
            for each in node.decorator_list
        ):
            yield node


def shared_names(modules: dict[str, str]) -> list[str]:
    """The top-level functions and classes that several modules define, by their code."""
    homes: dict[str, list[str]] = {}
    for path, code in modules.items():
        for node in ast.parse(code).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                homes.setdefault(node.name, []).append(path)
    # Every module of a command has these two: they are its interface.
    return [
        f"{name}: {', '.join(paths)}"
        for name, paths in sorted(homes.items())
        if len(paths) > 1 and name not in ("configure", "main")
    ]


def test_texts_use_the_words_of_the_field() -> None:
    found = [
        problem
        for path in sorted(SOURCE.rglob("*.py"))
        for problem in dialect(path.relative_to(SOURCE).as_posix(), path.read_text("utf-8"))
    ]

    assert found == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_use_the_words_of_the_field(page: Path) -> None:
    assert page_dialect(page.name, page.read_text("utf-8")) == []


def test_changelog_fragments_use_the_words_of_the_field() -> None:
    found = [
        problem
        for path in sorted((ROOT / "changelog.d").glob("*.md"))
        for problem in page_dialect(path.name, path.read_text("utf-8"))
    ]

    assert found == []


def test_dialect_is_caught_on_a_page_and_not_in_its_code() -> None:
    page = "# A page\n\n```text\nit says so\n```\n\nA `says` of code.\n\nThe report says so.\n"

    assert page_dialect("a.md", page) == ["a.md:9: 'says' in 'The report says so.'"]


def test_functions_are_verbs() -> None:
    names = [
        node.name for path in SOURCE.rglob("*.py") for node in functions(path.read_text("utf-8"))
    ]
    participles = [name for name in names if is_participle(name)]

    assert sorted(participles) == []


def test_a_top_level_name_means_one_thing() -> None:
    modules = {
        path.relative_to(SOURCE).as_posix(): path.read_text("utf-8")
        for path in sorted(SOURCE.rglob("*.py"))
    }

    assert shared_names(modules) == []


def test_a_name_with_two_meanings_is_caught() -> None:
    code = "async def read(): ...\nclass Sample:\n    def load(self): ..."
    modules = {"a.py": code, "b.py": "class Sample: ...", "c.py": "def load(): ..."}

    assert shared_names(modules) == ["Sample: a.py, b.py"]


@pytest.mark.parametrize(
    "text",
    [
        "out.jsonl is there already",
        "'x' is no runner",
        "nobody answers",
        "go on with a run",
        "what is missing",
        "the file says otherwise",
        "the key stands in the header",
        "hold a run to a minimum",
    ],
)
def test_dialect_is_caught(text: str) -> None:
    assert len(dialect("a.py", f"raise ValueError({text!r})")) == 1


def test_plain_texts_pass() -> None:
    plain = "out.jsonl already exists; pass --force to overwrite it. It is no longer used."

    assert dialect("a.py", f"raise ValueError({plain!r})") == []


@pytest.mark.parametrize("name", ["_parsed", "begun", "held_out", "_checked_headers"])
def test_a_participle_is_caught(name: str) -> None:
    assert is_participle(name)


@pytest.mark.parametrize("name", ["parse", "seed_all", "_need", "check_headers", "is_export"])
def test_a_verb_passes(name: str) -> None:
    assert not is_participle(name)
