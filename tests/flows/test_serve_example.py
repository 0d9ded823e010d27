"""The reference server: as a process, its answers, its updates and whom it refuses."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import torch
from safetensors.torch import save

from assay.providers import connect
from assay.train import GRPOConfig, TrainingSession, character_model, grpo_train
from assay.train.training_session import StepFinished, TrainingEvent
from assay.types import Endpoint, Message
from served_models import CHAT_SERVER, serving
from word_models import word_model

ASK = {"model": "letters", "messages": [{"role": "user", "content": "a"}], "max_tokens": 4}
IDS = {"logprobs": True, "return_token_ids": True}


def request(
    method: str, url: str, *, headers: dict[str, str] | None = None, **body: Any
) -> tuple[int, Any]:
    async def send() -> tuple[int, Any]:
        async with (
            aiohttp.ClientSession(headers=headers) as http,
            http.request(method, url, **body) as answer,
        ):
            return answer.status, await answer.json()

    return asyncio.run(send())


def to_bytes(model: Any) -> bytes:
    content: bytes = save({name: each.detach() for name, each in model.named_parameters()})
    return content


def test_a_process_answers_with_ids_and_logprobs_and_takes_weights(tmp_path: Path) -> None:
    first, other = (character_model("abc", hidden=16, layers=1, seed=seed) for seed in (0, 1))
    first.model.save_pretrained(tmp_path / "model")
    first.tokenizer.save_pretrained(tmp_path / "model")
    command = [sys.executable, str(CHAT_SERVER), "model", "--port", "0", "--device", "cpu"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().removeprefix("serving at ").strip()
        try:
            listed = request("GET", f"{url}/models")
            body = to_bytes(other.model)
            updated = request("PUT", f"{url}/weights?version=step-1", data=body)
            asked = {**ASK, **IDS, "seed": 3}
            status, answer = request("POST", f"{url}/chat/completions", json=asked)
        finally:
            process.terminate()

    assert (listed[0], listed[1]["data"][0]["id"]) == (200, "model")
    assert updated == (200, {"version": "step-1"})
    (choice,) = answer["choices"]
    ids = choice["token_ids"]
    logprobs = [each["logprob"] for each in choice["logprobs"]["content"]]
    assert (status, answer["weight_version"]) == (200, "step-1")
    assert 1 <= len(ids) == len(logprobs) == answer["usage"]["completion_tokens"] <= 4
    whole = torch.tensor([[*answer["prompt_token_ids"], *ids]])
    with torch.no_grad():
        found = other.model(whole).logits[0, -len(ids) - 1 : -1].log_softmax(-1)
    assert found.gather(-1, whole[0, -len(ids) :, None])[:, 0].tolist() == pytest.approx(
        logprobs, abs=1e-4
    )


@pytest.mark.slow
def test_a_training_waits_for_a_server_that_was_killed_and_restarted(tmp_path: Path) -> None:
    local = character_model("abc 0123456789", hidden=16, layers=1, seed=0)
    local.model.save_pretrained(tmp_path / "model")
    local.tokenizer.save_pretrained(tmp_path / "model")
    processes: list[subprocess.Popen[str]] = []

    def start(port: int) -> str:
        command = [sys.executable, str(CHAT_SERVER), "model", "--device", "cpu", "--port"]
        processes.append(
            subprocess.Popen([*command, str(port)], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        )
        # Read only by the first: the training itself waits for the second.
        output = processes[-1].stdout
        assert output is not None
        return "" if port else output.readline().removeprefix("serving at ").strip()

    url = start(0)

    def watch(event: TrainingEvent) -> None:
        if isinstance(event, StepFinished) and event.metrics.step == 2:
            processes[0].kill()
            processes[0].wait()
            start(int(url.rpartition(":")[2].partition("/")[0]))

    config = GRPOConfig(
        model_name="letters",
        output=tmp_path / "out",
        num_steps=5,
        prompts_per_step=2,
        group_size=4,
        max_tokens=6,
        learning_rate=1e-2,
        server=url,
        max_staleness=1,
    )
    try:
        result = grpo_train(
            config,
            [{"id": str(number), "prompt": f"say a {number}"} for number in range(4)],
            lambda sample: float(sample.response.count("a")),
            model=local,
            session=TrainingSession(store=tmp_path / "store.db", watch=watch),
        )
        found = request("GET", f"{url}/weights")
    finally:
        for process in processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    assert len(processes) == 2
    assert found == (200, {"version": "step-5"})
    assert len(result.steps) == 5
    # Rollouts that were in flight may have failed; those of the last step cannot.
    assert (result.steps[-1].valid, result.steps[-1].stale) == (8, 0)


def test_a_server_for_other_machines_needs_a_key() -> None:
    command = [sys.executable, str(CHAT_SERVER), "model", "--host", "0.0.0.0"]
    for more in ([], ["--key-env", "A_VARIABLE_THAT_IS_NOT_SET"]):
        done = subprocess.run([*command, *more], capture_output=True, text=True, check=False)

        assert done.returncode == 2
        assert "needs a key" in done.stderr


def test_a_request_needs_the_key_and_no_web_page_is_answered() -> None:
    with serving(word_model([]), key="sk-1234") as served:
        for headers in ({}, {"Authorization": "Bearer sk-123"}):
            status, body = request("GET", f"{served.url}/weights", headers=headers)
            assert (status, body["error"]["type"]) == (401, "authentication_error")
        key = {"Authorization": "Bearer sk-1234"}
        assert request("GET", f"{served.url}/weights", headers=key) == (200, {"version": "initial"})
        page = {**key, "Origin": "http://example.com"}
        assert request("GET", f"{served.url}/weights", headers=page)[0] == 403


@pytest.mark.parametrize(
    ("query", "body", "reason"),
    [
        ("?version=step-1", b"not a file", "not a safetensors file"),
        ("?version=step-1", save({"lm_head.weight": torch.zeros(1)}), "those of another model"),
        ("", b"", "`version` is missing"),
        ("?version=a/b", b"", "`version` is missing"),
    ],
)
def test_other_weights_are_refused_and_the_old_ones_stay(
    query: str, body: bytes, reason: str
) -> None:
    local = word_model([])
    before = to_bytes(local.model)
    with serving(local) as served:
        status, answer = request("PUT", f"{served.url}/weights{query}", data=body)

        assert status == 400
        assert reason in answer["error"]["message"]
        assert to_bytes(local.model) == before
        assert request("GET", f"{served.url}/weights") == (200, {"version": "initial"})


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"stream": True}, "does not stream"),
        ({"n": 2}, "`n`"),
        ({"response_format": {"type": "json_object"}}, "response_schema"),
        ({"messages": "hello"}, "messages"),
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": 0}, "max_tokens: "),
        ({"seed": "x"}, "`seed` is not a whole number"),
        ({"stop": 5}, "stop: the value is of type int, not a list"),
        ({"chat_template_kwargs": {"chat_template": "{{ 1 / 0 }}"}}, "division by zero"),
    ],
)
def test_requests_that_the_server_cannot_honour_are_refused(
    more: dict[str, Any], reason: str
) -> None:
    with serving(word_model([])) as served:
        status, answer = request("POST", f"{served.url}/chat/completions", json={**ASK, **more})

    assert status == 400
    assert reason in answer["error"]["message"]


def test_a_body_that_is_not_json_is_refused() -> None:
    with serving(word_model([])) as served:
        for body in (b"{model", b"\xff"):
            status, answer = request("POST", f"{served.url}/chat/completions", data=body)

            assert status == 400
            assert "the body is not JSON" in answer["error"]["message"]


def test_a_body_of_an_unknown_charset_or_nested_too_deep_is_refused() -> None:
    unknown = {"Content-Type": "application/json; charset=klingon"}
    no_text = {"Content-Type": "application/json; charset=base64"}
    bodies = [({}, b"[" * 100_000), (unknown, b"{}"), (no_text, b"{}")]
    with serving(word_model([])) as served:
        url = f"{served.url}/chat/completions"
        for headers, body in bodies:
            status, answer = request("POST", url, headers=headers, data=body)

            assert status == 400
            assert "the body is not JSON" in answer["error"]["message"]


def test_a_body_that_is_not_compressed_as_declared_is_refused() -> None:
    headers = {"Content-Encoding": "gzip"}
    with serving(word_model([])) as served:
        for method, path in (("POST", "chat/completions"), ("PUT", "weights?version=step-1")):
            url = f"{served.url}/{path}"
            status, answer = request(method, url, headers=headers, data=b"{}")

            assert status == 400
            assert "Content-Encoding" in answer["error"]["message"]


def test_an_update_that_fails_halfway_leaves_weights_of_no_known_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    local, copied = word_model([]), 0
    copy = torch.Tensor.copy_

    def copy_some(tensor: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        nonlocal copied
        copied += 1
        if copied == 3:
            raise RuntimeError("out of memory")
        return copy(tensor, source)

    with serving(local) as served:
        body = to_bytes(word_model([], seed=1).model)
        request("PUT", f"{served.url}/weights?version=step-1", data=body)
        monkeypatch.setattr(torch.Tensor, "copy_", copy_some)
        status, answer = request("PUT", f"{served.url}/weights?version=step-2", data=body)
        monkeypatch.undo()

        assert (status, answer["error"]["message"]) == (500, "the update failed: out of memory")
        assert request("GET", f"{served.url}/weights") == (200, {"version": "partial"})
        assert request("PUT", f"{served.url}/weights?version=step-2", data=body)[0] == 200


def test_no_answer_mixes_two_versions_of_the_weights() -> None:
    """Calls and updates at once: the logprobs of each answer are those of the version it names."""
    models = {f"step-{number}": word_model([], seed=number) for number in range(4)}

    async def ask_during_updates(url: str) -> list[Any]:
        endpoint = Endpoint(
            provider="vllm", model="letters", api_base=url, max_tokens=12, extra_params=IDS
        )
        async with connect(endpoint) as client, aiohttp.ClientSession() as http:

            async def ask(number: int) -> list[Any]:
                prompt = [Message(role="user", content=f"say {number}")]
                return [(await client.complete(prompt, seed=seed)).call for seed in range(6)]

            async def update() -> list[Any]:
                for version, local in models.items():
                    url_of = f"{url}/weights?version={version}"
                    async with http.put(url_of, data=to_bytes(local.model)) as answer:
                        assert answer.status == 200
                return []

            await update()
            found = await asyncio.gather(*(ask(number) for number in range(8)), update(), update())
        return [call for calls in found for call in calls]

    with serving(word_model([])) as served:
        calls = asyncio.run(ask_during_updates(served.url))

    assert len(calls) == 48
    assert len({call.weight_version for call in calls}) > 1
    for call in calls:
        whole = torch.tensor([[*call.prompt_ids, *call.completion_ids]])
        count = len(call.completion_ids)
        with torch.no_grad():
            logits = models[call.weight_version].model(whole).logits[0, -count - 1 : -1]
        found = logits.log_softmax(-1).gather(-1, whole[0, -count:, None])[:, 0]
        assert found.tolist() == pytest.approx(call.logprobs, abs=1e-4)
