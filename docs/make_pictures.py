"""Makes the pictures of the README: a small model does sums, without and with a calculator.

The terminal is drawn from the output of commands in a pseudo-terminal; the viewer is a screenshot
in Debian's Chromium. The model answers on this machine, for about a minute.

    python docs/make_pictures.py [FOLDER]
"""

import io
import os
import pty
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURES = Path(__file__).parent / "pictures"
EVALUATION = Path(__file__).parents[1] / "examples" / "quickstart"
COLUMNS = 80
BASELINE = "assay eval arithmetic.py:plain"
COMMANDS = (
    "assay eval arithmetic.py:with_tool",
    "assay gate latest --threshold 0.7 --baseline quickstart-head",
)
# Rich's own template asks another host for its font.
TEMPLATE = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", \
monospace; line-height: {line_height}px; }}
.{unique_id}-title {{ font: bold 18px system-ui, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary) / "sums"
        shutil.copytree(EVALUATION, work)
        run_in_terminal(BASELINE, work)
        drawing = draw_terminal([(each, run_in_terminal(each, work)) for each in COMMANDS])
        (folder / "terminal.svg").write_text(drawing, "utf-8")
        take_screenshot(work / ".assay" / "assay.db", folder / "viewer.png")


def run_in_terminal(command: str, folder: Path) -> str:
    """Return what a command prints on a terminal. Its progress, on stderr, is left out."""
    reader, writer = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ASSAY_", "NO_COLOR"))}
    environment |= {"COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    program = subprocess.Popen(
        [sys.executable, "-m", *command.split()],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    output = bytearray()
    # On Linux, reading fails once the program has closed the other end.
    try:
        while part := os.read(reader, 65536):
            output += part
    except OSError:
        pass
    os.close(reader)
    _, problem = program.communicate()
    if program.returncode:
        raise SystemExit(f"`{command}` failed: {problem.decode()}")
    # The reader's own folder is elsewhere.
    return output.decode().replace("\r\n", "\n").replace(str(folder.parent), "~")


def draw_terminal(printed: list[tuple[str, str]]) -> str:
    """Return the commands and their output as SVG."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    for command, output in printed:
        console.print(Text(f"$ {command}", style="bold"))
        console.print(Text.from_ansi(output))
    return console.export_svg(title="assay", code_format=TEMPLATE, unique_id="terminal")


def take_screenshot(store: Path, picture: Path) -> None:
    """Write the page of the oldest run, its worst samples first, as a PNG."""
    from playwright.sync_api import sync_playwright

    from assay.store import Store
    from assay.web import ViewServer

    with Store.open(store) as opened, ViewServer(opened) as server, sync_playwright() as driver:
        *_, baseline = opened.runs()
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 880})
        page.goto(f"{server.url.rstrip('/')}/run/{baseline.id}?sort=score")
        page.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES)
