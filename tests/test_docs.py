"""Runs what README.md and docs/ show: Python blocks, and `$ assay` lines of console blocks.

A page's blocks run from top to bottom in one namespace and one empty folder; the README finds
`examples/` there, as in a clone. A block ```` ```python title=NAME ```` is also written to the file
of that name, for the commands below it. A block after `<!-- not run: reason -->` is left out.
Tutorials run their `$ pytest` and `$ python FILE` lines too, and their files are only written.
"""

import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from assay.cli import main
from commands import enter_folder, open_stream, read_stream
from evaluation_sessions import call_pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
MISSPELLED = ("py", "python3", "pycon", "shell-session", "sh-session")
UNCHECKED = ("cd", "git", "make", "pip", "pytest", "python", "python3")
"""Commands a console block may show though they are not run: they need a clone or a network."""

TUTORIALS = "docs/tutorials/"
RUN_IN_TUTORIALS = ("pytest", "python")
SLOW_PAGES = ("docs/tutorials/train.md",)
"""Pages that train a model."""

LONGEST_TUTORIAL = 85
"""Lines of a tutorial that are not blank: it is read to the end in ten minutes."""

LONGEST_BLOCK = 18
"""Lines of a block of the README, blank ones included: a reader takes it in at one glance."""

_FENCE = re.compile(r"\s*(?P<ticks>`{3,}|~{3,})\s*(?P<language>[^\s`{]*)(?P<info>[^`]*)$")
_TITLE = re.compile(r"\btitle=(?P<quote>\"?)(?P<name>[\w./-]+)(?P=quote)")
_NOT_RUN = re.compile(r"\s*<!--\s*not run(?P<reason>.*?)-->\s*$")


class BrokenPage(AssertionError):
    """A page shows something that does not work; the message starts with page and line."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: str
    line: int
    """Of the first line inside the fence."""

    language: str
    text: str
    not_run: bool
    title: str | None = None
    """The file that the block is written to."""

    def broken(self, why: str, *, after: int = 0) -> BrokenPage:
        return BrokenPage(f"{self.page}:{self.line + after}: {why}")


def blocks_of(text: str, page: str) -> Iterator[Block]:
    """The fenced blocks of a page. Raises `BrokenPage` for what would hide one."""
    lines = text.splitlines()
    number, skip = 0, False
    while number < len(lines):
        line = lines[number]
        number += 1
        if comment := _NOT_RUN.match(line):
            if not re.match(r":\s*\w", comment["reason"]):
                raise BrokenPage(f"{page}:{number}: write <!-- not run: reason -->")
            skip = True
        elif fence := _FENCE.match(line):
            end = _closing(lines, number, fence["ticks"])
            if end is None:
                raise BrokenPage(f"{page}:{number}: this block is never closed")
            code = textwrap.dedent("\n".join(lines[number:end]))
            title = _TITLE.search(fence["info"])
            name = title["name"] if title else None
            yield Block(page, number + 1, fence["language"].lower(), code, skip, name)
            number, skip = end + 1, False
        elif line.strip():
            skip = False


def _closing(lines: list[str], start: int, ticks: str) -> int | None:
    for number in range(start, len(lines)):
        stripped = lines[number].strip()
        if len(stripped) >= len(ticks) and set(stripped) == {ticks[0]}:
            return number
    return None


def run_page(text: str, page: str, folder: Path) -> int:
    """Run a page's blocks in order; how many were run. Raises `BrokenPage` at the first fault."""
    # A real module, so that classes defined in a block can be looked up by the module they name.
    module = ModuleType(f"page_{re.sub(r'[^a-z0-9]', '_', page.lower())}")
    sys.modules[module.__name__] = module
    ran = 0
    try:
        for block in blocks_of(text, page):
            if block.language in MISSPELLED:
                raise block.broken(f"{block.language!r} blocks are not run: use python or console")
            if block.not_run:
                continue
            if block.title:
                (folder / block.title).parent.mkdir(exist_ok=True)
                (folder / block.title).write_text(block.text + "\n", "utf-8")
            # A file of a tutorial is imported by the commands, as it is for the reader.
            is_file = block.title is not None and page.startswith(TUTORIALS)
            if block.language == "python" and not is_file:
                run_python(block, module)
                ran += 1
            elif block.language == "console":
                ran += run_console(block, folder)
    finally:
        del sys.modules[module.__name__]
    return ran


def run_python(block: Block, module: ModuleType) -> None:
    # Empty lines in front make tracebacks and syntax errors count from the top of the page.
    padded = "\n" * (block.line - 1) + block.text
    try:
        exec(compile(padded, block.page, "exec"), vars(module))
    except Exception as error:
        after = max(_line_in(error, block.page) - block.line, 0)
        raise block.broken(f"{type(error).__name__}: {error}", after=after) from error


def _line_in(error: Exception, page: str) -> int:
    """The line of the page that an exception comes from."""
    if isinstance(error, SyntaxError) and error.filename == page:
        return error.lineno or 0
    line, frame = 0, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == page:
            line = frame.tb_lineno
        frame = frame.tb_next
    return line


