"""Assembles the fragments of changelog.d/ into a section of CHANGELOG.md, and removes them.

python docs/make_changelog.py
"""

import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEAD = "# Changelog\n"
KINDS = ("added", "changed", "fixed", "removed")


def read_fragments(fragments: list[Path]) -> dict[str, list[str]]:
    """The changes by kind, each kind sorted by file name."""
    return {
        kind: [
            " ".join(path.read_text("utf-8").split())
            for path in fragments
            if f".{kind}." in path.name
        ]
        for kind in KINDS
    }


def split_section(page: str, version: str) -> tuple[dict[str, list[str]], str]:
    """The changes that a page already has of a version, by kind, and the rest of the page."""
    section = re.search(rf"\n## {re.escape(version)} \(.*?(?=\n## |\Z)", page, re.DOTALL)
    if section is None:
        return {}, page
    parts = re.split(r"^### (\w+)$", section[0], flags=re.MULTILINE)
    changes = {
        kind.lower(): re.findall(r"^- (.+)$", text, re.MULTILINE)
        for kind, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    return changes, page.replace(section[0], "", 1)


def assemble(changes: dict[str, list[str]], *, version: str, date: str) -> str:
    """The section of one release."""
    section = f"\n## {version} ({date})\n"
    for kind in KINDS:
        if texts := changes.get(kind):
            section += f"\n### {kind.capitalize()}\n\n" + "".join(f"- {text}\n" for text in texts)
    return section


def main(root: Path = ROOT) -> None:
    """Put the section of the packaged version on top of the page, or add to it."""
    page, fragments = root / "CHANGELOG.md", sorted((root / "changelog.d").glob("*.md"))
    if not fragments:
        raise SystemExit("changelog.d contains no fragments: there is nothing to assemble")
    version = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    text = page.read_text("utf-8").removeprefix(HEAD) if page.exists() else ""
    known, older = split_section(text, version)
    new = read_fragments(fragments)
    changes = {kind: known.get(kind, []) + new[kind] for kind in KINDS}
    section = assemble(changes, version=version, date=f"{datetime.now(UTC):%Y-%m-%d}")
    page.write_text(HEAD + section + older, "utf-8")
    for path in fragments:
        path.unlink()


if __name__ == "__main__":
    main()
