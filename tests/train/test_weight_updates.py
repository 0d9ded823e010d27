"""Weights on their way to a server: what is sent, in which order, and what is refused."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from safetensors.torch import load

from assay.errors import EndpointError, TrainingError
from assay.providers.in_process import LocalModel
from assay.train.weight_updates import (
    PolicyWeights,
    ReloadVLLM,
    UploadWeights,
    update_patiently,
)
from assay.types import Endpoint
from word_models import word_model


def policy_weights(step: int = 3) -> PolicyWeights:
    local = word_model([], seed=step)
    return PolicyWeights(f"step-{step}", local.model, local.tokenizer)


class Recorder:
    """A server that notes each request, and fails those to one path.

    It answers `/reset_prefix_cache` with the contents of `resets`, then with nothing.
    """

    def __init__(
        self,
        failing: str | None = None,
        *,
        resets: Sequence[Any] = (),
        answer: Callable[[web.Request], tuple[int, str]] = lambda request: (200, "{}"),
    ) -> None:
        self.requests: list[tuple[str, str, Any]] = []
        self.keys: set[str | None] = set()
        self._failing = failing
        self._resets = list(resets)
        self._answer = answer

    async def answer(self, request: web.Request) -> web.StreamResponse:
        json = request.content_type == "application/json" and request.can_read_body
        body = await (request.json() if json else request.read())
        self.requests.append((request.method, request.path_qs, body))
        self.keys.add(request.headers.get("Authorization"))
        if request.path == self._failing:
            return web.json_response({"error": "out of memory"}, status=500)
        if request.path == "/reset_prefix_cache":
            status, content = self._resets.pop(0) if self._resets else (200, None)
            return web.Response() if content is None else web.json_response(content, status=status)
        status, text = self._answer(request)
        return web.Response(status=status, text=text)

    def run(self, update: Callable[[Endpoint], Awaitable[None]], **fields: Any) -> None:
        """Call `update` with the endpoint of the running server."""

        async def call() -> None:
            app = web.Application(client_max_size=2**30)
            app.router.add_route("*", "/{path:.*}", self.answer)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
                await update(Endpoint(provider="vllm", model="m", api_base=url, **fields))
            finally:
                await runner.cleanup()

        asyncio.run(call())


def test_an_upload_has_the_version_all_parameters_and_the_key() -> None:
    weights, server = policy_weights(), Recorder()

    server.run(lambda endpoint: UploadWeights()(weights, endpoint), api_key="sk-1234")

    ((method, path, body),) = server.requests
    assert (method, path) == ("PUT", "/v1/weights?version=step-3")
    assert server.keys == {"Bearer sk-1234"}
    sent = load(body)
    own = dict(weights.model.named_parameters())
    assert sent.keys() == own.keys()
    assert all(bool((sent[name] == own[name]).all()) for name in own)


def test_a_server_without_that_address_is_named_with_what_to_do() -> None:
    server = Recorder(failing="/v1/weights")

    with pytest.raises(TrainingError, match=r"/v1/weights: .* HTTP 500: .*out of memory") as caught:
        server.run(lambda endpoint: UploadWeights()(policy_weights(), endpoint))

    assert "ReloadVLLM" in str(caught.value)
    assert "version" not in str(caught.value)


def test_vllm_is_paused_reloads_the_written_folder_and_resumes(tmp_path: Path) -> None:
    update, server = ReloadVLLM(tmp_path / "weights"), Recorder()
    weights = policy_weights(4)

    (tmp_path / "weights" / "step-1").mkdir(parents=True)

    async def update_twice(endpoint: Endpoint) -> None:
        await update(policy_weights(3), endpoint)
        await update(weights, endpoint)

    server.run(update_twice)

    folder = tmp_path / "weights" / "step-4"
    reload = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
    assert server.requests[4:] == [
        ("POST", "/pause?mode=wait", b""),
        ("POST", "/collective_rpc", reload),
        ("POST", "/reset_prefix_cache", b""),
        ("POST", "/resume", b""),
    ]
    # Checkpoints of somebody else stay.
    assert {each.name for each in (tmp_path / "weights").iterdir()} == {"step-1", "step-4"}
    written = dict(LocalModel.load(folder, device="cpu").model.named_parameters())
    for name, weight in weights.model.named_parameters():
        if name in written:  # the bias of the tests' own head is not part of the architecture
            assert bool((written[name] == weight).all())


def test_a_folder_may_be_text_and_have_another_path_on_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    update, server = ReloadVLLM("weights", server_folder="/mnt/w"), Recorder()

    server.run(lambda endpoint: update(policy_weights(3), endpoint))

    assert (tmp_path / "weights" / "step-3" / "config.json").exists()
    assert server.requests[1][2]["kwargs"] == {"weights_path": "/mnt/w/step-3"}


def test_vllm_stays_paused_when_it_cannot_load(tmp_path: Path) -> None:
    update, server = ReloadVLLM(tmp_path / "weights"), Recorder(failing="/collective_rpc")

    with pytest.raises(TrainingError, match=r"collective_rpc: .*out of memory") as caught:
        server.run(lambda endpoint: update(policy_weights(3), endpoint))

    assert [path for _, path, _ in server.requests] == ["/pause?mode=wait", "/collective_rpc"]
    assert "VLLM_SERVER_DEV_MODE=1" in str(caught.value)


def test_the_key_is_in_no_error_though_the_server_repeats_it() -> None:
    server = Recorder(answer=lambda request: (500, f"bad: {request.headers['Authorization']}"))

    with pytest.raises(TrainingError, match="HTTP 500: bad: ") as caught:
        server.run(
            lambda endpoint: UploadWeights()(policy_weights(), endpoint), api_key="sk-4711-secret"
        )

    assert "sk-4711-secret" not in str(caught.value)


def test_weights_are_not_sent_where_a_server_redirects_to() -> None:
    def redirect(request: web.Request) -> tuple[int, str]:
        raise web.HTTPTemporaryRedirect("/elsewhere")

    server = Recorder(answer=redirect)

    with pytest.raises(TrainingError, match="HTTP 307"):
        server.run(lambda endpoint: UploadWeights()(policy_weights(), endpoint))

    assert [path for _, path, _ in server.requests] == ["/v1/weights?version=step-3"]


def test_an_update_goes_through_the_proxy_that_rollouts_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proxy = Recorder()

    async def update(endpoint: Endpoint) -> None:
        monkeypatch.setenv("http_proxy", str(endpoint.api_base).removesuffix("/v1"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        served = endpoint.model_copy(update={"api_base": "http://weights.invalid/v1"})
        await UploadWeights()(policy_weights(), served)

    proxy.run(update)

    assert [(method, path) for method, path, _ in proxy.requests] == [
        ("PUT", "/v1/weights?version=step-3")
    ]


BUSY = [(200, {"success": False}), (200, False), (503, {"error": "requests are running"})]


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.train.weight_updates._RESET_WAITS_S", (0.0, 0.0, 0.0))


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("answer", [(200, None), (200, {"success": True})])
def test_a_cache_that_is_still_in_use_is_reset_again_before_vllm_resumes(
    answer: Any, tmp_path: Path
) -> None:
    update, server = ReloadVLLM(tmp_path / "weights"), Recorder(resets=[*BUSY, answer])

    server.run(lambda endpoint: update(policy_weights(3), endpoint))

    paths = [path for _, path, _ in server.requests]
    assert paths == ["/pause?mode=wait", "/collective_rpc", *["/reset_prefix_cache"] * 4, "/resume"]


@pytest.mark.usefixtures("no_waiting")
def test_vllm_stays_paused_when_it_keeps_prefixes_of_the_old_weights(tmp_path: Path) -> None:
    busy = [(200, {"success": False})] * 4
    update, server = ReloadVLLM(tmp_path / "weights"), Recorder(resets=busy)

    with pytest.raises(TrainingError, match=r"reset_prefix_cache: .*old weights.*false") as caught:
        server.run(lambda endpoint: update(policy_weights(3), endpoint))

    assert "restart" in str(caught.value)
    assert [path for _, path, _ in server.requests][-1] == "/reset_prefix_cache"


class SlowRecorder(Recorder):
    """Answers `/reset_prefix_cache` in two parts."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path != "/reset_prefix_cache":
            return await super().answer(request)
        response = web.StreamResponse()
        await response.prepare(request)
        for part in (b'{"success": ', b"false}"):
            await response.write(part)
            await asyncio.sleep(0.05)
        return response


