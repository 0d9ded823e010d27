"""Rollouts of a run as stored sessions: saved, loaded, and continued by another run."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError
from assay.runner import EvalConfig, EvalReport, evaluate
from assay.store import Store
from assay.types import AgentSession, Endpoint, Message, Sample, Status

ECHO = Endpoint(provider="mock", model="echo", temperature=0.5)
ROWS = [{"id": "a", "question": "one"}, {"id": "b", "question": "two"}]


def one(sample: Sample) -> float:
    return 1.0


def run(store: Path, rows: Any = ROWS, **fields: Any) -> EvalReport:
    config = EvalConfig(**{"endpoint": ECHO, "score_fn": lambda sample: 1.0, **fields})
    return asyncio.run(evaluate(rows, config, store=store))


def test_each_rollout_is_stored_as_a_session_that_can_be_continued(tmp_path: Path) -> None:
    report = run(tmp_path / "s.db", save_sessions=True)

    with Store.open(tmp_path / "s.db") as store:
        rows = store.list_sessions()
        session = store.load_session(f"{report.run_id}/a")
    assert {row.id for row in rows} == {f"{report.run_id}/{name}" for name in ("a", "b")}
    assert [message.text for message in session.messages] == ["one", "one"]
    assert (session.status, session.endpoint) == (Status.COMPLETED, ECHO)
    assert session.tags == {"run": report.run_id, "sample": "a"}


def test_a_session_names_the_environment_that_it_ran_in(tmp_path: Path) -> None:
    report = run(tmp_path / "s.db", save_sessions=True, environment="calculator")

    with Store.open(tmp_path / "s.db") as store:
        session = store.load_session(f"{report.run_id}/a")
    assert session.environment == {"environment": "CalculatorEnvironment"}


def test_a_session_that_was_continued_outlives_a_resumed_run(tmp_path: Path) -> None:
    config = EvalConfig(endpoint=ECHO, score_fn=one, save_sessions=True)
    report = asyncio.run(evaluate(ROWS, config, store=tmp_path / "s.db"))
    with Store.open(tmp_path / "s.db") as store:
        store.continue_session(f"{report.run_id}/a", [Message(role="user", content="more")])

    asyncio.run(evaluate(ROWS, config, store=tmp_path / "s.db", resume=report.run_id))

    with Store.open(tmp_path / "s.db") as store:
        texts = [message.text for message in store.load_session(f"{report.run_id}/a").messages]
    assert texts == ["one", "one", "more"]


def test_repeats_are_sessions_of_their_own(tmp_path: Path) -> None:
    report = run(tmp_path / "s.db", ROWS[:1], save_sessions=True, repeats=2)

    with Store.open(tmp_path / "s.db") as store:
        ids = sorted(row.id for row in store.list_sessions())
    assert ids == [f"{report.run_id}/a#0", f"{report.run_id}/a#1"]


def test_without_being_asked_nothing_is_stored(tmp_path: Path) -> None:
    run(tmp_path / "s.db")

    with Store.open(tmp_path / "s.db") as store:
        assert store.list_sessions() == []


def test_a_run_continues_a_session_with_its_model_and_stores_branches_of_it(
    tmp_path: Path,
) -> None:
    begun = [Message(role="user", content="hi"), Message(role="assistant", content="hello")]
    session = AgentSession(id="chat", endpoint=ECHO, messages=begun)

    report = run(tmp_path / "s.db", endpoint=None, session=session, save_sessions=True)

    (first, _) = report.samples
    assert [message.text for message in first.messages] == ["hi", "hello", "one", "one"]
    with Store.open(tmp_path / "s.db") as store:
        branches = store.list_sessions(parent_id="chat")
    assert {row.branch_point for row in branches} == {2}
    assert [message.text for message in session.messages] == ["hi", "hello"]


def test_another_session_is_another_run(tmp_path: Path) -> None:
    def config(text: str) -> EvalConfig:
        session = AgentSession(
            id="chat", endpoint=ECHO, messages=[Message(role="user", content=text)]
        )
        return EvalConfig(endpoint=ECHO, score_fn=lambda sample: 1.0, session=session)

    assert config("hi").fingerprint() != config("ho").fingerprint()
    assert config("hi").fingerprint() == config("hi").fingerprint()


def test_what_is_no_session_is_refused() -> None:
    with pytest.raises(ConfigError, match="`session` cannot be of type `str`"):
        EvalConfig(endpoint=ECHO, score_fn=lambda sample: 1.0, session="chat")  # type: ignore[arg-type]
