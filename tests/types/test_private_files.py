"""Who may read what is written: its owner alone, unless the owner said otherwise."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.types.private_files import (
    create_private,
    make_private_folder,
    open_private,
    replace_private,
    write_private,
)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture(params=[0o000, 0o022, 0o077], autouse=True)
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def test_a_new_file_is_its_owners_from_the_first_byte(tmp_path: Path) -> None:
    path = tmp_path / "new"

    with open_private(path) as file:
        assert mode(path) == 0o600
        file.write("ä\n")

    assert (mode(path), path.read_bytes()) == (0o600, "ä\n".encode())


def test_a_file_that_was_left_behind_is_not_written_into(tmp_path: Path) -> None:
    elsewhere, left = tmp_path / "elsewhere", tmp_path / "left"
    elsewhere.write_text("mine")
    left.symlink_to(elsewhere)

    with open_private(left) as file:
        file.write("private")

    assert (elsewhere.read_text(), left.is_symlink(), mode(left)) == ("mine", False, 0o600)


def test_an_existing_file_is_never_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.write_text("data")

    with pytest.raises(FileExistsError):
        create_private(path)

    assert path.read_text() == "data"


@pytest.mark.parametrize("chosen", [0o644, 0o640, 0o600, 0o664])
def test_overwriting_keeps_the_mode_that_was_chosen(chosen: int, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("old")
    path.chmod(chosen)

    write_private(path, "new")

    assert (mode(path), path.read_text()) == (chosen, "new")
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_placed_is_removed(tmp_path: Path) -> None:
    (tmp_path / "folder" / "full").mkdir(parents=True)

    with pytest.raises(ConfigError, match="folder is a folder"):
        write_private(tmp_path / "folder", "text")

    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_replacing_what_is_not_there_makes_a_private_file(tmp_path: Path) -> None:
    create_private(tmp_path / "a")

    replace_private(tmp_path / "a", tmp_path / "b")

    assert mode(tmp_path / "b") == 0o600


def test_each_folder_that_is_made_is_its_owners(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    make_private_folder(tmp_path / "a" / "b")
    (tmp_path / "a").chmod(0o750)
    make_private_folder(tmp_path / "a" / "b")

    assert (mode(tmp_path), mode(tmp_path / "a"), mode(tmp_path / "a" / "b")) == (
        0o755,
        0o750,
        0o700,
    )


def test_a_shared_file_and_folder_are_open_to_the_group(tmp_path: Path) -> None:
    make_private_folder(tmp_path / "a" / "b", 0o770)
    create_private(tmp_path / "a" / "file", 0o660)

    assert [mode(tmp_path / "a" / name) for name in ("b", "file")] == [0o770, 0o660]
    assert mode(tmp_path / "a") == 0o770


def test_a_file_does_not_replace_a_pipe(tmp_path: Path) -> None:
    """Renamed onto /dev/null, a file would replace the device for the whole machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(ConfigError, match="pipe is a device or a pipe, not a file"):
        write_private(pipe, "text")
    assert pipe.is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]
