"""`assay docs`: open the documentation of the installed version, or print a page of it."""

import re
import webbrowser
from argparse import ArgumentParser, Namespace
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from assay.errors import ConfigError

from .arguments import add_flag, add_report_options
from .output import cut, has_browser, measure_line_width, print_lines, print_message, print_report

START_PAGE = "index"
_LIST = "llms.txt"
_SECTION = re.compile(r"## (?P<title>.+)")
_ENTRY = re.compile(r"- \[(?P<title>[^]]+)\]\((?P<link>[\w./-]+)\.md\): (?P<summary>.+)")


@dataclass(frozen=True)
class DocsPage:
    """A page of the documentation, as a file of this installation."""

    page: str
    title: str
    section: str
    summary: str
    text: Path
    """The Markdown of the page."""

    html: Path | None
    """None where the pages were not built: in a clone before `make docs`."""

    @property
    def path(self) -> Path:
        return self.html or self.text

    def plain(self) -> dict[str, Any]:
        """Return the JSON of the page."""
        return {**asdict(self), "text": str(self.text), "html": self.html and str(self.html)}


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "page",
        nargs="?",
        metavar="PAGE",
        help="page to open, such as `datasets` (default: the start page)",
    )
    add_flag(parser, "--list", "list the pages instead")
    add_flag(parser, "--text", "print the page as Markdown instead")
    add_flag(parser, "--no-open", "print the path of the page and do not open a browser")
    add_report_options(parser)


def main(args: Namespace) -> int:
    """Exit status: 0, or 2 for a page that does not exist."""
    pages = read_pages(find_page_list(Path(__file__).parents[1]))
    if args.list:
        value = {"pages": [page.plain() for page in pages.values()]}
        print_report(args, _format_list(list(pages.values())), value)
        return 0
    page = find_page(pages, args.page or START_PAGE)
    opens = not (args.no_open or args.text or args.json) and has_browser()
    if args.text and not args.json:
        print_lines([page.text.read_text("utf-8").removesuffix("\n")])
        return 0
    print_report(args, [str(page.path)], page.plain())
    if page.html is None:
        print_message("the pages are not built; in a clone, `make docs` builds them")
    elif opens:
        webbrowser.open(page.html.as_uri())
    return 0


def find_page_list(package: Path) -> Path:
    """Return the list of pages of an installed package, else of the clone around it."""
    for folder in (package / "site", package.parent.parent):
        if (folder / _LIST).is_file():
            return folder / _LIST
    raise ConfigError(
        "the documentation is not part of this installation",
        where=str(package),
        hint="install a wheel of assay-eval, or clone the repository",
    )


def read_pages(listing: Path) -> dict[str, DocsPage]:
    """Read the pages by name, the start page first. Links lead from the folder of the list."""
    root = listing.parent
    # Also in a wheel that was built without pages: it has the Markdown in the same folders.
    as_in_clone = (root / "docs").is_dir()
    start = (
        "Start",
        "Documentation",
        "docs/index" if as_in_clone else "index",
        "all pages, in order",
    )
    entries, section = [start], ""
    for line in listing.read_text("utf-8").splitlines():
        if heading := _SECTION.fullmatch(line):
            section = heading["title"]
        elif entry := _ENTRY.fullmatch(line):
            entries.append((section, entry["title"], entry["link"], entry["summary"]))
    pages = {}
    for section, title, link, summary in entries:
        relative = link.removeprefix("docs/")
        built = (root / "site" if as_in_clone else root) / f"{relative.lower()}.html"
        name = relative.lower().removeprefix("api/").removesuffix("/index")
        text, html = root / f"{link}.md", built if built.is_file() else None
        pages[name] = DocsPage(name, title, section, summary, text, html)
    return pages


def find_page(pages: dict[str, DocsPage], name: str) -> DocsPage:
    """Return a page by name, also with the folder or the ending of its file."""
    wanted = name.lower().removesuffix(".md").removesuffix(".html")
    wanted = wanted.removeprefix("docs/").removeprefix("api/")
    if wanted in pages:
        return pages[wanted]
    near = get_close_matches(wanted, pages, n=3, cutoff=0.5)
    meant = f"did you mean {' or '.join(f'`{each}`' for each in near)}? " if near else ""
    raise ConfigError(
        f"no page named {name!r}", where="assay docs", hint=f"{meant}`assay docs --list` lists all"
    )


def _format_list(pages: list[DocsPage]) -> list[str]:
    width = max(len(page.page) for page in pages) + 2
    columns = measure_line_width()
    lines, section = [], ""
    for page in pages:
        if page.section != section:
            section = page.section
            lines.append(section)
        lines.append(f"  {page.page:<{width}}{cut(page.summary, columns - width - 2)}")
    return lines