@pytest.mark.usefixtures("no_waiting")
def test_a_refusal_that_arrives_in_parts_is_read_to_its_end(tmp_path: Path) -> None:
    update, server = ReloadVLLM(tmp_path / "weights"), SlowRecorder()

    with pytest.raises(TrainingError, match=r"old weights.*false"):
        server.run(lambda endpoint: update(policy_weights(3), endpoint))


@pytest.mark.parametrize(("failures", "waits"), [(0, []), (2, [1, 2]), (7, [1, 2, 4, 8, 16, 32])])
def test_an_unreachable_server_is_tried_again_for_a_minute(failures: int, waits: list[int]) -> None:
    tries, slept = 0, []

    async def update(weights: PolicyWeights, endpoint: Endpoint) -> None:
        nonlocal tries
        tries += 1
        if tries <= failures:
            raise EndpointError("no connection")

    async def wait(seconds: float, error: EndpointError) -> None:
        assert error.message == "no connection"
        slept.append(seconds)

    async def call() -> None:
        endpoint = Endpoint(provider="vllm", model="m")
        await update_patiently(update, policy_weights(), endpoint, wait=wait)

    if failures > len(waits):
        with pytest.raises(EndpointError, match="no connection"):
            asyncio.run(call())
    else:
        asyncio.run(call())
    assert (tries, slept) == (len(waits) + 1, waits)


async def wait_forever(seconds: float, error: EndpointError) -> None:
    raise AssertionError(f"waited {seconds} s for {error}")


def test_a_server_that_refuses_is_not_tried_again() -> None:
    server = Recorder(failing="/v1/weights")

    with pytest.raises(TrainingError, match="HTTP 500"):
        server.run(
            lambda endpoint: update_patiently(
                UploadWeights(), policy_weights(), endpoint, wait=wait_forever
            )
        )

    assert len(server.requests) == 1