def run_console(block: Block, folder: Path) -> int:
    """Run the `$ assay` lines and compare what they print with the lines below each."""
    ran, lines = 0, block.text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    if not starts or starts[0] != 0:
        raise block.broken("a console block starts with a line `$ command`")
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        command = shlex.split(lines[start].removeprefix("$ "), comments=True)
        program = command[0] if command else ""
        if program == "assay" or (program in RUN_IN_TUTORIALS and block.page.startswith(TUTORIALS)):
            run = {"assay": _run_assay, "pytest": _run_pytest, "python": _run_script}[program]
            shown = "\n".join(lines[start + 1 : end])
            if problem := _mismatch(*run(command[1:], folder), shown):
                raise block.broken(problem, after=start)
            ran += 1
        elif program not in UNCHECKED:
            raise block.broken(f"`{lines[start]}` is neither run nor known", after=start)
    return ran


def _run_assay(arguments: list[str], folder: Path) -> tuple[int, str]:
    output = open_stream()
    with enter_folder(folder, {"NO_COLOR": "1"}), redirect_stdout(output), redirect_stderr(output):
        status = main(arguments)
    return status, read_stream(output)


def _run_pytest(arguments: list[str], folder: Path) -> tuple[int, str]:
    session = call_pytest(folder, *arguments, env={"NO_COLOR": "1"})
    return session.status, session.output


def _run_script(arguments: list[str], folder: Path) -> tuple[int, str]:
    ended = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=300
    )
    return ended.returncode, ended.stdout + ended.stderr


def _mismatch(status: int, output: str, shown: str) -> str | None:
    shown, printed = _trimmed(shown), _trimmed(output)
    if shown in ("", "..."):
        # Where no output is shown, success is what the reader expects.
        return f"exit status {status}:\n{printed}" if status else None
    pattern = ".*".join(re.escape(part) for part in shown.split("..."))
    if re.fullmatch(pattern, printed, re.DOTALL):
        return None
    return f"the page shows\n{shown}\nbut exit status {status} came with\n{printed}"


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


def name_page(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] * (name_page(page) in SLOW_PAGES))
        for page in PAGES
    ],
    ids=map(name_page, PAGES),
)
def test_what_a_page_shows_works(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if page == README:
        shutil.copytree(ROOT / "examples", tmp_path / "examples")

    run_page(page.read_text("utf-8"), name_page(page), tmp_path)


BROKEN = {
    "an exception": ("text\n\n```python\nx = 1\n1 / 0\n```\n", "p.md:5: ZeroDivisionError"),
    "a failed claim": ("```python\nassert 1 == 2\n```\n", "p.md:2: AssertionError"),
    "a syntax error": ("```python\nx = 1\nif\n```\n", "p.md:3: SyntaxError"),
    "inside a call": ("```python\ndef f():\n    g()\n\nf()\n```\n", "p.md:3: NameError"),
    "in a list": ("- item\n\n  ```python\n  boom\n  ```\n", "p.md:4: NameError"),
    "another fence": ("~~~~python title=x\nboom\n~~~~\n", "p.md:2: NameError"),
    "capitals": ("```Python\nboom\n```\n", "p.md:2: NameError"),
    "misspelled": ("```py\nx = 1\n```\n", "p.md:2: 'py' blocks are not run"),
    "never closed": ("```python\nx = 1\n", "p.md:1: this block is never closed"),
    "skipped without a reason": (
        "<!-- not run -->\n```python\nboom\n```\n",
        "p.md:1: write <!-- not run: reason -->",
    ),
    "skipped with an empty reason": (
        "<!-- not run:  -->\n```python\nboom\n```\n",
        "p.md:1: write <!-- not run: reason -->",
    ),
    "a reason for another block": (
        "<!-- not run: slow -->\nwords\n```python\nboom\n```\n",
        "p.md:4: NameError",
    ),
    "other output": ("```console\n$ assay --version\nassay 9\n```\n", "p.md:2: the page shows"),
    "a second command": (
        "```console\n$ assay --version\nassay ...\n$ assay --version\n8\n```\n",
        "p.md:4: the page shows",
    ),
    "a failing command": ("```console\n$ assay no-such-thing\n```\n", "p.md:2: exit status 2"),
    "an unknown command": ("```console\n$ asay --version\n```\n", "p.md:2: `$ asay --version`"),
    "no command": ("```console\nassay --version\n```\n", "p.md:2: a console block starts"),
}


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_page_is_caught(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BrokenPage) as caught:
        run_page(text, "p.md", tmp_path)

    assert str(caught.value).startswith(message)


SOUND = {
    "no blocks": ("# Title\n", 0),
    "other languages": ("```json\n{\n```\n\n```text\n1 / 0\n```\n", 0),
    "one namespace": ("```python\nx = 1\n```\nthen\n```python\nassert x == 1\n```\n", 2),
    "skipped": ("<!-- not run: needs a key -->\n\n```python\nboom\n```\n```python\n1\n```\n", 1),
    "a fence inside a fence": ("````text\n```python\nboom\n```\n````\n", 0),
    "commands": ("```console\n$ assay --version\nassay ...\n$ make test\nanything\n```\n", 1),
}


@pytest.mark.parametrize(("text", "ran"), SOUND.values(), ids=SOUND)
def test_a_sound_page_passes(text: str, ran: int, tmp_path: Path) -> None:
    assert run_page(text, "p.md", tmp_path) == ran


def test_classes_of_a_block_can_refer_to_each_other_by_name(tmp_path: Path) -> None:
    text = """```python
from pydantic import BaseModel

class Tree(BaseModel):
    children: "list[Leaf]" = []

class Leaf(BaseModel):
    size: int

assert Tree(children=[{"size": 1}]).children[0].size == 1
```"""

    assert run_page(text, "p.md", tmp_path) == 1


def test_commands_see_the_files_that_blocks_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    run_page('```python\nopen("made.txt", "w").close()\n```\n', "p.md", tmp_path)

    assert (tmp_path / "made.txt").exists()


def test_commands_see_the_file_that_a_block_is_titled_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    run_page("```yaml title=rules.yaml\nchecks: []\n```\n", "p.md", tmp_path)

    assert (tmp_path / "rules.yaml").read_text("utf-8") == "checks: []\n"


def test_the_readme_runs_every_block_and_keeps_each_short() -> None:
    blocks = list(blocks_of(README.read_text("utf-8"), "README.md"))

    assert [block.line for block in blocks if block.not_run] == []
    assert [block.line for block in blocks if len(block.text.splitlines()) > LONGEST_BLOCK] == []


UNSTRUCTURED = ("docs/index.md", "docs/commands.md", "docs/reference.md", TUTORIALS, "docs/api/")
"""Lists of pages, of options and of names, and tutorials, which end with a result."""


def find_missing_parts(text: str, page: str) -> list[str]:
    """Return which parts of a page are missing: its purpose, a block that runs, its limits."""
    first = next((line for line in text.splitlines()[1:] if line.strip()), "")
    shown = [block for block in blocks_of(text, page) if block.language in ("python", "console")]
    parts = {
        "a sentence on what you get": re.match(r"```|[|#<!]", first) is None,
        "an example that runs": any(not block.not_run for block in shown),
        "limits": re.search(r"^## Limits\n\n\S", text, re.MULTILINE) is not None,
    }
    return [part for part, is_there in parts.items() if not is_there]


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES[1:] if not name_page(page).startswith(UNSTRUCTURED)],
    ids=lambda page: page.name,
)
def test_a_page_states_what_you_get_an_example_and_limits(page: Path) -> None:
    assert find_missing_parts(page.read_text("utf-8"), name_page(page)) == []


