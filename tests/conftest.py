"""Settings of the whole suite."""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from assay.types.redaction import _LIVE_REDACTORS

pytest_plugins = ["pytester", "view_fixtures", "sample_fixtures"]

_ROOT = Path(__file__).parent
SHARED_FOLDER = "ASSAY_SUITE_FOLDER"

# The suite itself may run on GitHub: what it tests is not to write to the page of that run.
for _name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
    os.environ.pop(_name, None)

# Nor is it to ask its servers on loopback through the proxy of whoever runs it.
for _name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
    os.environ.pop(_name, None)
    os.environ.pop(_name.lower(), None)

# Started in the background of a script, the suite inherits that Ctrl-C is ignored, and so would
# every process that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How fast examples are made says something about the machine, nothing about the code.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

# Whole processes, whole trainings, whole pages: half of the time of the suite and more. With them
# all that needs torch or transformers, which other Pythons are tested without.
SLOW = (
    "cli/test_train_grpo.py",
    "cli/test_train_sft.py",
    "environments/remote/test_mcp_session.py",
    "environments/remote/test_native.py",
    "environments/test_local_tools.py",
    "export/test_llamafactory_reader.py",
    "export/test_skyrl_reader.py",
    "export/test_token_lengths.py",
    "export/test_trl_trainers.py",
    "export/test_verl_reader.py",
    "faults",
    "flows",
    "providers/test_chat_prompts.py",
    "providers/test_gguf.py",
    "providers/test_gguf_engine.py",
    "providers/test_in_process.py",
    "providers/test_in_process_decoder.py",
    "providers/test_in_process_folder.py",
    "providers/test_in_process_model.py",
    "providers/test_tool_formats.py",
    "pytest_plugin/test_gates_say_no.py",
    "pytest_plugin/test_plugin.py",
    "stats/test_permutation.py",
    "stats/test_power.py",
    "test_benchmarks.py",
    "test_docs.py",
    "test_import_cost.py",
    "test_seeds.py",
    "train",
)


@pytest.fixture(autouse=True)
def _forget_quickstart() -> Iterator[None]:
    # In an editable installation these files are modules of the distribution. pytest warns in a
    # session inside a test if one of them is imported already.
    yield
    for name in ("arithmetic", "train_sums"):
        sys.modules.pop(name, None)


@pytest.fixture(autouse=True)
def _forget_secrets() -> None:
    """Forget the keys of earlier tests: until they are collected, every text is cleared of them."""
    _LIVE_REDACTORS.clear()


def pytest_configure(config: pytest.Config) -> None:
    """Make a folder that all workers share, and remove it when the last of them has ended."""
    # Workers inherit the variable. Other users may enter, unlike pytest's own folders: a PostgreSQL
    # server that root starts runs as another one.
    if SHARED_FOLDER not in os.environ:
        folder = os.environ[SHARED_FOLDER] = tempfile.mkdtemp(prefix="assay-")
        Path(folder).chmod(0o755)

        def remove() -> None:
            del os.environ[SHARED_FOLDER]
            shutil.rmtree(folder, ignore_errors=True)

        config.add_cleanup(remove)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import the slow tests for `make check`: torch alone takes ten seconds a worker."""
    return True if config.option.markexpr == "not slow" and _is_slow(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that `make check` leaves out."""
    for item in items:
        if _is_slow(item.path):
            item.add_marker(pytest.mark.slow)


def _is_slow(path: Path) -> bool:
    return any(path.is_relative_to(_ROOT / slow) for slow in SLOW)
