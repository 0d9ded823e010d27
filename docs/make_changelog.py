"""Assembles the fragments of changelog.d/ into a section of CHANGELOG.md, and removes them.

python docs/make_changelog.py
"""

import tomllib
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEAD = "# Changelog\n"
KINDS = ("added", "changed", "fixed", "removed")


def assemble(fragments: list[Path], *, version: str, date: str) -> str:
    """The section of one release: its changes by kind, each kind sorted by file name."""
    section = f"\n## {version} ({date})\n"
    for kind in KINDS:
        texts = [path.read_text("utf-8").strip() for path in fragments if f".{kind}." in path.name]
        if texts:
            section += f"\n### {kind.capitalize()}\n\n" + "".join(
                f"- {' '.join(text.split())}\n" for text in texts
            )
    return section


def main(root: Path = ROOT) -> None:
    """Put the section of the packaged version on top of the page."""
    page, fragments = root / "CHANGELOG.md", sorted((root / "changelog.d").glob("*.md"))
    if not fragments:
        raise SystemExit("changelog.d contains no fragments: there is nothing to assemble")
    version = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    older = page.read_text("utf-8").removeprefix(HEAD) if page.exists() else ""
    section = assemble(fragments, version=version, date=f"{datetime.now(UTC):%Y-%m-%d}")
    page.write_text(HEAD + section + older, "utf-8")
    for path in fragments:
        path.unlink()


if __name__ == "__main__":
    main()
