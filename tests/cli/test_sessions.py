"""`assay sessions`: what is listed and shown, and how a stored conversation goes on."""

import json
import sys
from pathlib import Path

import pytest

from assay.cli import main
from assay.store import Store
from assay.types import AgentSession, Endpoint, Message, Status

ECHO = Endpoint(provider="mock", model="echo")
BROKEN = Endpoint(
    provider="mock", model="script", extra_params={"replies": [{"error": "garbled"}], "loop": True}
)
FILE = """
from assay.runner import EvalConfig
from assay.types import Endpoint

config = EvalConfig(
    endpoint=Endpoint(provider="mock", model="echo"), score_fn=lambda sample: 1.0
)
dataset = [{"id": "q", "question": "And then?"}]
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("ASSAY_STORE", "ASSAY_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    said = [Message(role="user", content="hi"), Message(role="assistant", content="hello")]
    with Store.open() as opened:
        opened.save_session(
            AgentSession(id="chat", endpoint=ECHO, messages=said, status=Status.COMPLETED)
        )
    return tmp_path


def loaded(session_id: str = "chat") -> AgentSession:
    with Store.open(create=False) as opened:
        return opened.load_session(session_id)


def test_sessions_are_listed_with_their_model_and_length(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sessions"]) == 0
    listed = capsys.readouterr().out
    assert main(["sessions", "--status", "failed"]) == 0
    none = capsys.readouterr().out
    assert main(["sessions", "--json"]) == 0

    assert listed.splitlines()[1] == "chat  hi"
    assert "completed" in listed
    assert "mock:echo" in listed
    assert none == "the store has no session of status failed\n"
    (row,) = json.loads(capsys.readouterr().out)["sessions"]
    assert (row["id"], row["messages"], row["label"]) == ("chat", 2, "hi")


def test_a_session_is_shown_whole(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sessions", "show", "chat"]) == 0
    text = capsys.readouterr().out
    assert main(["sessions", "--json", "show", "chat"]) == 0

    assert text.endswith("--- 0 user\nhi\n\n--- 1 assistant\nhello\n")
    assert AgentSession.from_json(capsys.readouterr().out).messages == loaded().messages


def test_json_is_also_asked_for_after_the_action(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sessions", "show", "chat", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "chat"
    assert main(["sessions", "continue", "chat", "Bye", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["session"] == "chat"


def test_a_session_goes_on_and_the_answer_is_stored(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sessions", "continue", "chat", "how are you?"]) == 0

    assert capsys.readouterr().out == "how are you?\n"
    texts = [message.text for message in loaded().messages]
    assert texts == ["hi", "hello", "how are you?", "how are you?"]


def test_a_branch_goes_on_and_the_session_stays(store: Path) -> None:
    words = ["continue", "chat", "again", "--branch", "other", "--model", "mock:echo"]

    assert main(["sessions", *words]) == 0

    assert len(loaded().messages) == 2
    assert (loaded("other").parent_id, len(loaded("other").messages)) == ("chat", 4)


def test_a_branch_whose_question_fails_can_be_asked_again(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    words = ["sessions", "continue", "chat", "again", "--branch", "other"]
    closed = ["--model", "openai:m@http://127.0.0.1:9/v1", "--key-env", "NO_SUCH_KEY"]

    assert main([*words, *closed]) == 2
    with Store.open(create=False) as opened:
        assert not opened.has_session("other")
    assert main(words) == 0
    assert main(words) == 2

    assert "session 'other' already exists" in capsys.readouterr().err
    assert len(loaded("other").messages) == 4


def test_a_session_in_an_environment_is_not_continued_without_it(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = AgentSession(id="desk", endpoint=ECHO, environment={"environment": "Desk"})
    with Store.open() as opened:
        opened.save_session(session)

    assert main(["sessions", "continue", "desk", "hi", "--branch", "other"]) == 2

    assert "uses an environment" in capsys.readouterr().err
    with Store.open(create=False) as opened:
        assert not opened.has_session("other")


def test_a_model_that_fails_leaves_the_session_as_it_is(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open() as opened:
        opened.save_session(AgentSession(id="broken", endpoint=BROKEN, messages=[]))

    assert main(["sessions", "continue", "broken", "hi"]) in (2, 3)

    assert loaded("broken").messages == []
    assert capsys.readouterr().err


def test_what_is_not_there_is_refused(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sessions", "show", "nobody"]) == 2

    assert "session 'nobody' does not exist" in capsys.readouterr().err


def test_an_evaluation_saves_sessions_and_continues_one(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (store / "follow_up.py").write_text(FILE)

    assert main(["eval", "follow_up.py", "--save-sessions", "--session", "chat", "--quiet"]) == 0
    sys.modules.pop("follow_up", None)

    with Store.open(create=False) as opened:
        (branch,) = opened.list_sessions(parent_id="chat")
    texts = [message.text for message in loaded(branch.id).messages]
    assert texts == ["hi", "hello", "And then?", "And then?"]
    capsys.readouterr()
    assert main(["sessions", "continue", branch.id, "Why?"]) == 0
    assert capsys.readouterr().out == "Why?\n"
