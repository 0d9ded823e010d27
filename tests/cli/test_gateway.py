"""`assay gateway` as users run it: variables to export, recorded sessions, a summary."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.cli.gateway import SessionRecorder, format_call
from assay.providers import connect
from assay.store import Store
from assay.types import Trajectory
from recorded_calls import Recording, agent, call_tool, user


@contextmanager
def serving(folder: Path, *arguments: str, **variables: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "assay", "gateway", *arguments],
        cwd=folder,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def stop(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def read_variables(process: "subprocess.Popen[str]") -> dict[str, str]:
    assert process.stdout is not None
    found: dict[str, str] = {}
    while "ANTHROPIC_API_KEY" not in found:
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        name, _, value = line.removeprefix("export ").strip().partition("=")
        found[name] = shlex.split(value)[0]
    return found


def ask(url: str, key: str, text: str) -> Any:
    body = {"model": "x", "messages": [{"role": "user", "content": text}]}
    headers = {"Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_conversations_are_stored_and_summed_up(tmp_path: Path) -> None:
    with serving(tmp_path, "--upstream", "mock:echo") as process:
        variables = read_variables(process)
        url, key = variables["OPENAI_BASE_URL"], variables["OPENAI_API_KEY"]
        first = ask(url, key, "hello one")
        ask(url, key, "hello two")
        ask(url, key, "hello")

        status, out, err = stop(process)

    assert first["choices"][0]["message"]["content"] == "hello one"
    assert status == 0
    names = re.findall(r"^(gateway-\S+)  1 call, 2 tokens in, 2 out", out, re.MULTILINE)
    assert len(names) == 2
    (last,) = re.findall(r"^(gateway-\S+)  1 call, 1 token in, 1 out", out, re.MULTILINE)
    assert "   1  turn" in err
    assert f"next: assay sessions show {last}" in err
    with Store.open(tmp_path / ".assay" / "assay.db", create=False) as store:
        session = store.load_session(names[0])
    assert [message.text for message in session.messages] == ["hello one", "hello one"]
    trajectory = Trajectory.from_dict(session.metadata["trajectory"])
    assert trajectory.calls[0].wire is not None
    assert key not in session.to_json()


def test_two_gateways_of_the_same_second_store_sessions_of_their_own(tmp_path: Path) -> None:
    with Store.open(tmp_path / "assay.db") as store:
        recorders = [SessionRecorder(store, connect("mock:echo"), quiet=True) for _ in range(2)]
        for recorder, text in zip(recorders, ("one", "two"), strict=True):
            recording = Recording()
            recording.ask([user(text)], "done")
            recorder.save(recording.session)
        names = [name for recorder in recorders for name in recorder.rows]

        texts = [store.load_session(name).messages[0].text for name in names]

    assert texts == ["one", "two"]


def test_a_call_that_was_stored_in_flight_is_stored_again_with_its_answer(tmp_path: Path) -> None:
    with Store.open(tmp_path / "assay.db") as store:
        recorder = SessionRecorder(store, connect("mock:echo"), quiet=True)
        calls, first = Recording(), [user("one")]
        calls.ask(first, "answer one")
        second = calls.start([*first, agent("answer one"), user("two")])
        recorder.save(calls.session)
        (name,) = recorder.rows

        calls.answer(second, "answer two")
        recorder.save(calls.session)

        session, row = store.load_session(name), recorder.rows[name]
    assert [message.text for message in session.messages][-2:] == ["two", "answer two"]
    assert (row["calls"], row["output_tokens"]) == (2, 2)
    assert len(recorder.rows) == 1


def test_json_has_the_address_and_the_summary(tmp_path: Path) -> None:
    key = "a-fixed-key-of-the-team"
    with serving(
        tmp_path, "--upstream", "mock:echo", "--json", "--max-turns", "1", ASSAY_GATEWAY_TOKEN=key
    ) as process:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or lines[-1] != "}\n":
            lines.append(process.stdout.readline())
        started = json.loads("".join(lines))
        ask(started["base_url"], key, "hello")
        with pytest.raises(urllib.error.HTTPError, match="400"):
            ask(started["base_url"], key, "again")

        status, out, err = stop(process)

    assert (status, err) == (0, "")
    (row,) = json.loads(out)["sessions"]
    assert (row["calls"], row["input_tokens"]) == (1, 1)


def test_a_recorded_session_answers_later_calls_and_names_the_first_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path, "--upstream", "mock:echo") as process:
        variables = read_variables(process)
        url, key = variables["OPENAI_BASE_URL"], variables["OPENAI_API_KEY"]
        before = ask(url, key, "hello one")
        _, out, _ = stop(process)
    monkeypatch.chdir(tmp_path)
    name = out.split()[0]
    assert main(["runs", "record", name, "-o", "calls.jsonl"]) == 0
    assert capsys.readouterr().out == "wrote 1 call of 1 sample to calls.jsonl\n"

    with serving(tmp_path, "--replay", "calls.jsonl") as process:
        variables = read_variables(process)
        url, key = variables["OPENAI_BASE_URL"], variables["OPENAI_API_KEY"]
        after = ask(url, key, "hello one")
        with pytest.raises(urllib.error.HTTPError, match="400"):
            ask(url, key, "hello two")
        status, _, err = stop(process)

    assert after == before
    assert status == 3
    assert "answering with the recorded calls of calls.jsonl" in err
    assert "call 2 is not in the recording" in err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "--upstream"),
        (["--upstream", "nonsense"], "provider:model"),
        (["--replay", "nowhere.jsonl"], "the recording cannot be read"),
        (["--upstream", "mock:echo", "--replay-missing", "live"], "without --replay"),
        (["--upstream", "mock:echo", "--max-turns", "0"], "--max-turns"),
    ],
)
def test_a_wrong_request_is_refused_before_it_listens(
    arguments: list[str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(["gateway", *arguments]) == 2
    assert problem in capsys.readouterr().err


def test_a_call_is_one_line_of_the_terminal() -> None:
    recording = Recording()
    recording.ask([user("a")], "answer\x1b[31m " * 50)
    recording.ask([user("b")], call_tool("1", "bash", command="ls"))
    recording.ask([user("c")], None)

    lines = [format_call(call, 80) for call in recording.session.calls]

    assert all(len(line) <= 80 and "\x1b" not in line for line in lines)
    assert lines[1].endswith("[bash]")
    assert lines[2].endswith("failed: 503 broken")
