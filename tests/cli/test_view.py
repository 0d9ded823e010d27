"""`assay view`: the address it prints, its ends, and what it refuses."""

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from assay.store import Store
from commands import build_command, build_environment, call_main
from recorded_pages import record_run, total

_TIMEOUT_S = 120.0


def start(folder: Path, *words: str, **environment: str) -> "subprocess.Popen[str]":
    with Store.open(folder / "assay.db") as store:
        record_run(store, "r", [total(0, 0)])
    return subprocess.Popen(
        build_command("view", "--store", "assay.db", "--no-open", *words),
        cwd=folder,
        env=build_environment(**environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_pages_are_served_until_a_signal(tmp_path: Path, ending: signal.Signals) -> None:
    with start(tmp_path, "--port", "0") as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        with urllib.request.urlopen(f"{address}api/runs", timeout=_TIMEOUT_S) as answer:
            body = answer.read()
        os.kill(process.pid, ending)
        out, err = process.communicate(timeout=_TIMEOUT_S)

    assert b'"id":"r"' in body
    assert (process.returncode, out) == (0, "")
    assert err.startswith("showing ")
    assert "Traceback" not in err


def test_a_token_is_printed_as_a_part_of_the_address(tmp_path: Path) -> None:
    with start(tmp_path, "--port", "0", "--token") as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        bare = address.partition("?")[0]
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(bare, timeout=_TIMEOUT_S)
        refused.value.close()
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(address, timeout=_TIMEOUT_S) as answer:
            assert answer.status == 200
        process.terminate()
        process.communicate(timeout=_TIMEOUT_S)

    assert "?token=" in address
    assert process.returncode == 0


def test_a_missing_store_is_refused(tmp_path: Path) -> None:
    ended = call_main(tmp_path, "view", "--no-open")

    assert ended.returncode == 3
    assert "the store does not exist" in ended.stderr


def test_a_port_that_is_no_port_is_refused(tmp_path: Path) -> None:
    with Store.open(tmp_path / "assay.db"):
        pass

    ended = call_main(tmp_path, "view", "--no-open", "--store", "assay.db", "--port", "70000")

    assert ended.returncode == 2
    assert "port must be between 0 and 65535" in ended.stderr


def test_a_missing_extra_is_named_in_one_line(tmp_path: Path) -> None:
    with Store.open(tmp_path / "assay.db"):
        pass
    code = (
        "import sys; sys.modules['starlette'] = None; from assay.cli import main; "
        "sys.exit(main(['view', '--no-open', '--store', 'assay.db']))"
    )

    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=build_environment(),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )

    assert ended.returncode == 2
    assert "`assay view` needs the package `starlette`" in ended.stderr
    assert "assay-eval[view]" in ended.stderr
    assert "Traceback" not in ended.stderr
