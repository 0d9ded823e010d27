"""Agents of the user's own in a run with a model: their calls are recorded at the wire."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from openai import AsyncOpenAI, OpenAI

from assay.agents import Limits, RunContext
from assay.errors import AccessDenied, RunStopped
from assay.providers import ClientSettings
from assay.runner import EvalConfig, evaluate
from assay.runner.agent_gateway import merge_recorded
from assay.types import Boundary, EvaluateResult, Message, Sample, Status, Trajectory
from model_apis import UPSTREAM_KEY, ModelApi

ROWS = [{"id": "s1", "question": "hello there"}]
# Speaks HTTP itself, as a program in another language would.
PROGRAM = """
import json, os, sys, urllib.request
def ask(messages):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "m", "messages": messages}).encode(),
        {"Content-Type": "application/json",
         "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    answer = json.load(urllib.request.urlopen(request))
    return answer["choices"][0]["message"]
messages = [{"role": "user", "content": sys.stdin.read()}]
for turn in range(int(sys.argv[1])):
    messages += [ask(messages), {"role": "user", "content": f"again {turn}"}]
print(messages[-2]["content"])
"""


def says_hello(sample: Sample) -> EvaluateResult:
    return EvaluateResult(score=float("HELLO" in sample.response or "AGAIN" in sample.response))


def run(
    agent: Any, folder: Path, *, provider: str = "openai", prepare: Any = None, **settings: Any
) -> tuple[Sample, ModelApi]:
    """Evaluate one sample, and return it with the server of the model."""

    async def scenario() -> tuple[Sample, ModelApi]:
        async with ModelApi(provider) as api:
            if prepare is not None:
                prepare(api)
            config = EvalConfig(
                agent=agent, endpoint=api.endpoint(), score_fn=says_hello, **settings
            )
            report = await evaluate(ROWS, config, store=folder / "store.db")
            return next(iter(report.samples)), api

    return asyncio.run(scenario())


def write_program(folder: Path, turns: int = 1) -> str:
    (folder / "agent.py").write_text(PROGRAM, "utf-8")
    return f"cmd:{sys.executable} {folder / 'agent.py'} {turns}"


def test_the_calls_of_a_command_are_recorded(tmp_path: Path) -> None:
    sample, api = run(write_program(tmp_path, turns=2), tmp_path)

    assert sample.reward == 1.0
    assert sample.trajectory is not None
    texts = [message.text for message in sample.trajectory.messages]
    assert texts == ["hello there", "HELLO THERE", "again 0", "AGAIN 0"]
    assert [call.parent for call in sample.trajectory.calls] == [None, 0]
    assert all(header["Authorization"] == f"Bearer {UPSTREAM_KEY}" for header in api.headers)


def count_paid_calls(agent: Any, folder: Path, *, failing: bool = False) -> int:
    """Run until 110 dollars are spent. Each call costs 20 + 5; half of the samples may fail."""
    table = {"models": {"openai:upstream-model": {"input": 1e6, "output": 1e6}}}
    (folder / "prices.json").write_text(json.dumps(table))
    ending = "sys.exit(len(messages[0]['content']) % 2)" if failing else ""
    (folder / "agent.py").write_text(f"{PROGRAM}\n{ending}\n")
    rows = [{"id": f"s{n}", "question": "x" * n} for n in range(1, 9)]

    async def scenario() -> int:
        async with ModelApi() as api:
            config = EvalConfig(
                agent=agent or f"cmd:{sys.executable} {folder / 'agent.py'} 1",
                endpoint=api.endpoint(),
                score_fn=lambda sample: 1.0,
                client=ClientSettings(prices=folder / "prices.json"),
                concurrency=1,
                max_cost_usd=110,
            )
            with pytest.raises(RunStopped, match=r"max_cost_usd=110: .* cost \$125"):
                await evaluate(rows, config, store=folder / "store.db")
            return len(api.asked)

    return asyncio.run(scenario())


@pytest.mark.parametrize("failing", [False, True])
def test_calls_of_a_command_count_once_against_the_cost_of_the_run(
    failing: bool, tmp_path: Path
) -> None:
    assert count_paid_calls(None, tmp_path, failing=failing) == 5


def test_calls_of_a_function_count_once_against_the_cost_of_the_run(tmp_path: Path) -> None:
    def agent(sample: Sample, context: RunContext) -> str:
        assert context.client is not None
        return context.client.ask(context.messages).message.text

    assert count_paid_calls(agent, tmp_path) == 5


def test_a_command_that_calls_no_model_answers_with_its_output(tmp_path: Path) -> None:
    sample, api = run("cmd:cat", tmp_path, fail_on_error=True)

    assert sample.response == "hello there"
    assert sample.trajectory is not None
    assert sample.trajectory.calls == []
    assert api.asked == []


def test_an_async_function_reaches_the_model_by_its_context(tmp_path: Path) -> None:
    async def agent(sample: Sample, context: RunContext) -> str:
        async with AsyncOpenAI(base_url=context.base_url, api_key=context.api_key) as client:
            answer = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": sample["question"]}]
            )
        return str(answer.choices[0].message.content)

    sample, _ = run(agent, tmp_path, provider="anthropic")

    assert sample.trajectory is not None
    assert [message.text for message in sample.trajectory.messages] == [
        "hello there",
        "HELLO THERE",
    ]
    assert sample.trajectory.calls[0].usage is not None


def test_the_answer_of_a_function_counts_beside_the_recorded_conversation(tmp_path: Path) -> None:
    def agent(sample: Sample, context: RunContext) -> str:
        with OpenAI(base_url=context.base_url, api_key=context.api_key) as client:
            client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": sample["question"]}]
            )
        return "HELLO, in short"

    sample, _ = run(agent, tmp_path)

    assert sample.response == "HELLO, in short"
    assert sample.trajectory is not None
    assert [message.role for message in sample.trajectory.messages] == [
        "user",
        "assistant",
        "assistant",
    ]


def test_a_service_is_sent_the_address_of_its_model(tmp_path: Path) -> None:
    async def serve(request: web.Request) -> web.Response:
        body = await request.json()
        async with AsyncOpenAI(base_url=body["url"], api_key=body["key"]) as client:
            answer = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": body["ask"]}]
            )
        return web.json_response({"answer": answer.choices[0].message.content})

    async def scenario() -> Sample:
        app = web.Application()
        app.router.add_post("/ask", serve)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        template = json.dumps({"ask": "{prompt}", "url": "{base_url}", "key": "{api_key}"})
        service = f"http://127.0.0.1:{runner.addresses[0][1]}/ask#request={template}"
        try:
            async with ModelApi() as api:
                config = EvalConfig(
                    agent=service, endpoint=api.endpoint(), score_fn=says_hello, name="service"
                )
                report = await evaluate(ROWS, config, store=tmp_path / "store.db")
        finally:
            await runner.cleanup()
        return next(iter(report.samples))

    sample = asyncio.run(scenario())

    assert sample.response == "HELLO THERE"
    assert sample.trajectory is not None
    assert len(sample.trajectory.calls) == 1


def test_a_limit_truncates_the_sample_instead_of_failing_it(tmp_path: Path) -> None:
    sample, api = run(write_program(tmp_path, turns=5), tmp_path, limits=Limits(max_turns=2))

    assert sample.status is Status.TRUNCATED
    assert sample.trajectory is not None
    assert sample.trajectory.termination_reason == "max_turns"
    assert len(api.asked) == 2
    assert sample.response == "AGAIN 0"


def test_an_agent_that_fails_after_its_model_failed_is_a_failure_of_the_endpoint(
    tmp_path: Path,
) -> None:
    async def refuse(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.json_response({"error": {"message": "overloaded"}}, status=503)

    command = write_program(tmp_path)
    sample, _ = run(command, tmp_path, prepare=lambda api: api.behave(*[refuse] * 9))

    assert sample.failure is not None
    assert sample.failure.boundary is Boundary.ENDPOINT
    assert sample.trajectory is not None
    assert sample.trajectory.calls[0].error == "overloaded"


def test_an_agent_that_fails_after_half_a_stream_is_a_failure_of_the_endpoint(
    tmp_path: Path,
) -> None:
    async def break_off(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b'data: {"id": "c", "choices": [{"delta": {"content": "ha"}}]}\n\n')
        return response

    def agent(sample: Sample, context: RunContext) -> str:
        with OpenAI(base_url=context.base_url, api_key=context.api_key, max_retries=0) as client:
            stream = client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hello"}], stream=True
            )
            return "".join(str(each.choices[0].delta.content) for each in stream)

    sample, _ = run(agent, tmp_path, prepare=lambda api: api.behave(break_off))

    assert sample.failure is not None
    assert sample.failure.kind == "APIError"
    assert sample.failure.boundary is Boundary.ENDPOINT
    assert sample.trajectory is not None
    assert (
        sample.trajectory.calls[0].error == "the stream of the model ended without its last event"
    )


def test_the_time_limit_ends_an_agent_that_calls_no_model(tmp_path: Path) -> None:
    command = f'cmd:{sys.executable} -c "import time; time.sleep(600)"'

    sample, _ = run(command, tmp_path, limits=Limits(max_seconds=0.5))

    assert sample.status is Status.TRUNCATED
    assert sample.trajectory is not None
    assert sample.trajectory.termination_reason == "max_seconds"
    assert [message.text for message in sample.trajectory.messages] == ["hello there"]


@pytest.mark.parametrize(
    ("recorded", "answer", "response"),
    [
        ("4", "14", "14"),  # not a part of a number
        ("", "42", "42"),  # such as after a tool call without text
        ("Paris.", "thinking\n\nParis.\n", "Paris."),
        ("Paris.", "", "Paris."),
        ("Paris.", "Paris. Or Lima.", "Paris. Or Lima."),
    ],
)
def test_the_answer_of_an_agent_counts_unless_it_is_that_of_its_model(
    recorded: str, answer: str, response: str
) -> None:
    asked = Message(role="user", content="?")
    wire = Trajectory(messages=[asked, Message(role="assistant", content=recorded)])
    own = Trajectory(messages=[asked, Message(role="assistant", content=answer)])

    assert merge_recorded(own, wire).messages[-1].text == response


def test_the_result_that_an_agent_reports_is_kept_beside_its_calls(tmp_path: Path) -> None:
    async def play(sample: Sample, context: RunContext) -> Trajectory:
        async with AsyncOpenAI(base_url=context.base_url, api_key=context.api_key) as client:
            await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": sample["question"]}]
            )
        return Trajectory(
            messages=[Message(role="assistant", content="HELLO THERE")],
            evaluation_result=EvaluateResult(score=0.7, reason="two of three rooms"),
            steps=3,
            truncated=True,
            termination_reason="max_steps",
        )

    sample, _ = run(play, tmp_path)

    assert sample.status == Status.TRUNCATED
    assert sample.trajectory is not None
    assert sample.trajectory.evaluation_result is not None
    assert sample.trajectory.evaluation_result.score == 0.7
    assert (sample.trajectory.steps, sample.trajectory.termination_reason) == (3, "max_steps")
    assert len(sample.trajectory.calls) == 1


def test_a_refused_key_of_the_model_stops_the_run(tmp_path: Path) -> None:
    async def refuse(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.json_response({"error": {"message": "wrong key"}}, status=401)

    command = write_program(tmp_path)

    with pytest.raises(AccessDenied, match="HTTP 401: wrong key"):
        run(command, tmp_path, prepare=lambda api: api.behave(*[refuse] * 9))


def test_the_calls_of_an_agent_that_takes_too_long_are_kept(tmp_path: Path) -> None:
    async def agent(sample: Sample, context: RunContext) -> str:
        async with AsyncOpenAI(base_url=context.base_url, api_key=context.api_key) as client:
            await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": sample["question"]}]
            )
        await asyncio.Event().wait()
        return "never"

    # Long enough for the first call on a busy machine.
    sample, _ = run(agent, tmp_path, timeout_s=5.0)

    assert sample.failure is not None
    assert sample.failure.kind == "TimeoutError"
    assert sample.trajectory is not None
    assert [message.text for message in sample.trajectory.messages] == [
        "hello there",
        "HELLO THERE",
    ]


def test_a_command_reaches_the_gateway_beside_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "example.org,127.0.0.1")
    command = f"cmd:{sys.executable} -c \"import os; print('HELLO', os.environ['NO_PROXY'])\""

    sample, _ = run(command, tmp_path)

    assert sample.response == "HELLO example.org,127.0.0.1,127.0.0.1,localhost"


def test_a_gateway_that_fails_is_the_boundary_of_the_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def break_down(*_: Any, **__: Any) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("assay.gateway.relay.Relay.answer", break_down)
    sample, _ = run(write_program(tmp_path), tmp_path)

    assert sample.failure is not None
    assert sample.failure.boundary is Boundary.GATEWAY
    assert sample.score is not None
    assert not sample.score.is_score_valid


def test_the_keys_of_model_and_session_are_not_recorded(tmp_path: Path) -> None:
    seen: list[str] = []

    def agent(sample: Sample, context: RunContext) -> str:
        assert context.api_key is not None
        seen.append(context.api_key)
        leak = f"env: OPENAI_API_KEY={context.api_key} UPSTREAM={UPSTREAM_KEY} hello"
        with OpenAI(base_url=context.base_url, api_key=context.api_key) as client:
            answer = client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": leak}]
            )
        return str(answer.choices[0].message.content).replace(context.api_key.upper(), "x")

    run(agent, tmp_path)

    stored = b"".join(path.read_bytes() for path in tmp_path.glob("store.db*"))
    assert seen[0].encode() not in stored
    assert UPSTREAM_KEY.encode() not in stored
