"""Which files belong to some code: found by reading, never by importing."""

import functools
import sys
from pathlib import Path

import pytest

from assay.certify.source_files import (
    find_callable_code,
    find_command_code,
    find_file_code,
    find_module_code,
    locate_code,
)
from assay.errors import ConfigError
from assay.types.digests import compute_file_sha256
from line_counts import count_lines


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def module(folder: Path, name: str) -> list[str]:
    found = find_module_code(name, (folder,))
    assert found is not None
    return list(found.files)


def test_a_module_alone_has_the_digest_of_its_file(tmp_path: Path) -> None:
    write(tmp_path, {"alone.py": "import json, pydantic, assay\n"})

    found = find_module_code("alone", (tmp_path,))

    assert found is not None
    assert found.sha256 == compute_file_sha256(tmp_path / "alone.py")


def test_nothing_is_imported(tmp_path: Path) -> None:
    write(tmp_path, {"top.py": "import deep\nraise SystemExit(0)\n", "deep.py": "1 / 0\n"})

    assert module(tmp_path, "top") == ["deep.py", "top.py"]
    assert "deep" not in sys.modules


IMPORTS = {
    "plain": ("import other", ["other.py"]),
    "dotted": ("import pack.part", ["pack/__init__.py", "pack/part.py"]),
    "from a package": ("from pack import part", ["pack/__init__.py", "pack/part.py"]),
    "a name": ("from other import thing", ["other.py"]),
    "everything": ("from other import *", ["other.py"]),
    "in a function": ("def f():\n    import other", ["other.py"]),
    "by a call": ("import importlib\nimportlib.import_module('other')", ["other.py"]),
    "without __init__": ("import bare.part", ["bare/part.py"]),
    "of a circle": ("import round_one", ["round_one.py", "round_two.py"]),
    "of nothing there": ("import nowhere_at_all", []),
    "by its function's name": (
        "import importlib\ngetattr(importlib, 'import_module')('other')",
        ["other.py"],
    ),
    "of a name with a function": ("pkgutil.resolve_name('other:thing')", ["other.py"]),
    "in a text that is run": ("exec('x = 1; from other import thing')", ["other.py"]),
    "in a program's text": ("run([python, '-c', 'import other as o, json'])", ["other.py"]),
    "in a command line": ("os.system('python -m other')", ["other.py"]),
    "by a name in two parts": ("__import__('oth' + 'er')", ["other.py"]),
    "by a name with a gap": ("__import__(f'oth{x}')", ["other.py"]),
    "by a name of a format": ("import_module('o{}r'.format(x))", ["other.py"]),
    "in a folder without __init__": ("__import__('bare.' + x)", ["bare/part.py"]),
    "of a text": ("x = 'other'", []),
    "by a name that is chosen": (
        "import importlib\nN = 'other'\nimportlib.import_module(N)",
        ["other.py"],
    ),
    "by another name": ("from importlib import import_module as take\ntake('other')", ["other.py"]),
    "of a package's parts": (
        "import importlib\nimportlib.import_module('pack.' + name)",
        ["pack/__init__.py", "pack/part.py"],
    ),
    "of what __all__ names": ("from listed import *", ["listed/__init__.py", "listed/part.py"]),
    "from a folder that is added": (
        "import os, sys\nsys.path.insert(0, os.path.join(HERE, 'lib'))\nimport hidden",
        ["hidden.py"],
    ),
    "of a program": ("subprocess.run(['python', 'runs.py'])", ["other.py", "runs.py"]),
    "of a program by its module": ("subprocess.run(['python', '-m', 'other'])", ["other.py"]),
    "named like one of another system": ("import winreg", ["winreg.py"]),
}


@pytest.mark.parametrize(("text", "files"), IMPORTS.values(), ids=IMPORTS)
def test_modules_of_the_project_are_followed(tmp_path: Path, text: str, files: list[str]) -> None:
    write(
        tmp_path,
        {
            "main.py": text,
            "other.py": "",
            "pack/__init__.py": "",
            "pack/part.py": "",
            "bare/part.py": "",
            "listed/__init__.py": "__all__ = ['part']",
            "listed/part.py": "",
            "lib/hidden.py": "",
            "runs.py": "import other",
            "winreg.py": "",
            "round_one.py": "import round_two",
            "round_two.py": "import round_one",
        },
    )

    assert set(module(tmp_path, "main")) == {"main.py", *files}


def test_code_that_imports_what_it_lists_has_all_modules_beside_it(tmp_path: Path) -> None:
    lists = "import pkgutil\nfor m in pkgutil.iter_modules(['.']): __import__(m.name)\n"
    write(tmp_path, {"top.py": lists, "one.py": "", "below/two.py": ""})

    assert module(tmp_path, "top") == ["one.py", "top.py"]


