"""Session sources of plug-ins: selected and counted like those of assay."""

from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.sessions import SessionChoice, read_plugin_sessions
from plugin_package import install_package

CODE = """
from assay.errors import BadRow
from assay.sessions import RecordedSession, SessionMeta, UnreadableSession
from assay.types import Message, Sample

def read(path):
    for name in path.read_text().split():
        if name == "damaged":
            yield UnreadableSession(name, BadRow("the session is cut off", where=name))
            continue
        prompt = [Message(role="user", content=f"Hello {name}")]
        sample = Sample(id=name, prompt=prompt)
        yield RecordedSession(SessionMeta(name, title=name), lambda sample=sample: sample)
    yield "the file has no version"

def read_texts(path):
    yield path

number = 4
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("read", "read_texts", "number")
    entries = {f"session_sources.{name}": f"acme_assay:{name}" for name in names}
    install_package(tmp_path, monkeypatch, entries, code=CODE)
    (tmp_path / "log.txt").write_text("one damaged two")


def test_sessions_are_selected_and_counted(tmp_path: Path) -> None:
    everything = read_plugin_sessions("read", tmp_path / "log.txt")
    chosen = read_plugin_sessions("read", tmp_path / "log.txt", SessionChoice(title="TWO"))

    assert [sample.id for sample in everything] == ["one", "two"]
    assert [each.session_id for each in everything.reading.skipped] == ["damaged"]
    assert everything.reading.notes == ["the file has no version"]
    assert [sample.id for sample in chosen] == ["two"]
    assert chosen.reading.not_chosen == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("number", "the source is of type `int`, not a function"),
        ("nowhere", "unknown source 'nowhere'"),
    ],
)
def test_what_reads_no_sessions_is_refused(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        read_plugin_sessions(name, tmp_path / "log.txt")


def test_a_source_that_yields_something_else_is_refused(tmp_path: Path) -> None:
    stream = read_plugin_sessions("read_texts", tmp_path / "log.txt")

    with pytest.raises(ConfigError, match="the source yields a `PosixPath`, not a RecordedSession"):
        list(stream)


def test_a_missing_path_is_refused_before_the_source_is_called(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the file or folder does not exist"):
        read_plugin_sessions("read", tmp_path / "gone.txt")
