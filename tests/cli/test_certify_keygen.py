"""`assay certify keygen`: two files, and never over another."""

import json
import stat
from pathlib import Path

import pytest

from assay.certify.signatures import read_signing_key
from assay.cli import main


def test_two_files_are_written_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "key.pem"

    assert main(["certify", "keygen", "-o", str(path), "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert told["public"] == str(tmp_path / "key.pub.pem")
    assert told["key_id"] == read_signing_key(path).key_id
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_key_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["certify", "keygen", "-o", str(tmp_path / "key.pem")]

    assert main(command) == 0
    first = (tmp_path / "key.pem").read_text()
    assert main(command) == 2

    captured = capsys.readouterr()
    assert "keep it secret" in captured.out
    assert "the key file already exists" in captured.err
    assert (tmp_path / "key.pem").read_text() == first


def test_a_passphrase_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KEY_WORDS", "open sesame")
    path = str(tmp_path / "key.pem")

    assert main(["certify", "keygen", "-o", path, "--passphrase-env", "KEY_WORDS"]) == 0
    assert read_signing_key(Path(path), passphrase="open sesame")
    assert main(["certify", "keygen", "-o", f"{path}2", "--passphrase-env", "NO_SUCH"]) == 2

    captured = capsys.readouterr()
    assert "the environment variable NO_SUCH is not set" in captured.err
    assert "sesame" not in captured.out + captured.err
