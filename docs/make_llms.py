"""Writes llms.txt from docs/index.md: the pages for coding agents, as llmstxt.org describes.

python docs/make_llms.py
"""

import re
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parent
PAGE = DOCS.parent / "llms.txt"
TUTORIALS = "tutorials/index.md"

HEAD = """# assay

> assay evaluates LLM agents, gates changes in CI, certifies releases, and trains models on the
> same score. It is a Python package (`pip install assay-eval`), the command `assay` and a pytest
> plugin.

Start with [SKILL.md](SKILL.md): the commands, their JSON and their exit statuses, for coding
agents. In an installation, `assay docs PAGE --text` prints a page and `assay docs --list --json`
lists all.
"""

_SECTION = re.compile(r"## (?P<title>.+)")
_ENTRY = re.compile(r"- \[(?P<title>[^]]+)\]\((?P<page>[^)]+\.md)\): (?P<summary>.+)")
_API_ENTRY = re.compile(r"## \[`(?P<unit>[\w.]+)`\]\((?P<page>api/[\w.]+\.md)\)\n\n(?P<summary>.+)")

_TUTORIAL = re.compile(r"\| \[(?P<title>[^]]+)\]\((?P<name>[\w-]+\.md)\) \|.*\| (?P<summary>.+) \|")


class Entry(NamedTuple):
    """A page of the index."""

    section: str
    title: str
    page: str
    summary: str


def read_index() -> list[Entry]:
    """Read the pages of docs/index.md, in order, with the section of each."""
    section, entries = "", []
    for line in (DOCS / "index.md").read_text("utf-8").splitlines():
        if heading := _SECTION.fullmatch(line):
            section = heading["title"]
        elif entry := _ENTRY.fullmatch(line):
            entries.append(Entry(section, *entry.groups()))
    return entries


def read_api_pages() -> list[Entry]:
    """Read the pages of the Python API from the page that lists them."""
    listing = (DOCS / "reference.md").read_text("utf-8")
    return [Entry("Python API", *found) for found in _API_ENTRY.findall(listing)]


def read_tutorials() -> list[Entry]:
    """Read the tutorials from the table of their own page; none where there is no such page."""
    page = DOCS / TUTORIALS
    table = page.read_text("utf-8") if page.is_file() else ""
    rows = _TUTORIAL.findall(table)
    return [
        Entry("Tutorials", title, f"{Path(TUTORIALS).parent}/{name}", summary)
        for title, name, summary in rows
    ]


def build_list() -> str:
    """Build the text of llms.txt."""
    lines, section = [HEAD], ""
    for entry in [*read_index(), *read_tutorials(), *read_api_pages()]:
        if entry.section != section:
            section = entry.section
            lines.append(f"\n## {section}\n\n")
        path = entry.page[3:] if entry.page.startswith("../") else f"docs/{entry.page}"
        lines.append(f"- [{entry.title}]({path}): {entry.summary}\n")
    return "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(build_list(), encoding="utf-8")