def test_a_page_without_its_parts_is_caught() -> None:
    page = "# Title\n\n```console\n$ assay runs\n```\n\n## Limits\n\n- One.\n"
    assert find_missing_parts(page, "p.md") == ["a sentence on what you get"]

    page = "# Title\n\nYou get it.\n\n<!-- not run: slow -->\n```console\n$ assay runs\n```\n"
    assert find_missing_parts(page, "p.md") == ["an example that runs", "limits"]


def test_tutorials_are_short_and_listed() -> None:
    folder = ROOT / TUTORIALS
    index = (folder / "index.md").read_text("utf-8")
    pages = {page.name: page.read_text("utf-8") for page in folder.glob("*.md")}
    tutorials = sorted(pages.keys() - {"index.md"})

    lengths = {name: sum(map(bool, text.splitlines())) for name, text in pages.items()}
    assert {name for name, lines in lengths.items() if lines > LONGEST_TUTORIAL} == set()
    assert sorted(re.findall(r"\]\(([\w-]+\.md)\)", index)) == tutorials


def test_tutorials_run_without_code_that_has_no_file() -> None:
    pages = sorted((ROOT / TUTORIALS).glob("*.md"))
    blocks = [block for page in pages for block in blocks_of(page.read_text(), name_page(page))]

    # A reader cannot see where such a block is to be typed.
    unnamed = [f"{b.page}:{b.line}" for b in blocks if b.language == "python" and not b.title]
    assert unnamed == []


def test_the_scripts_of_a_tutorial_are_run(tmp_path: Path) -> None:
    text = '```python title="a/make.py"\nraise SystemExit("no disk")\n```\n'
    text += "```console\n$ python a/make.py\n```\n"

    with pytest.raises(BrokenPage, match=r"p\.md:5: exit status 1:\nno disk"):
        run_page(text, f"{TUTORIALS}p.md", tmp_path)


def test_the_pytest_lines_of_a_tutorial_are_run(tmp_path: Path) -> None:
    text = '```python title="test_it.py"\ndef test_it():\n    assert 0\n```\n'
    text += "```console\n$ pytest\n...1 passed...\n```\n"

    with pytest.raises(BrokenPage, match=r"1 failed"):
        run_page(text, f"{TUTORIALS}p.md", tmp_path)
    assert run_page(text, "p.md", tmp_path) == 1