@pytest.mark.parametrize(
    "text",
    [
        "TEXTS = list(Path(__file__).parent.rglob('*.txt'))",
        "for _, _, names in os.walk(HERE):\n    found = [n for n in names if n.endswith('.txt')]",
    ],
)
def test_files_in_folders_that_are_listed_to_their_depth_belong_to_the_code(
    tmp_path: Path, text: str
) -> None:
    files = {"a/b/one.txt": "", "a/two.json": "", "out/certificate.json": "", ".git/x.txt": ""}
    write(tmp_path, {"top.py": text, **files})

    assert module(tmp_path, "top") == ["a/b/one.txt", "top.py"]


@pytest.mark.parametrize(
    "text", ["match x:\n  case\nimport other\n", "import other\n" + "#" * 4_200_000]
)
def test_imports_are_found_in_code_that_is_not_parsed(tmp_path: Path, text: str) -> None:
    """A command may run it with a newer Python."""
    write(tmp_path, {"top.py": text, "other.py": ""})

    assert module(tmp_path, "top") == ["other.py", "top.py"]


def test_a_name_in_a_configuration_is_a_module_where_code_imports_by_name(tmp_path: Path) -> None:
    reads = "import json\nname = json.load(open('setup.json'))['use']\n"
    write(tmp_path, {"top.py": reads, "setup.json": '{"use": "other"}', "other.py": ""})

    assert module(tmp_path, "top") == ["setup.json", "top.py"]
    write(tmp_path, {"top.py": f"{reads}__import__(name)\n"})
    assert module(tmp_path, "top") == ["other.py", "setup.json", "top.py"]


@pytest.mark.parametrize(
    "text", ["from sys import path\npath.append(x)", "import sys as s\ns.path"]
)
def test_a_path_by_another_name_is_followed(tmp_path: Path, text: str) -> None:
    write(tmp_path, {"top.py": f"{text}\nLIB = 'lib'\nimport deep\n", "lib/deep.py": ""})

    assert module(tmp_path, "top") == ["deep.py", "top.py"]


def test_a_program_is_made_of_the_modules_beside_it(tmp_path: Path) -> None:
    starts = "subprocess.run([sys.executable, 'tools/work.py'])\n"
    tools = {"tools/work.py": "import part, json\n", "tools/part.py": "", "tools/json.py": ""}
    write(tmp_path, {"top.py": starts, **tools})

    # Beside a program, a file comes before Python's own module of its name.
    assert module(tmp_path, "top") == ["json.py", "part.py", "tools/work.py", "top.py"]


@pytest.mark.parametrize("argv", [["python", "top.py"], ["python", "-m", "top"]])
def test_a_file_beside_a_command_can_take_the_place_of_a_module(
    tmp_path: Path, argv: list[str]
) -> None:
    write(tmp_path, {"top.py": "import json, sys\n", "json.py": "", "sys.py": ""})

    found = find_command_code(argv, (tmp_path,))

    assert found is not None
    assert list(found.files) == ["json.py", "top.py"]


def test_files_of_one_name_in_several_programs_all_belong_to_the_code(tmp_path: Path) -> None:
    programs = [f"{tool}/src/main.py" for tool in ("one", "three", "two")]
    starts = "".join(f"subprocess.run(['python', '{each}'])\n" for each in programs)
    write(tmp_path, {"top.py": starts, **dict.fromkeys(programs, "")})

    assert set(module(tmp_path, "top")) == {*programs, "top.py"}


def test_each_program_of_a_command_has_the_modules_beside_it(tmp_path: Path) -> None:
    programs = {f"{each}/run.py": "import part" for each in "ab"}
    write(tmp_path, {**programs, **{f"{each}/part.py": "" for each in "ab"}})

    found = find_command_code(["sh", "-c", "python a/run.py && python b/run.py"], (tmp_path,))

    assert found is not None
    assert list(found.files) == ["a/part.py", "a/run.py", "b/part.py", "b/run.py"]


def test_the_work_grows_with_the_number_of_programs(tmp_path: Path) -> None:
    counts: list[int] = []
    for size in (20, 80):
        folder = tmp_path / str(size)
        parts = {f"t{n}/part{n}.py": "import shared" for n in range(size)}
        programs = {f"t{n}/run.py": f"import json, part{n}" for n in range(size)}
        starts = "".join(f"subprocess.run(['python', '{each}'])\n" for each in programs)
        write(folder, {"top.py": starts, **programs, **parts})
        with count_lines() as count:
            assert len(module(folder, "top")) == 2 * size + 1
        counts.append(count())

    assert counts[1] < 6 * counts[0]


