"""`assay eval` with the models of Gemini, Azure and Bedrock, against a scripted server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.store import Store
from assay.types import Sample, Status
from aws_settings import ACCESS_KEY, SECRET_KEY, SESSION_TOKEN, set_aws_credentials
from commands import Ended, call_main
from scripted_providers import (
    AZURE_KEY,
    GEMINI_KEY,
    Refusal,
    ScriptedProviders,
    refuse_key,
    refuse_length,
    refuse_rate,
)

CANARIES = (GEMINI_KEY, AZURE_KEY, ACCESS_KEY, SECRET_KEY, SESSION_TOKEN)
FILE = """
from assay.environments import CalculatorEnvironment
from assay.runner import EvalConfig

def score(sample):
    return sample.response == sample.ground_truth

config = EvalConfig(
    endpoint="MODEL",
    environment=lambda sample: CalculatorEnvironment(),
    score_fn=score,
    name="sums",
)
dataset = [{"id": f"q{n}", "question": f"{n} * 7", "answer": str(n * 7)} for n in range(1, 7)]
"""
MODELS = {
    "gemini": "gemini:gemini-2.5-pro@URL/v1beta",
    "azure": "azure:gpt-4o@URL",
    "azure-by-date": "azure:gpt-4o@URL?api-version=2024-10-21",
    "bedrock": "bedrock:amazon.nova-lite-v1:0@URL",
}
PATHS = {
    "gemini": "/v1beta/models/gemini-2.5-pro:generateContent",
    "azure": "/openai/v1/chat/completions",
    "azure-by-date": "/openai/deployments/gpt-4o/chat/completions?api-version=2024-10-21",
    "bedrock": "/model/amazon.nova-lite-v1%3A0/converse",
}


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_aws_credentials(monkeypatch, tmp_path)
    monkeypatch.setenv("GEMINI_API_KEY", GEMINI_KEY)
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", AZURE_KEY)


@pytest.fixture
def server() -> Iterator[ScriptedProviders]:
    with ScriptedProviders() as server:
        yield server


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def evaluate(folder: Path, server: ScriptedProviders, name: str, *options: str) -> Ended:
    model = MODELS[name].replace("URL", server.url)
    (folder / "sums.py").write_text(FILE.replace("MODEL", model))
    ended = call_main(
        folder,
        *("eval", "sums.py", "--concurrency", "3", *options),
        GEMINI_API_KEY=GEMINI_KEY,
        AZURE_OPENAI_API_KEY=AZURE_KEY,
    )
    check_secrets(folder, ended)
    return ended


def check_secrets(folder: Path, ended: Ended) -> None:
    written = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    for canary in CANARIES:
        assert canary not in ended.stdout + ended.stderr
        assert not any(canary.encode() in data for data in written)


def read_samples(folder: Path) -> dict[str, Sample]:
    with Store.open(folder / ".assay" / "assay.db", create=False) as store:
        return {sample.id: sample for sample in store.run().samples()}


def test_tools_are_called_and_their_results_answered(
    tmp_path: Path, server: ScriptedProviders, name: str
) -> None:
    ended = evaluate(tmp_path, server, name)

    assert ended.returncode == 0, ended.stderr
    assert set(server.paths) == {PATHS[name]}
    assert len(server.paths) == 12
    samples = read_samples(tmp_path)
    assert [samples[f"q{n}"].response for n in range(1, 7)] == [str(n * 7) for n in range(1, 7)]
    trajectory = samples["q3"].trajectory
    assert trajectory is not None
    assert [call.finish_reason for call in trajectory.calls] == ["tool_calls", "stop"]
    assert trajectory.calls[0].usage is not None
    assert trajectory.calls[0].usage.input_tokens == 20


def test_rate_limits_are_waited_for(tmp_path: Path, server: ScriptedProviders, name: str) -> None:
    limited: set[str] = set()

    def refuse(provider: str, question: str, turns: int) -> Refusal | None:
        if question in limited:
            return None
        limited.add(question)
        return refuse_rate(provider)

    server.refuse = refuse

    ended = evaluate(tmp_path, server, name)

    assert ended.returncode == 0, ended.stderr
    assert len(server.paths) == 18
    attempts = [
        call.attempts
        for sample in read_samples(tmp_path).values()
        if sample.trajectory is not None
        for call in sample.trajectory.calls
    ]
    assert sorted(attempts) == [1] * 6 + [2] * 6


def test_a_refused_key_stops_the_run_early(
    tmp_path: Path, server: ScriptedProviders, name: str
) -> None:
    key = {"gemini": GEMINI_KEY, "bedrock": SESSION_TOKEN}.get(name, AZURE_KEY)
    server.refuse = lambda provider, *_: refuse_key(provider, key)

    ended = evaluate(tmp_path, server, name)

    assert ended.returncode == 3, ended.stderr
    assert "[redacted]" in ended.stderr
    assert len(server.paths) <= 6


def test_a_full_context_truncates_the_rollout(
    tmp_path: Path, server: ScriptedProviders, name: str
) -> None:
    server.refuse = lambda provider, _, turns: refuse_length(provider) if turns > 1 else None

    evaluate(tmp_path, server, name)

    samples = read_samples(tmp_path)
    assert len(samples) == 6
    assert {sample.status for sample in samples.values()} == {Status.TRUNCATED}


def test_a_run_is_resumed_without_paying_twice(
    tmp_path: Path, server: ScriptedProviders, name: str
) -> None:
    server.refuse = lambda provider, question, _: (
        (400, {"message": "no"}, {}) if question == "4 * 7" else None
    )
    evaluate(tmp_path, server, name)
    assert len(server.paths) == 11
    assert read_samples(tmp_path)["q4"].status is Status.FAILED
    with Store.open(tmp_path / ".assay" / "assay.db", create=False) as store:
        run = store.run().id
    server.refuse = lambda *_: None

    second = evaluate(tmp_path, server, name, "--resume", run)

    assert second.returncode == 0, second.stderr
    assert len(server.paths) == 13
    assert read_samples(tmp_path)["q4"].response == "28"


@pytest.mark.parametrize(
    ("model", "missing", "message"),
    [
        ("gemini:gemini-2.5-pro", "GEMINI_API_KEY", "the API key for gemini is missing"),
        ("azure:gpt-4o", "AZURE_OPENAI_ENDPOINT", "the provider 'azure' needs an `api_base`"),
        ("bedrock:amazon.nova-lite-v1:0", "AWS_REGION", "the region of AWS is missing"),
    ],
)
def test_a_missing_setting_is_an_error_before_the_first_call(
    model: str, missing: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in (missing, "GOOGLE_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "sums.py").write_text(FILE.replace("MODEL", model))

    ended = call_main(tmp_path, "eval", "sums.py")

    assert ended.returncode == 2
    assert message in ended.stderr
    assert missing in ended.stderr
