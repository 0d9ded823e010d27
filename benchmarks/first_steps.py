"""The first minutes of a new user: installs a wheel and follows the README, step by step.

Files and commands are copied from README.md. Each time counts from the start of the first
`pip install`, in an environment with nothing but pip.

    python benchmarks/first_steps.py dist/assay_eval-VERSION-py3-none-any.whl [--json]
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
PROJECT = "assay-eval"
BUDGETS_S = {"first result": 120, "own agent": 300, "viewer open": 360}
_FILE = re.compile(
    r'^```\w+ title="?(?P<name>[\w.-]+)"?\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Step:
    """What one section of the README asks a reader to write and to run."""

    name: str
    files: dict[str, str]
    commands: list[list[str]]
    """The words of each command, in order."""


def read_steps(page: str) -> list[Step]:
    """Return the steps of the README to a first result, to an own agent and to the viewer."""
    first, agent = read_section(page, "Your first result"), read_section(page, "Evaluate the agent")
    top = page.partition("\n## ")[0]
    # The viewer serves until it is stopped: the README names it in the text, not in a block.
    extra, view = find_code(first, r"pip install '.*\[view\]'"), find_code(first, "assay view")
    return [
        Step("first result", read_files(first), [*read_commands(top), *read_commands(first)]),
        Step("own agent", read_files(agent), read_commands(agent)),
        Step("viewer open", {}, [shlex.split(extra), shlex.split(view)]),
    ]


def read_section(page: str, title: str) -> str:
    """Return the text of the section whose title starts with `title`."""
    found = re.search(rf"^## {title}.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    if found is None:
        raise SystemExit(f"README.md has no section {title!r}")
    return found[0]


def read_files(section: str) -> dict[str, str]:
    return {match["name"]: match["text"] for match in _FILE.finditer(section)}


def read_commands(section: str) -> list[list[str]]:
    """Return the commands of console blocks, without those that need a clone."""
    lines = re.findall(r"^\$ (.+)$", section, re.MULTILINE)
    return [words for words in map(shlex.split, lines) if words[0] in ("pip", "assay")]


def find_code(section: str, pattern: str) -> str:
    """Return the code of a sentence. Exits if there is none."""
    found = re.search(rf"`({pattern})`", section)
    if found is None:
        raise SystemExit(f"the README does not name `{pattern}`")
    return found[1]


def follow(steps: list[Step], folder: Path, run: Callable[[list[str]], None]) -> dict[str, float]:
    """Write and run each step in `folder`; return the seconds until each was done."""
    started, times = time.monotonic(), {}
    for step in steps:
        for name, text in step.files.items():
            (folder / name).write_text(text, "utf-8")
        for words in step.commands:
            run(words)
        times[step.name] = round(time.monotonic() - started, 1)
    return times


@dataclass(frozen=True)
class Environment:
    """A virtual environment in which the wheel takes the place of the published package."""

    folder: Path
    wheel: Path
    work: Path

    def run(self, words: list[str]) -> None:
        """Run a command of the README. Exits with its output if it fails."""
        program = str(self.folder / "bin" / words[0])
        if words[:2] == ["assay", "view"]:
            open_viewer([program, *words[1:]], self.work)
            return
        named = [word.replace(PROJECT, str(self.wheel.resolve())) for word in words[1:]]
        options = ["--disable-pip-version-check", "--quiet"] if words[0] == "pip" else []
        ended = subprocess.run(
            [program, *named, *options], cwd=self.work, capture_output=True, encoding="utf-8"
        )
        if ended.returncode:
            raise SystemExit(f"`{shlex.join(words)}` failed:\n{ended.stdout}{ended.stderr}")
        if words[0] == "assay" and "\nscore " not in f"\n{ended.stdout}":
            raise SystemExit(f"`{shlex.join(words)}` printed no score:\n{ended.stdout}")


def open_viewer(command: list[str], folder: Path) -> None:
    """Start the viewer, read its first page, and stop it."""
    viewer = subprocess.Popen(
        [*command, "--no-open", "--port", "0"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert viewer.stdout is not None
    printed = ""
    try:
        for line in viewer.stdout:
            printed += line
            if address := re.search(r"http://[\w.:]+/?", line):
                with urllib.request.urlopen(address[0], timeout=60) as page:
                    if "<title>" not in page.read().decode():
                        raise SystemExit(f"{address[0]} is not a page")
                return
        raise SystemExit(f"the viewer did not start:\n{printed}")
    finally:
        viewer.terminate()
        viewer.communicate(timeout=60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--environment", type=Path, help="keep the virtual environment here")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="assay-first-steps-") as temporary:
        work = Path(temporary) / "work"
        work.mkdir()
        environment = args.environment or Path(temporary) / "environment"
        venv.create(environment, with_pip=True)
        steps = read_steps(README.read_text("utf-8"))
        times = follow(steps, work, Environment(environment, args.wheel, work).run)
    if args.json:
        print(json.dumps(times))
    else:
        for name, seconds in times.items():
            print(f"{name:<14}{seconds:6.1f} s, budget {BUDGETS_S[name]} s")
    late = [name for name, seconds in times.items() if seconds > BUDGETS_S[name]]
    if late:
        sys.exit(f"over budget: {', '.join(late)}")


if __name__ == "__main__":
    main()