def test_more_files_than_can_be_read_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.certify.code_scan._MAX_SCANNED_FILES", 5)
    data = {f"data/{n}.txt": "" for n in range(9)}
    write(tmp_path, {"top.py": "import os, last\nos.listdir('data')\n", "last.py": "", **data})

    with pytest.raises(ConfigError, match="refers to more than 5 files"):
        find_module_code("top", (tmp_path,))


def test_relative_imports_lead_through_the_package(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "pack/__init__.py": "",
            "pack/one.py": "from . import two\nfrom .deep.three import x\n",
            "pack/two.py": "",
            "pack/deep/__init__.py": "",
            "pack/deep/three.py": "from ...beyond import y\nfrom ..four import z\n",
            "pack/four.py": "",
        },
    )

    assert module(tmp_path, "pack.one") == [
        "pack/__init__.py",
        "pack/deep/__init__.py",
        "pack/deep/three.py",
        "pack/four.py",
        "pack/one.py",
        "pack/two.py",
    ]


def test_a_file_named_like_a_standard_module_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path, {"main.py": "import json\n", "json.py": "raise SystemExit\n"})

    assert module(tmp_path, "main") == ["main.py"]


DATA = {
    "a path": "open('data/words.txt')",
    "joined": "Path(__file__).parent / 'data' / 'words.txt'",
    "of the folder above": "Path(__file__).parents[1] / 'data/words.txt'",
    "a pattern": "Path('data').glob('w*.txt')",
    "a name that is made": "open(f'data/{name}.txt')",
    "a name that is made in a folder": "Path(__file__).parent / 'data' / f'{name}.txt'",
    "a listing": "os.listdir('data')",
    "behind a folder": "open(os.path.dirname(os.path.dirname(__file__)) + '/data/words.txt')",
    "behind a folder in an f-string": "open(f'{HERE}/data/words.txt')",
    "made by format": "open('{}/data/words.txt'.format(HERE))",
    "made by %": "open('%s/data/words.txt' % HERE)",
    "in two parts": "open('data/words' + '.txt')",
    "as bytes": "open(b'data/words.txt')",
    "as an address": "sqlite3.connect('file:data/words.txt?mode=ro', uri=True)",
    "among words": "subprocess.run('grep -c x data/words.txt', shell=True)",
}


@pytest.mark.parametrize("text", DATA.values(), ids=DATA)
def test_data_files_that_the_code_names_belong_to_it(tmp_path: Path, text: str) -> None:
    write(tmp_path, {"pack/main.py": text, "data/words.txt": "x", "other.txt": "y"})

    assert module(tmp_path, "pack.main") == ["data/words.txt", "pack/main.py"]


@pytest.mark.parametrize(
    "text",
    ["Path(__file__).with_suffix('.txt')", "[n for n in os.listdir(HERE) if n.endswith('.txt')]"],
)
def test_a_file_beside_the_code_is_found_by_its_suffix(tmp_path: Path, text: str) -> None:
    write(tmp_path, {"main.py": text, "main.txt": "x", "main.log": "y"})

    assert module(tmp_path, "main") == ["main.py", "main.txt"]


def test_a_configuration_leads_to_the_files_that_it_names(tmp_path: Path) -> None:
    write(tmp_path, {"main.py": "open('main.yaml')", "main.yaml": "prompt: p.txt", "p.txt": "x"})

    assert module(tmp_path, "main") == ["main.py", "main.yaml", "p.txt"]


@pytest.mark.parametrize("text", ['"""See notes.txt."""', "f'{base}/{name}.json'", "f'{a}/{b}'"])
def test_texts_that_only_look_like_paths_lead_nowhere(tmp_path: Path, text: str) -> None:
    write(tmp_path, {"main.py": text, "notes.txt": "x", "out/result.json": "y"})

    assert module(tmp_path, "main") == ["main.py"]


def test_a_folder_does_not_hide_a_module_of_its_name(tmp_path: Path) -> None:
    write(tmp_path, {"one/other/notes.txt": "", "two/main.py": "import other", "two/other.py": ""})

    found = find_module_code("main", (tmp_path / "one", tmp_path / "two"))

    assert found is not None
    assert list(found.files) == ["main.py", "other.py"]


def test_a_name_that_is_too_long_has_no_code(tmp_path: Path) -> None:
    assert find_module_code("x" * 5000, (tmp_path,)) is None
    assert find_command_code(["x" * 5000], (tmp_path,)) is None


def test_files_outside_of_the_project_do_not_belong_to_it(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"project/main.py": "open('../secret.txt'); open('/etc/hostname')", "secret.txt": "x"},
    )

    assert module(tmp_path / "project", "main") == ["main.py"]


def test_code_that_cannot_be_parsed_is_its_own_file(tmp_path: Path) -> None:
    write(tmp_path, {"main.py": "def (:\n"})

    assert module(tmp_path, "main") == ["main.py"]


