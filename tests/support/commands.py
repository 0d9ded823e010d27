"""`assay` commands in a folder: as a call of `main`, or as a process of their own.

A call takes as long as its work. A process takes most of a second more to start, and is for what
only a process has: signals, an exit status, descriptors, modules that nothing has loaded yet.
"""

import importlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType

from assay.cli import main

Ended = subprocess.CompletedProcess[str]

# Settings and keys of whoever runs the suite.
_HIDDEN = ("ASSAY_STORE", "ASSAY_HOME", "OPENAI_API_KEY", "ANTHROPIC_API_KEY")
_TIMEOUT_S = 300.0


def call_main(folder: Path, *words: str, **environment: str) -> Ended:
    """Run `assay WORDS` in this process. Modules in `folder` are imported afresh at each call."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    out, err = streams
    with _stand_in(folder, environment), redirect_stdout(out), redirect_stderr(err):
        status = main(words)
    texts = []
    for stream in streams:
        stream.seek(0)
        texts.append(stream.read())
        stream.close()
    return Ended(["assay", *words], status, *texts)


def run_process(folder: Path, *words: str, **environment: str) -> Ended:
    """Run `assay WORDS` in a process of its own, in which warnings are errors."""
    return subprocess.run(
        build_command(*words),
        cwd=folder,
        env=build_environment(**environment),
        capture_output=True,
        encoding="utf-8",
        timeout=_TIMEOUT_S,
    )


def build_command(*words: str) -> list[str]:
    """Return the command line of `assay WORDS`, with warnings as errors."""
    return [sys.executable, "-W", "error", "-m", "assay", *words]


def build_environment(**more: str) -> dict[str, str]:
    """Return the environment of a command: that of the suite without its user's settings."""
    kept = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
    return {**kept, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8", **more}


@contextmanager
def _stand_in(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """Change into `folder` and, when leaving, undo what a command does to its process."""
    before, path, kept = Path.cwd(), list(sys.path), dict(os.environ)
    loaded = set(sys.modules)
    writes_bytecode = sys.dont_write_bytecode
    # A file that a test writes twice in one second would be taken for the first one's bytecode.
    sys.dont_write_bytecode = True
    _replace_environment(build_environment(**environment))
    os.chdir(folder)
    # As `python -m assay` does.
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        fresh = sys.modules.keys() - loaded
        for name in [name for name in fresh if _is_inside(folder, sys.modules[name])]:
            del sys.modules[name]
        sys.path[:] = path
        os.chdir(before)
        _replace_environment(kept)
        sys.dont_write_bytecode = writes_bytecode


def _is_inside(folder: Path, module: ModuleType) -> bool:
    # From `vars`: looking an attribute up makes a lazy module import more.
    found = vars(module)
    files = [found["__file__"]] if found.get("__file__") else found.get("__path__", [])
    return any(Path(file).is_relative_to(folder) for file in files)


def _replace_environment(values: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(values)
