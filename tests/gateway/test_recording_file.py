"""`Recording`: portable files of calls, and which ones are refused."""

import hashlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError
from assay.gateway import Recording, write_recording
from assay.types import Message, ModelCall, Sample, Trajectory, Usage
from make import asked, said
from memory import peak_of

MODEL = {"provider": "mock", "model": "echo", "temperature": 0.5}


def rollout(name: str, *texts: str, cost: float | None = 0.25) -> Sample:
    """A conversation in which each text of the user is answered in capitals."""
    messages: list[Message] = []
    calls = []
    for text in texts:
        messages.append(asked(text))
        usage = Usage(input_tokens=3, output_tokens=1, cost_usd=cost)
        calls.append(ModelCall(message_index=len(messages), usage=usage, latency_s=1.5))
        messages.append(said(text.upper()))
    trajectory = Trajectory(messages=messages, calls=calls, duration=4.0)
    return Sample(id=name, trajectory=trajectory)


def record(path: Path, *samples: Sample) -> Path:
    write_recording(path, [(each, 0) for each in samples], run="run-1", endpoint=MODEL)
    return path


def edit(path: Path, change: Callable[[list[dict[str, Any]]], None]) -> Path:
    """Change the lines of a recording, and make its first line agree with them."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    change(lines)
    body = "".join(f"{json.dumps(line)}\n" for line in lines[1:])
    lines[0] |= {"calls": len(lines) - 1, "sha256": hashlib.sha256(body.encode()).hexdigest()}
    path.write_text(f"{json.dumps(lines[0])}\n{body}", "utf-8")
    return path


def test_calls_are_read_back_with_their_whole_requests(tmp_path: Path) -> None:
    path = record(tmp_path / "calls.jsonl", rollout("a", "one", "two"), rollout("b", "three"))

    recording = Recording.open(path)
    found = recording.load("a", 0)

    assert recording.header.calls == 3
    assert recording.header.samples == 2
    assert recording.header.cost_usd == 0.75
    assert found is not None
    assert [len(body["messages"]) for body in found.bodies] == [1, 3]
    assert found.bodies[0]["model"] == "mock:echo"
    assert found.bodies[0]["temperature"] == 0.5
    assert [each.answer and each.answer["content"] for each in found.exchanges] == ["ONE", "TWO"]
    call = found.exchanges[1].build_call()
    assert call.usage == Usage(input_tokens=3, output_tokens=1, cost_usd=0.25)
    assert call.latency_s == 1.5
    assert recording.load("a", 1) is None
    assert recording.load("c", 0) is None


def test_the_same_run_gives_the_same_file_that_its_owner_alone_reads(tmp_path: Path) -> None:
    samples = rollout("b", "one", "two"), rollout("a", "three")

    first, second = (record(tmp_path / f"{n}.jsonl", *samples) for n in (1, 2))

    assert first.read_bytes() == second.read_bytes()
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    assert sorted(os.listdir(tmp_path)) == ["1.jsonl", "2.jsonl"]
    # A message is written once, however often it is sent.
    assert first.read_text("utf-8").count('"one"') == 1


def test_keys_are_in_no_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_SERVICE_TOKEN", 'quoted"canary-value')
    texts = 'sk-canary0123456789abcdef01 and quoted"canary-value', "and again"

    path = record(tmp_path / "calls.jsonl", rollout("a", *texts))

    assert "canary" not in path.read_text("utf-8")
    assert Recording.open(path).load("a", 0) is not None


def test_a_run_without_calls_is_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'run-1' has no recorded calls of a model"):
        record(tmp_path / "calls.jsonl", Sample(id="a"), Sample(id="b", trajectory=Trajectory()))

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "line", "problem"),
    [
        (lambda lines: lines[1].update(sample=7), 2, "`sample` is invalid"),
        (lambda lines: lines[1].update(repeat=-1), 2, "`repeat` is invalid"),
        (lambda lines: lines[2].update(dialect="gopher"), 3, "`dialect` is invalid"),
        (lambda lines: lines[2].update(more=1), 3, "`more` is invalid"),
        (lambda lines: lines[2].update(status=7), 3, "`status.* is invalid"),
        (lambda lines: lines[2].update(duration_s=float("nan")), 3, "`duration_s` is invalid"),
        (lambda lines: lines[0].update(run="a\x1b[2J"), 1, "`run` is invalid"),
        (lambda lines: lines[0].update(cost_usd=float("inf")), 1, "`cost_usd` is invalid"),
        (lambda lines: lines[2].update(call=0), 3, "the line has call 0, but call 1 was expected"),
        (lambda lines: lines.append(lines[1]), 5, "the calls of sample 'a', repeat 0 occur twice"),
    ],
)
def test_a_wrong_line_is_named(
    tmp_path: Path, change: Callable[[list[dict[str, Any]]], None], line: int, problem: str
) -> None:
    path = record(tmp_path / "calls.jsonl", rollout("a", "one", "two"), rollout("b", "three"))

    with pytest.raises(ConfigError, match=problem) as refused:
        Recording.open(edit(path, change))

    assert refused.value.where == f"{path}:{line}"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda lines: lines[2]["request"].update(like=1), "continues call 1"),
        (lambda lines: lines[2].update(request={}), "no recorded request"),
        (lambda lines: lines[2]["request"].update(kept="all"), "not the difference"),
        (lambda lines: lines[2]["record"].update(usage=3), "`usage` is invalid"),
    ],
)
def test_a_wrong_request_or_record_is_named_when_it_is_needed(
    tmp_path: Path, change: Callable[[list[dict[str, Any]]], None], problem: str
) -> None:
    path = edit(record(tmp_path / "calls.jsonl", rollout("a", "one", "two")), change)

    with pytest.raises(ConfigError, match=problem) as refused:
        Recording.open(path).load("a", 0)

    assert refused.value.where == f"{path}:3"


def test_a_name_that_occurs_twice_in_an_object_is_refused(tmp_path: Path) -> None:
    path = record(tmp_path / "calls.jsonl", rollout("a", "one"))
    head, line = path.read_text("utf-8").splitlines()
    line = line.replace('"answer":{', '"answer":{"content":"first",')
    digest = hashlib.sha256(f"{line}\n".encode()).hexdigest()
    path.write_text(f"{json.dumps(json.loads(head) | {'sha256': digest})}\n{line}\n", "utf-8")

    with pytest.raises(ConfigError, match="the same name twice"):
        Recording.open(path).load("a", 0)


def _cut_in_line(text: str) -> str:
    return text[:-20]


def _drop_line(text: str) -> str:
    return "".join(text.splitlines(keepends=True)[:-1])


def _change_answer(text: str) -> str:
    return text.replace("ONE", "TWO")


def _deepen(text: str) -> str:
    return text.replace('"ONE"', "[" * 5000 + "]" * 5000)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_cut_in_line, "calls.jsonl:3: the line is not JSON"),
        (_drop_line, "calls.jsonl:2: the file has 1 calls, but its first line counts 2"),
        (_change_answer, "calls.jsonl:1: the calls were changed after they were recorded"),
        (_deepen, "calls.jsonl:2: the line is not JSON"),
        (lambda text: text.replace('"version":1', '"version":9'), "has version 9; this assay"),
        (lambda text: "id,question\n", "calls.jsonl:1: the file is not a recording"),
        (lambda text: "", "calls.jsonl:1: the file is not a recording"),
    ],
)
def test_a_damaged_file_is_refused(
    tmp_path: Path, change: Callable[[str], str], problem: str
) -> None:
    path = record(tmp_path / "calls.jsonl", rollout("a", "one", "two"))
    path.write_text(change(path.read_text("utf-8")), "utf-8")

    with pytest.raises(ConfigError) as refused:
        Recording.open(path)

    assert problem in str(refused.value)
    assert refused.value.hint is not None


def test_a_line_that_is_too_long_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = record(tmp_path / "calls.jsonl", rollout("a", "one " * 1000))
    monkeypatch.setattr("assay.gateway.recording_file._MAX_LINE_BYTES", 1000)

    with pytest.raises(ConfigError, match="the line has more than 1,000 bytes"):
        Recording.open(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the recording cannot be read"):
        Recording.open(tmp_path / "nowhere.jsonl")


_OPEN = """
import sys
from assay.gateway import Recording
recording = Recording.open(sys.argv[1])
assert recording.load("sample-7", 0) is not None
"""


def test_the_memory_of_an_open_recording_does_not_grow_with_its_bodies(tmp_path: Path) -> None:
    def write(name: str, count: int, words: int) -> Path:
        path = record(tmp_path / name, rollout("sample-0", "word " * words))
        _, line = path.read_text("utf-8").splitlines(keepends=True)
        lines = [line.replace("sample-0", f"sample-{number}") for number in range(count)]
        digest = hashlib.sha256("".join(lines).encode()).hexdigest()
        head = Recording.open(path).header.model_dump() | {"calls": count, "sha256": digest}
        path.write_text("".join([f"{json.dumps(head)}\n", *lines]), "utf-8")
        return path

    small, large = write("small.jsonl", 10, 10), write("large.jsonl", 800, 4000)

    before, after = (peak_of(_OPEN, path, folder=tmp_path) for path in (small, large))

    assert large.stat().st_size > 30_000_000
    assert after - before < 10_000_000