def test_a_module_that_is_not_there_has_no_code(tmp_path: Path) -> None:
    assert find_module_code("nowhere_at_all", (tmp_path,)) is None
    assert find_module_code("sys", (tmp_path,)) is None


def test_left_out_is_what_is_certified_by_itself(tmp_path: Path) -> None:
    write(tmp_path, {"main.py": "open('golden.jsonl')", "golden.jsonl": "{}"})

    found = find_module_code("main", (tmp_path,), frozenset({tmp_path.resolve() / "golden.jsonl"}))

    assert found is not None
    assert list(found.files) == ["main.py"]


COMMANDS = {
    "a script": (["python", "run.py", "--fast"], ["helper.py", "run.py"]),
    "an option": (["agent", "--config=config.json"], ["config.json"]),
    "a module": (["python", "-m", "run"], ["helper.py", "run.py"]),
    "a shell script": (["./start.sh"], ["helper.py", "run.py", "start.sh"]),
    "a command line of a shell": (["sh", "-c", "python run.py"], ["helper.py", "run.py"]),
    "code": (["python", "-c", "import run; run.main()"], ["helper.py", "run.py"]),
    "a module without a space": (["python", "-mrun"], ["helper.py", "run.py"]),
    "a package": (
        ["python", "-m", "pack"],
        ["helper.py", "pack/__init__.py", "pack/__main__.py"],
    ),
    "a folder": (["python", "app"], ["app/__main__.py", "helper.py"]),
    "a script without a suffix": (["./tool"], ["helper.py", "tool"]),
    "modules of node": (["node", "agent.js"], ["agent.js", "part.js"]),
}


@pytest.mark.parametrize(("argv", "files"), COMMANDS.values(), ids=COMMANDS)
def test_a_command_is_made_of_the_files_that_it_names(
    tmp_path: Path, argv: list[str], files: list[str]
) -> None:
    files_there = {
        "run.py": "import helper\n",
        "helper.py": "",
        "config.json": "{}",
        "start.sh": "#!/bin/sh\nexec python run.py\n",
        "pack/__init__.py": "",
        "pack/__main__.py": "import helper\n",
        "app/__main__.py": "import helper\n",
        "tool": "#!/usr/bin/env python3\nimport helper\n",
        "agent.js": "const part = require('./part');\n",
        "part.js": "",
    }
    write(tmp_path, files_there)

    found = find_command_code(argv, (tmp_path,))

    assert found is not None
    assert list(found.files) == files


def test_a_command_without_files_of_the_project_has_no_code(tmp_path: Path) -> None:
    assert find_command_code(["cat", "-"], (tmp_path,)) is None


def test_a_check_file_is_made_of_the_functions_that_it_names(tmp_path: Path) -> None:
    checks = "checks:\n  - {name: polite, python: own_checks:polite}\n"
    write(
        tmp_path,
        {"checks.yaml": checks, "own_checks.py": "import words\n", "words.py": ""},
    )

    found = find_file_code(tmp_path / "checks.yaml", (tmp_path,))

    assert list(found.files) == ["checks.yaml", "own_checks.py", "words.py"]


def test_a_function_that_says_it_is_another_is_digested_as_both() -> None:
    @functools.wraps(Path.read_text)
    def answer(sample: object) -> str:
        return "always this"

    found = find_callable_code(answer)

    assert found is not None
    assert "test_source_files.py" in found.files
    assert compute_file_sha256(Path(__file__)) in found.files.values()


def test_code_without_a_file_has_none() -> None:
    assert find_callable_code(len) is None


def test_the_code_of_scripts_is_located_with_modules_data_and_import_folders(
    tmp_path: Path,
) -> None:
    (tmp_path / "lib" / "rules").mkdir(parents=True)
    (tmp_path / "evals").mkdir()
    (tmp_path / "lib" / "rules" / "__init__.py").write_text("")
    (tmp_path / "evals" / "prompt.txt").write_text("Answer.")
    (tmp_path / "evals" / "unrelated.py").write_text("")
    (tmp_path / "evals" / "rows.jsonl").write_text("")
    script = tmp_path / "evals" / "script.py"
    script.write_text('import json\nimport rules\nprompt, rows = "prompt.txt", "rows.jsonl"\n')

    rows = (tmp_path / "evals" / "rows.jsonl").resolve()
    located = locate_code([script], (tmp_path / "lib",), frozenset({rows}))

    names = [file.relative_to(tmp_path).as_posix() for file in located.files]
    assert names == ["evals/prompt.txt", "evals/script.py", "lib/rules/__init__.py"]
    assert located.import_folders == (tmp_path / "evals", tmp_path / "lib")
