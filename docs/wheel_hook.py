"""A hook of hatchling: puts the documentation into the wheel, for `assay docs`."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

IN_PACKAGE = "assay/site"
ROOT_PAGES = ("ARCHITECTURE.md", "SECURITY.md", "SKILL.md", "llms.txt")


class WheelHook(BuildHookInterface):  # type: ignore[type-arg]  # the configuration is not used
    """Adds the built site, or without it the Markdown pages. An editable install has its clone."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            build_data["force_include"].update(list_files(Path(self.root)))


def list_files(root: Path) -> dict[str, str]:
    """Map each file of the documentation to its path in the wheel. Markdown is laid out as here."""
    site = root / "site"
    if (site / "llms.txt").is_file():
        # The index for pages that a server delivers; those of a wheel are opened as files.
        unused = {site / "search" / "search_index.json"}
        files = [path for path in sorted(site.rglob("*")) if path.is_file() and path not in unused]
        return {str(path): f"{IN_PACKAGE}/{path.relative_to(site)}" for path in files}
    pages = [root / name for name in ROOT_PAGES] + sorted((root / "docs").rglob("*.md"))
    return {str(path): f"{IN_PACKAGE}/{path.relative_to(root)}" for path in pages}
