"""Writes the help of each command into its block of docs/commands.md.

python docs/make_commands.py

The texts between the blocks are written by hand. A new command or action needs a block
`$ assay NAME --help`, which this script fills.
"""

import os
import re
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path

from assay.cli import COMMANDS, main

PAGE = Path(__file__).with_name("commands.md")
_BLOCK = re.compile(r"```console\n\$ assay (?P<words>[\w -]+) --help\n.*?```", re.DOTALL)


def list_commands() -> Iterator[str]:
    """Yield every command, and after it each of its actions."""
    for name in COMMANDS:
        yield name
        parser = ArgumentParser()
        import_module(f"assay.cli.{name}").configure(parser)
        for action in parser._actions:
            if isinstance(action, _SubParsersAction):
                yield from (f"{name} {each}" for each in action.choices)


def read_help(command: str) -> str:
    """Return the help of a command, 80 columns wide."""
    output = StringIO()
    os.environ["COLUMNS"] = "80"
    with redirect_stdout(output):
        main([*command.split(), "--help"])
    return "".join(f"{line.rstrip()}\n" for line in output.getvalue().splitlines())


def fill_page(page: str) -> str:
    """Return the page with the current help in each of its blocks."""

    def fill(block: re.Match[str]) -> str:
        return f"```console\n$ assay {block['words']} --help\n{read_help(block['words'])}```"

    return _BLOCK.sub(fill, page)


def list_missing(page: str) -> list[str]:
    """List the commands and actions without a block."""
    shown = {block["words"] for block in _BLOCK.finditer(page)}
    return [command for command in list_commands() if command not in shown]


if __name__ == "__main__":
    PAGE.write_text(fill_page(PAGE.read_text("utf-8")), encoding="utf-8")
    for missing in list_missing(PAGE.read_text("utf-8")):
        print(f"docs/commands.md has no block `$ assay {missing} --help`")
