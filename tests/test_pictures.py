"""The pictures of the README show what the commands print today."""

import html
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest

from commands import call_main

ROOT = Path(__file__).parents[1]
TERMINAL = ROOT / "docs" / "pictures" / "terminal.svg"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "make_pictures.py"))


def read_lines(drawing: str) -> list[str]:
    """Return the text of a drawn terminal, line by line."""
    parts = re.findall(r'<text class="terminal-r\d+"[^>]* y="([\d.]+)"[^>]*>(.*?)</text>', drawing)
    lines: dict[str, str] = {}
    for height, text in parts:
        lines[height] = lines.get(height, "") + html.unescape(text).replace("\xa0", " ")
    return [line.rstrip() for line in lines.values()]


def read_labels(lines: list[str]) -> set[str]:
    """Return the words at the start of lines that do not depend on a model's answers."""
    found = (re.match(r"[a-z]+(?: [a-z]+)?(?=  | \(\d|:$)", line) for line in lines)
    return {match[0] for match in found if match}


def test_the_terminal_shows_the_labels_of_the_commands(
    script: dict[str, Any], tmp_path: Path
) -> None:
    shutil.copytree(script["EVALUATION"], tmp_path / "sums")
    printed: list[str] = []
    for command in (script["BASELINE"], *script["COMMANDS"]):
        model = ["--model", "mock:echo"] if " eval " in command else []
        printed += call_main(tmp_path / "sums", *command.split()[1:], *model).stdout.splitlines()

    labels = read_labels(read_lines(TERMINAL.read_text("utf-8")))

    assert {"score", "not judged", "cost", "gate", "threshold", "baseline"} <= labels
    assert labels - read_labels(printed) == set()


def test_the_terminal_shows_the_commands_of_the_script(script: dict[str, Any]) -> None:
    lines = read_lines(TERMINAL.read_text("utf-8"))

    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]

    assert commands == list(script["COMMANDS"])


def test_a_drawing_asks_no_other_host_and_keeps_the_text(script: dict[str, Any]) -> None:
    drawing = script["draw_terminal"]([("assay --version", "\x1b[32massay  0 < 1\x1b[0m\n")])

    assert read_lines(drawing)[:2] == ["$ assay --version", "assay  0 < 1"]
    assert re.findall(r"https?://[^\"]*", drawing) == ["http://www.w3.org/2000/svg"]
    assert "@import" not in drawing
    assert "@font-face" not in drawing


def test_the_readme_shows_both_pictures() -> None:
    shown = re.findall(r'<img src="([^"]+)"', (ROOT / "README.md").read_text("utf-8"))

    assert shown == ["docs/pictures/terminal.svg", "docs/pictures/viewer.png"]
    assert [path for path in shown if not (ROOT / path).is_file()] == []
