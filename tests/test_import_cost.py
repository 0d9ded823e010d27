"""What importing costs, counted in modules: times differ between machines, modules do not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BUDGET = 10
SOURCE = Path(__file__).parents[1] / "src" / "assay"


def loaded_by(code: str) -> set[str]:
    """The modules of a fresh interpreter after `code`."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint('\\n' + '\\n'.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return set(done.stdout.split())


def extra(code: str, *, beyond: str) -> set[str]:
    return loaded_by(code) - loaded_by(beyond)


def test_importing_assay_stays_within_the_budget() -> None:
    added = extra("import assay", beyond="")

    assert "assay" in added
    assert len(added) <= BUDGET, sorted(added)


def test_the_pytest_entry_point_stays_within_the_budget() -> None:
    added = extra("import pytest\nimport assay.pytest_plugin", beyond="import pytest")

    assert "assay.pytest_plugin" in added
    assert len(added) <= BUDGET, sorted(added)


def test_the_budget_counts_what_a_public_name_loads() -> None:
    """The guard's own proof: touching the table loads far more than the budget allows."""
    added = extra("import assay\nassay.Sample", beyond="")

    assert "pydantic" in added
    assert len(added) > BUDGET


def session_modules(folder: Path, *options: str) -> set[str]:
    """The modules at the end of a pytest session that collects one test."""
    (folder / "test_one.py").write_text("def test_one(): pass\n")
    (folder / "conftest.py").write_text(
        "import json, sys\n"
        "def pytest_sessionfinish():\n"
        "    with open('modules.json', 'w') as file:\n"
        "        json.dump(sorted(sys.modules), file)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--co", "-q", "-p", "no:cacheprovider", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return set(json.loads((folder / "modules.json").read_text()))


def test_the_plugin_adds_little_to_a_whole_pytest_session(tmp_path: Path) -> None:
    added = session_modules(tmp_path) - session_modules(tmp_path, "-p", "no:assay")

    assert "assay.pytest_plugin" in added
    assert len(added) <= BUDGET, sorted(added)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_and_version_load_neither_the_models_nor_rich(arguments: list[str]) -> None:
    loaded = loaded_by(f"from assay.cli import main\nassert main({arguments}) == 0")

    assert "assay.cli" in loaded
    assert not {"pydantic", "pydantic_core", "rich", "assay.types"} & loaded


_RECORDED = """
import asyncio
from assay import EvalConfig, evaluate

dataset = [{"id": f"r{n}", "question": f"Say {n}", "answer": str(n)} for n in range(20)]
for right in (10, 20):
    config = EvalConfig(endpoint="mock:echo", score_fn=lambda s: float(int(s.ground_truth) < right))
    asyncio.run(evaluate(dataset, config, store="STORE"))
"""
_READ = """
from assay.cli import main
from assay.store import Store

with Store.open("STORE") as store:
    run = store.runs()[-1].id
main([word.replace("FIRST", run) for word in WORDS] + ["--store", "STORE"])
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, set[str]]:
    """A store with two runs, and the modules that recording them loaded."""
    store = str(tmp_path_factory.mktemp("recorded") / "assay.db")
    return store, loaded_by(_RECORDED.replace("STORE", store))


NUMERICAL = {"numpy", "scipy"}
# Needed to record, to show a transcript, or by a store on a server; slow to import.
UNREAD = {"asyncio", "aiohttp", "psycopg", "rich.console", "assay.types.agent_session"}


@pytest.mark.parametrize(
    "words",
    [
        ["runs"],
        ["show", "latest"],
        ["compare", "FIRST", "latest"],
        ["gate", "latest", "--threshold", "0.5", "--proven", "--baseline", "FIRST"],
    ],
    ids=lambda words: words[0],
)
def test_reading_a_small_run_loads_only_what_it_needs(
    words: list[str], recorded: tuple[str, set[str]]
) -> None:
    store, _ = recorded
    loaded = loaded_by(_READ.replace("STORE", store).replace("WORDS", repr(words)))

    assert f"assay.cli.{words[0]}" in loaded
    assert not (NUMERICAL | UNREAD) & loaded


def test_evaluating_loads_no_numerical_library(recorded: tuple[str, set[str]]) -> None:
    _, loaded = recorded

    assert {"assay.runner", "asyncio"} <= loaded
    assert not (NUMERICAL | {"aiohttp", "psycopg"}) & loaded


def test_random_signs_of_many_differences_are_drawn_with_numpy() -> None:
    """The guard's own proof: what is loaded late is seen as well."""
    loaded = loaded_by("from assay.stats import sign_flip_test\nsign_flip_test(range(1, 30))")

    assert NUMERICAL & loaded == {"numpy"}


_CONNECTED = """
from assay.providers import connect, parse_model
for name in ("mock:echo", "vllm:m", "openai-compatible:m@http://127.0.0.1:1/v1"):
    connect(parse_model(name))
"""
_CHECKED = """
from assay.providers import connect
from assay.types import Endpoint
connect(Endpoint(provider="local", model="MODEL"))
"""


@pytest.mark.parametrize(
    "code",
    ["import assay", "from assay.cli import main\nmain(['--help'])", _CONNECTED, _CHECKED],
    ids=["import", "help", "connect", "connect to a file"],
)
def test_engines_of_local_models_are_not_loaded_before_they_are_asked(
    code: str, tmp_path: Path
) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF")

    loaded = loaded_by(code.replace("MODEL", str(model)))

    assert "assay" in loaded
    assert not {"torch", "transformers", "xllamacpp", "jinja2"} & loaded


_WATCHED = ("socket.", "os.putenv", "os.unsetenv", "os.system", "subprocess.Popen", "urllib.")

_WATCH = f"""
import sys
seen = []
sys.addaudithook(lambda event, args: event.startswith({_WATCHED}) and seen.append(event))
"""


def watched(code: str) -> tuple[list[str], str]:
    """What `code` does to the world besides importing, and what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", f"{_WATCH}\n{code}\nprint('\\nSEEN', *seen)"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    printed, _, events = done.stdout.rpartition("\nSEEN")
    return events.split(), printed + done.stderr


def module_names() -> list[str]:
    paths = [path.relative_to(SOURCE.parent) for path in SOURCE.rglob("*.py")]
    dotted = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths}
    return sorted(dotted)


def test_importing_every_module_is_silent() -> None:
    names = module_names()

    events, printed = watched("\n".join(f"import {name}" for name in names))

    assert {"assay", "assay.errors", "assay.types.sample", "assay.__main__"} <= set(names)
    assert (events, printed) == ([], "")


@pytest.mark.parametrize(
    ("code", "event"),
    [
        ("import socket; socket.socket()", "socket.__new__"),
        ("import socket; socket.getaddrinfo('localhost', 1)", "socket.getaddrinfo"),
        ("import os; os.environ['ASSAY_MADE_UP'] = '1'", "os.putenv"),
        ("import subprocess; subprocess.run(['true'])", "subprocess.Popen"),
    ],
)
def test_the_watch_notices_what_an_import_may_not_do(code: str, event: str) -> None:
    events, _ = watched(code)

    assert event in events


def test_the_watch_notices_output() -> None:
    assert watched("print('hello')")[1] == "hello\n"
