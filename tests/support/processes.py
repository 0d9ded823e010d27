"""Processes that evaluate, and what they left behind."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from assay.store import AttemptRow, Store
from assay.types import Sample
from misbehaving import PATIENCE_S

PROGRAM = Path(__file__).parent / "program.py"


class Evaluation:
    """A process that evaluates. What it writes is read while it runs."""

    def __init__(self, command: Sequence[str], folder: Path, **environment: str) -> None:
        self._stderr = (folder / f"stderr-{os.urandom(4).hex()}.txt").open("w+b")
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(PROGRAM.parent), **environment},
        )
        self._lines: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stdout(self) -> str:
        with self._news:
            return "".join(self._lines)

    @property
    def stderr(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode()

    def said(self, kind: str) -> list[Any]:
        """What `program.py` said of one kind, in order."""
        found = (json.loads(line) for line in self.stdout.splitlines())
        return [line[kind] for line in found if kind in line]

    @property
    def kept(self) -> list[str]:
        """Ids of samples that the store has confirmed."""
        return self.said("kept")

    @property
    def summary(self) -> Any:
        assert self.said("report"), self.stderr
        return self.said("report")[0]["summary"]

    @property
    def error(self) -> Any:
        """The one error that ended it."""
        (error,) = self.said("error")
        return error

    def wait_until(self, holds: Callable[["Evaluation"], bool]) -> None:
        """Return once something is true of what it wrote; fail if it ends before."""
        with self._news:
            assert self._news.wait_for(
                lambda: holds(self) or not self._reader.is_alive(), PATIENCE_S
            ), f"still waiting: {self.stderr}"
        assert holds(self), f"ended without it: {self.stderr}"

    def wait_for_stderr(self, text: str) -> None:
        """Return once it has written this to stderr."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.stderr:
            assert not self.has_ended, f"ended without {text!r}: {self.stderr}"
            assert time.monotonic() < deadline, f"still waiting for {text!r}: {self.stderr}"
            time.sleep(0.005)

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it as a machine that loses its power would: without a word."""
        self._process.kill()
        self.ended()

    def ended(self) -> int:
        """Wait for its end: its exit status."""
        status = self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return status

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.ended()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._stderr.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self._lines.append(line.decode())
                self._news.notify_all()
        with self._news:
            self._news.notify_all()


def program(**options: Any) -> list[str]:
    """The command that runs `program.py` for one evaluation."""
    return programs([options])


def programs(every: Sequence[dict[str, Any]]) -> list[str]:
    """The command that runs `program.py` for several evaluations, one after another."""
    return [sys.executable, str(PROGRAM), json.dumps(every, default=str)]


def assay(*arguments: object) -> list[str]:
    """The command line of a user."""
    return [sys.executable, "-m", "assay", *map(str, arguments)]


def write_rows(path: Path, names: Iterable[str]) -> Path:
    """A dataset whose samples have these ids and ask to say them."""
    rows = ({"id": name, "question": name, "answer": name} for name in names)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def names(count: int, prefix: str = "r") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


class Recorded:
    """What the newest run in a store holds."""

    def __init__(self, store: Path) -> None:
        with Store.open(store, create=False) as opened:
            run = opened.run()
            self.status = run.row().status
            self.results = [row.sample_id for row in run.results(failed=False)]
            """Ids of samples with a result, one for each result."""

            self.samples: dict[str, Sample] = {sample.id: sample for sample in run.samples()}
            """With those that failed."""

            self.attempts: dict[str, AttemptRow] = {row.sample_id: row for row in run.attempts()}
