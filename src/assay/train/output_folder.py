"""The output folder of a training: what is where, and to which training it belongs."""

import json
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from assay.errors import ConfigError, TrainingError

StartT = TypeVar("StartT", bound=BaseModel)


class OutputFolder:
    """A folder that belongs to one training."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.metrics = folder / "metrics.jsonl"
        self.checkpoints = folder / "checkpoints"
        self.model = folder / "model"
        self.curve = folder / "reward.svg"
        self._begun = folder / "training.json"
        self._lock = folder / "training.lock"

    def check(self, *, resume: bool) -> None:
        """Raise `ConfigError` unless a training can begin, or go on, here. Writes nothing."""
        where = str(self.folder)
        if resume and not self._begun.exists():
            raise ConfigError(
                "the folder does not contain a training to resume",
                where=where,
                hint="omit resume to start one",
            )
        if not resume and self._begun.exists():
            raise ConfigError(
                "the folder already contains a training",
                where=where,
                hint="resume it, or choose another output folder",
            )
        if not resume and (in_the_way := self._find_foreign_files()):
            raise ConfigError(
                f"the folder contains {', '.join(in_the_way)}, not of a training: training would "
                "overwrite them",
                where=where,
                hint="choose another output folder",
            )
        _check_writable(self.folder)

    def _find_foreign_files(self) -> list[str]:
        ours = (self.metrics, self.checkpoints, self.model, self.curve)
        return [path.name for path in ours if path.exists()]

    @contextmanager
    def claim(self, *, resume: bool, take_over: bool = False) -> Iterator[None]:
        """Keep other trainings out of the folder, for as long as this process lives at most.

        Raises `ConfigError` that says which process has it, unless its training is to be taken
        over, and for what `check` refuses.
        """
        with self._open_lock() as file:
            if _try_lock(file):
                _write_lock_owner(file)
            elif not (resume and take_over):
                raise ConfigError(
                    f"{_read_lock_owner(file)} is training in this folder",
                    where=str(self.folder),
                    hint="wait for it or stop it, or choose another output folder",
                )
            try:
                # Another training may have begun, and even ended, since this one was checked.
                self.check(resume=resume)
                yield
            finally:
                _unlock(file)

    def _open_lock(self) -> FileIO:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            return self._lock.open("ab+", buffering=0)
        except OSError as error:
            raise _make_write_error(self.folder, error) from None

    def make(self) -> None:
        """Make the folder, unless it is there."""
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _make_write_error(self.folder, error) from None

    def begin(self, begun: BaseModel) -> None:
        """Say what the training began with: from now on the folder belongs to it."""
        self.make()
        replace_text(self._begun, begun.model_dump_json() + "\n")

    def begun(self, kind: type[StartT]) -> StartT:
        """What was said when the training began."""
        try:
            return kind.model_validate(json.loads(self._begun.read_bytes()))
        except (OSError, ValueError, ValidationError) as error:
            raise TrainingError(
                f"the file cannot be read: {str(error).splitlines()[0]}", where=str(self._begun)
            ) from None


def replace_text(path: Path, text: str) -> None:
    """Write a file so that it is never seen in part."""
    beside = path.with_suffix(".tmp")
    beside.write_text(text, "utf-8")
    os.replace(beside, path)


def _try_lock(file: FileIO) -> bool:
    """Whether no other process has the lock. The system lifts it when a process ends, however."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass  # a system or a disk without locks
    return True


def _unlock(file: FileIO) -> None:
    # Closing the file would not do while a forked process has it as well.
    with suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)


def _write_lock_owner(file: FileIO) -> None:
    # A disk that is full is told of where something must be written.
    with suppress(OSError):
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())


def _read_lock_owner(file: FileIO) -> str:
    """Which process has the lock of a file, unless it had no time yet to say so."""
    file.seek(0)
    return file.read(200).decode("utf-8", "replace") or "another process"


def _check_writable(folder: Path) -> None:
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        # Rights alone do not tell: a disk may be full, or for reading only.
        with tempfile.TemporaryDirectory(dir=nearest):
            pass
    except OSError as error:
        raise _make_write_error(folder, error) from None


def _make_write_error(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(f"the folder cannot be written: {error.strerror}", where=str(folder))
