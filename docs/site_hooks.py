"""Hooks of MkDocs: the order of pages, pages from the root of the repository, and plain copies.

`docs/index.md` is the only list of pages; the navigation of the site follows it.
"""

import re
import shutil
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from make_errors import build_messages
from make_llms import TUTORIALS, Entry, read_api_pages, read_index, read_tutorials

DOCS = Path(__file__).parent
ROOT = DOCS.parent
ROOT_PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "SECURITY.md": "security-policy.md",
    "SKILL.md": "skill.md",
}
"""Pages that repositories keep at their root, and their names on the site."""

GENERATED_LISTS = ("api/", "errors.md", "reference.md", "store-schema.md")
"""Pages with every name or message, whose many words would fill the results of a search."""

UNUSED_ASSETS = ("assets/javascripts/**/*.map", "assets/stylesheets/**/*.map", "sitemap.xml*")
"""Source maps, and a sitemap, which would need the address of the site."""

_FENCE_TITLE = re.compile(r"^(?P<fence> *```\w+ )title=(?P<name>[\w.-]+)$", re.MULTILINE)
_TABLE_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_CODE = re.compile(r"`[^`]*`")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the navigation."""
    below = {"reference.md": read_api_pages(), TUTORIALS: read_tutorials()}
    config.nav = build_nav(read_index(), below)
    return config


def build_nav(entries: list[Entry], below: dict[str, list[Entry]]) -> list[object]:
    """Build the value of `nav` in mkdocs.yml. Some pages are lists, with their pages `below`."""
    sections: dict[str, list[object]] = {}
    for entry in entries:
        page: object = ROOT_PAGES.get(entry.page.removeprefix("../"), entry.page)
        if listed := below.get(entry.page):
            page = [{"Overview": page}, *({each.title: each.page} for each in listed)]
        sections.setdefault(entry.section, []).append({entry.title: page})
    return [{"Home": "index.md"}, *({title: pages} for title, pages in sections.items())]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the repository's root."""
    for source, name in ROOT_PAGES.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Adapt a page to the site, and list the messages on the page of errors."""
    if page.file.src_uri.startswith(GENERATED_LISTS):
        # Found by name, without hiding the guides that explain the name.
        page.meta["search"] = {"boost": 0.2}
    if page.file.src_uri == "errors.md":
        # Only on the site: the messages change too often to be kept in the repository.
        markdown += build_messages()
    markdown = _FENCE_TITLE.sub(r'\g<fence>title="\g<name>"', _replace_root_links(markdown))
    return _TABLE_ROW.sub(lambda row: _CODE.sub(_unescape_strokes, row[0]), markdown)


def _unescape_strokes(code: re.Match[str]) -> str:
    # Repository pages need a backslash before a stroke in a table; here it would be shown.
    return code[0].replace("\\|", "|")


def _replace_root_links(markdown: str) -> str:
    for source, name in ROOT_PAGES.items():
        markdown = markdown.replace(f"](../{source}", f"]({name}")
    return markdown


def on_post_build(config: MkDocsConfig) -> None:
    """Put `llms.txt` and the Markdown of each page beside the pages; remove unused assets."""
    site = Path(config.site_dir)
    for page in DOCS.rglob("*.md"):
        target = site / page.relative_to(DOCS)
        target.write_text(_replace_root_links(page.read_text("utf-8")), "utf-8")
    for source, name in ROOT_PAGES.items():
        shutil.copyfile(ROOT / source, site / name)
    # In the repository its links begin with docs/, or lead to pages of the root.
    listing = (ROOT / "llms.txt").read_text("utf-8").replace("](docs/", "](")
    for source, name in ROOT_PAGES.items():
        listing = listing.replace(f"]({source})", f"]({name})")
    (site / "llms.txt").write_text(listing, "utf-8")
    for pattern in UNUSED_ASSETS:
        for path in site.glob(pattern):
            path.unlink()
    # Word lists for searching in other languages.
    shutil.rmtree(site / "assets/javascripts/lunr", ignore_errors=True)
