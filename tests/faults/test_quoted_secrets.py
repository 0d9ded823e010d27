"""The user's code quotes a secret in what it raises: it is stored and shown nowhere."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from assay.environments import BasicEnvironment, RemoteEnvironments, ToolEnvironment, tool
from assay.environments.environment import Step
from assay.runner import EvalConfig
from assay.scorers import judge
from assay.store import Store
from assay.types import Endpoint, Message, Sample
from processes import Evaluation, assay, write_rows
from runner_runs import NO_RETRIES, rows, run

Start = Callable[..., Evaluation]

KEY, OTHER, TOKEN = (f"c4n4ry-{name}-Zq8/0123+x" for name in ("key", "variable", "token"))
CANARY = b"c4n4ry"
MODEL: dict[str, Any] = {"provider": "mock", "model": "echo", "api_key": KEY}
QUOTES = f"401: {KEY!r}, {OTHER}, {KEY[:14]}… and c4n4ry-token-Zq8%2F0123%2Bx"


def raises(*_: object) -> NoReturn:
    raise ValueError(QUOTES)


class Refusing(BasicEnvironment):
    async def step(self, action: Message) -> Step:
        raises()


class Unclosable(BasicEnvironment):
    async def close(self) -> None:
        raises()


class Toolful(ToolEnvironment):
    @tool
    def look(self) -> str:
        """Look it up."""
        raises()


def calls_a_tool() -> Endpoint:
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    replies = [{"content": None, "tool_calls": [call]}]
    return Endpoint(
        provider="mock",
        model="script",
        api_key=KEY,
        extra_params={"replies": replies, "loop": True},
    )


CONFIGS: dict[str, dict[str, Any]] = {
    "scorer": {"score_fn": raises},
    "prepare_messages": {"prepare_messages": raises},
    "environment made": {"environment": raises},
    "environment stepped": {"environment": lambda sample: Refusing()},
    "environment closed": {"environment": lambda sample: Unclosable()},
    "tool": {"environment": lambda sample: Toolful(), "endpoint": calls_a_tool()},
}


@pytest.mark.parametrize("where", CONFIGS)
def test_no_part_of_a_run_stores_a_secret_that_it_raised(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_API_KEY", OTHER)
    remote = RemoteEnvironments("http://127.0.0.1:9", token=TOKEN)
    config = EvalConfig(
        **{
            "endpoint": Endpoint(**MODEL),
            "score_fn": lambda sample: 1.0,
            "client": NO_RETRIES,
            **CONFIGS[where],
        }
    )

    report = run(rows(2), config, store=tmp_path / "assay.db")

    texts = [sample.to_json_bytes() for sample in report.samples]
    assert remote
    assert all(b"[redacted]" in text for text in texts)
    assert [text for text in texts if CANARY in text] == []
    assert [path for path in tmp_path.iterdir() if CANARY in path.read_bytes()] == []


def test_the_key_of_a_judge_is_in_no_failure_of_another_scorer(tmp_path: Path) -> None:
    judging = judge("general_quality", Endpoint(**MODEL))

    def score(sample: Sample) -> float:
        assert judging
        raise ValueError(QUOTES.replace(OTHER, KEY).replace("token", "key"))

    run(rows(1), EvalConfig(score_fn=score), store=tmp_path / "assay.db")

    with Store.open(tmp_path / "assay.db", create=False) as store:
        (sample,) = store.run("latest").samples()
    assert sample.failure is not None
    assert CANARY.decode() not in sample.to_json()


FILE = """
import os

from assay.runner import EvalConfig
from assay.types import Endpoint

KEY = os.environ["THE_VALUE"]

def refuse(sample):
    raise ValueError(f"401 for {KEY}, {KEY[:14]}...")

def endless():
    yield {"question": "?"}
    raise RuntimeError(f"cannot read on with {KEY}")

config = EvalConfig(endpoint=Endpoint(provider="mock", model="echo", api_key=KEY), score_fn=refuse)
breaks = EvalConfig(endpoint=config.endpoint, score_fn=refuse)
dataset = endless() if os.environ.get("BREAKS") else "data.jsonl"
"""

TEST_FILE = """
import os

import pytest

from assay.types import Endpoint
from assay.pytest_plugin import evaluation_test

KEY = os.environ["THE_VALUE"]
MODEL = Endpoint(provider="mock", model="echo", api_key=KEY)

@evaluation_test([{"question": "?"}], endpoints=[MODEL])
def test_scorer(sample):
    raise ValueError(f"401 for {KEY}")

@pytest.fixture
def account():
    raise RuntimeError(f"no account for {os.environ['ACCOUNT_TOKEN']}")

@evaluation_test([{"question": "?"}], endpoints=[MODEL])
def test_fixture(sample, account):
    return 1.0
"""


def leaks(folder: Path, processes: Sequence[Evaluation]) -> list[str]:
    texts = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    texts |= {str(number): each.stdout.encode() for number, each in enumerate(processes)}
    return [
        f"{where}: {data[max(place - 60, 0) : place + 40]!r}"
        for where, data in texts.items()
        if (place := data.find(CANARY)) >= 0
    ]


def test_commands_print_and_write_no_secret_that_code_raised(
    tmp_path: Path, store: Path, start: Start
) -> None:
    write_rows(tmp_path / "data.jsonl", ["r0", "r1"])
    (tmp_path / "file.py").write_text(FILE)
    commands = [
        start(assay("eval", "file.py", "--store", store), THE_VALUE=KEY),
        start(assay("eval", "file.py", "--store", tmp_path / "b.db"), THE_VALUE=KEY, BREAKS="1"),
    ]
    assert [each.ended() for each in commands] == [3, 3]
    commands += [
        start(assay("show", "latest", "r0", "--store", store)),
        start(assay("show", "latest", "--json", "--store", store)),
        start(assay("export", "sample", "latest", "--all", "--store", store, "-o", "out.jsonl")),
    ]
    for each in commands:
        each.ended()

    assert "[redacted]" in commands[2].stdout
    assert "cannot read on with [redacted]" in commands[1].stderr
    assert leaks(tmp_path, commands) == []


def test_a_pytest_session_shows_no_secret_that_code_raised(tmp_path: Path, start: Start) -> None:
    (tmp_path / "test_it.py").write_text(TEST_FILE)
    command = [*assay()[:2], "pytest", "test_it.py"]
    session = start([*command, "--junitxml=junit.xml"], THE_VALUE=KEY, ACCOUNT_TOKEN=TOKEN)

    assert session.ended() == 1, session.stdout

    assert "401 for [redacted]" in session.stdout
    assert "no account for [redacted]" in session.stdout
    assert leaks(tmp_path, [session]) == []
