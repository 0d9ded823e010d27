"""`assay` commands in a folder: as a call of `main`, or as a process of their own.

A call takes as long as its work. A process takes most of a second more to start, and is for what
only a process has: signals, an exit status, descriptors, modules that nothing has loaded yet.
"""

import importlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType

from assay.cli import main

Ended = subprocess.CompletedProcess[str]

# Settings and keys of whoever runs the suite.
_HIDDEN = (
    *(
        "ASSAY_STORE",
        "ASSAY_HOME",
        "PYTEST_ADDOPTS",
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "GEMINI_API_KEY",
    ),
    *(
        "GOOGLE_API_KEY",
        "AZURE_OPENAI_API_KEY",
        "AZURE_OPENAI_ENDPOINT",
        "AWS_BEARER_TOKEN_BEDROCK",
    ),
)
_TIMEOUT_S = 300.0
# A virtual environment may lend its packages from another one, by a `.pth` file.
_PACKAGES = [folder for folder in sys.path if Path(folder).name == "site-packages"]
_KEPT_ROOTS = (sys.prefix, sys.base_prefix, *_PACKAGES, str(Path(__file__).parents[2]))


def call_main(folder: Path, *words: str, **environment: str) -> Ended:
    """Run `assay WORDS` in this process. The modules of a test are imported afresh at each call."""
    out, err = open_stream(), open_stream()
    with enter_folder(folder, environment), redirect_stdout(out), redirect_stderr(err):
        status = main(words)
    return Ended(["assay", *words], status, read_stream(out), read_stream(err))


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
def enter_folder(folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
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
        for name in [name for name in fresh if not _is_kept(sys.modules[name])]:
            del sys.modules[name]
        sys.path[:] = path
        os.chdir(before)
        _replace_environment(kept)
        sys.dont_write_bytecode = writes_bytecode


def open_stream() -> io.TextIOWrapper:
    """Open what takes the place of stdout or stderr: bytes in memory, with an encoding."""
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8")


def read_stream(stream: io.TextIOWrapper) -> str:
    """Return all that was written to a stream of `open_stream`, and close it."""
    with stream:
        stream.seek(0)
        return stream.read()


def _is_kept(module: ModuleType) -> bool:
    """Whether a module is Python's, installed or of this repository, rather than of a test."""
    # From `vars`: looking an attribute up makes a lazy module import more.
    found = vars(module)
    files = [found["__file__"]] if found.get("__file__") else found.get("__path__", [])
    return all(any(Path(file).is_relative_to(root) for root in _KEPT_ROOTS) for file in files)


def _replace_environment(values: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(values)
