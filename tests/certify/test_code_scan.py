"""Which files a command really runs: scripts, modules, programs of tools, and links."""

import os
import shlex
from pathlib import Path

import pytest

from assay.certify.source_files import find_command_code

IMPORTS_PART = "#!/usr/bin/env python3\nimport part\n"
PACKAGE = {"pack/__init__.py": "", "pack/__main__.py": "from .part import x", "pack/part.py": ""}
BESIDE = {"sub/main.py": IMPORTS_PART, "sub/part.py": ""}


def in_shell(*lines: str, name: str = "run.sh") -> dict[str, str]:
    return {name: "\n".join(["#!/bin/sh", *lines])}


# A command, the files of the project, and those that do not belong to the agent.
RUNS: dict[str, tuple[str, dict[str, str], set[str]]] = {
    "a module of a script": ("sh run.sh", {**in_shell("exec python3 -um pack"), **PACKAGE}, set()),
    "a module in quotes": ("sh run.sh", {**in_shell('python -m "pack"'), **PACKAGE}, set()),
    "code of a script": (
        "sh run.sh",
        {**in_shell("python -c 'import part'"), "part.py": ""},
        set(),
    ),
    "code of a here-document": (
        "sh run.sh",
        {**in_shell("python - <<END", "from part import x", "END"), "part.py": ""},
        set(),
    ),
    "a program beside the script": (
        "sh sub/run.sh",
        {**in_shell('exec python "$(dirname "$0")/main.py"', name="sub/run.sh"), **BESIDE},
        set(),
    ),
    "a program behind a variable": (
        "sh bin/run.sh",
        {**in_shell('"${HERE}/../sub/main.py"', name="bin/run.sh"), **BESIDE},
        set(),
    ),
    "a module in another folder": (
        "sh run.sh",
        {**in_shell("cd sub && python -m main"), **BESIDE},
        set(),
    ),
    "a module on PYTHONPATH": (
        "sh run.sh",
        {**in_shell("PYTHONPATH=$HERE/lib:sub python -m main"), **BESIDE},
        set(),
    ),
    "a program with spaces": (
        "sh run.sh",
        {**in_shell("python 'my sub/main.py'"), "my sub/main.py": "import p", "my sub/p.py": ""},
        set(),
    ),
    "a script that starts a script without a suffix": (
        "./run.sh",
        {**in_shell('exec "$HERE/work"'), "work": IMPORTS_PART, "part.py": ""},
        set(),
    ),
    "options in one word": ("python -um pack", PACKAGE, set()),
    "code after options in one word": ("python -uc 'import pack.__main__'", PACKAGE, set()),
    "code in a shell's command": ("sh -ec \"python -c 'import part'\"", {"part.py": ""}, set()),
    "a shell's command": ("sh -c 'cd sub && ./main.py'", BESIDE, set()),
    "what make runs": (
        "make -C sub all",
        {"sub/Makefile": "# first\nall:\n\t@python main.py\n", **BESIDE},
        set(),
    ),
    "what a script makes": (
        "sh run.sh",
        {**in_shell("make all"), "Makefile": "all:\n\tpython sub/main.py\n", **BESIDE},
        set(),
    ),
    "words that only mention tools": (
        "sh run.sh",
        {**in_shell("# make sure", "echo node"), "Makefile": "", "package.json": ""},
        {"Makefile", "package.json"},
    ),
    "a folder of node": (
        "node app",
        {"app/package.json": '{"main": "src/go.js"}', "app/src/go.js": "require('./a')"}
        | {"app/src/a.js": "", "app/node_modules/b/index.js": ""},
        {"app/node_modules/b/index.js"},
    ),
    "a name without a suffix": ("node go", {"go.js": "require('./a')", "a/index.js": ""}, set()),
    "what npm runs": (
        "npm --prefix . start",
        {"package.json": '{"scripts": {"start": "node go.js"}}', "go.js": ""},
        set(),
    ),
    "TypeScript": (
        "npx tsx src/go.ts",
        {"src/go.ts": "import a from './a.js'; import b from '@/b'; import c from './c'"}
        | {"src/a.ts": "", "src/b.tsx": "import './d.mjs'", "src/c/index.ts": "", "src/d.mts": ""},
        set(),
    ),
    "an installed program": (
        "uv run tool",
        {"pyproject.toml": "[project.scripts]\ntool = 'pack.cli:main'\n"}
        | {"src/pack/__init__.py": "", "src/pack/cli.py": "from . import a", "src/pack/a.py": ""},
        {"pyproject.toml"},
    ),
    "an installed program of another shape": (
        "tool run.py",
        {"pyproject.toml": "tool = 1\nproject = {scripts = 1}\n", "run.py": ""},
        {"pyproject.toml"},
    ),
    "a relative import by name": (
        "python run.py",
        {"run.py": "import_module('.part', package='pack')", "pack/__init__.py": ""}
        | {"pack/part.py": ""},
        set(),
    ),
    "what Python runs when it starts": (
        "python run.py",
        {"run.py": "", "sitecustomize.py": "import part", "part.py": ""},
        set(),
    ),
    "an interpreter of the project": (
        "env/bin/python run.py",
        {"env/pyvenv.cfg": "", "env/bin/python": "#!/bin/sh\n", "run.py": ""},
        {"env/pyvenv.cfg", "env/bin/python"},
    ),
}


@pytest.mark.parametrize(("command", "files", "others"), RUNS.values(), ids=RUNS)
def test_a_command_is_made_of_the_files_that_it_runs(
    tmp_path: Path, command: str, files: dict[str, str], others: set[str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    found = find_command_code(shlex.split(command), (tmp_path,))

    assert found is not None
    names = {each for each in files if any(each.endswith(name) for name in found.files)}
    assert names == files.keys() - others
    assert len(found.files) == len(names)


def test_a_program_behind_a_link_has_the_modules_beside_its_file(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/impl.py").write_text(IMPORTS_PART)
    (tmp_path / "real/part.py").write_text("")
    os.symlink("real/impl.py", tmp_path / "agent.py")

    found = find_command_code(["python", "agent.py"], (tmp_path,))

    assert found is not None
    assert list(found.files) == ["agent.py", "impl.py", "part.py"]
    assert found.modules == found.files.keys()


@pytest.mark.parametrize(
    "text",
    [
        "from" + " " * 400_000 + "-",
        "'a=" * 50_000,
        "'" + "a " * 100_000,
        "$a" * 100_000,
        "-b" * 100_000,
    ],
    ids=["spaces", "assignments", "an open quote", "variables", "options"],
)
def test_a_long_line_without_an_end_is_read_quickly(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.sh").write_text(f"#!/bin/sh\n{text}")

    found = find_command_code(["sh", "run.sh"], (tmp_path,))

    assert found is not None
    assert list(found.files) == ["run.sh"]
