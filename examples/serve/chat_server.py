"""Serve a Hugging Face model with OpenAI's API, token ids, logprobs and updates of its weights.

A small server like vLLM that also runs on a CPU. GRPO samples from it while the trainer holds the
weights and the optimiser:

    python examples/serve/chat_server.py models/qwen3-0.6b --port 8000

    GRPOConfig(model_name="models/qwen3-0.6b", server="http://127.0.0.1:8000/v1")

`POST /v1/chat/completions`: as OpenAI's, not streamed, and with vLLM's `return_token_ids`, `top_k`,
`stop_token_ids` and `chat_template_kwargs`. The answer also has a `weight_version`.
`GET /v1/models`: the name of the model.
`GET /v1/weights`: the version of the weights.
`PUT /v1/weights?version=step-3`: a safetensors file with all parameters replaces the weights.

Requests that arrive while the model is busy are answered in one batch. An update waits for the
answers in progress, and later requests wait for the update: no answer mixes two versions. A server
that was started anew answers with the version `initial` until it is updated, and one whose update
failed halfway with `partial`.

It listens on this machine only. Another `--host` needs `--key-env NAME`: the environment variable
with the key that requests must have. Whoever has the key can replace the weights.
"""

import argparse
import asyncio
import hmac
import os
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from pydantic import ValidationError

from assay.errors import AssayError, ConfigError, EndpointError, WireError
from assay.formats import (
    ModelAnswer,
    normalize_finish_reason,
    read_chat_request,
    write_chat_answer,
    write_chat_error,
)
from assay.providers import LocalClient, LocalModel, Reply, is_loopback
from assay.types import Endpoint

MAX_WEIGHTS_BYTES = 4 * 2**30
"""A larger update is refused: its body is held in memory."""

_VERSION = re.compile(r"[A-Za-z0-9._-]{1,64}")
# Extensions of OpenAI's API, which vLLM has under the same names.
_EXTRA_PARAMS = ("top_k", "stop_token_ids", "chat_template_kwargs")
_TOKEN_PARAMS = ("logprobs", "top_logprobs", "return_token_ids")
_SETTINGS = ("temperature", "top_p", "max_tokens", "stop")
# Combinations of settings that have a client; a training has one.
_MAX_CLIENTS = 32

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ChatServer:
    """One model behind HTTP: `app` is to be served by aiohttp."""

    def __init__(self, local: LocalModel, name: str, *, key: str | None = None) -> None:
        local.weight_version = local.weight_version or "initial"
        self._local = local
        self._name = name
        self._key = key
        self._clients: dict[str, LocalClient] = {}
        self._gate = UpdateGate()
        self.app = web.Application(client_max_size=MAX_WEIGHTS_BYTES, middlewares=[self._guard()])
        self.app.router.add_post("/v1/chat/completions", self._complete)
        self.app.router.add_get("/v1/models", self._list_models)
        self.app.router.add_get("/v1/weights", self._show_version)
        self.app.router.add_put("/v1/weights", self._update)

    def _guard(self) -> Any:
        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            given = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if self._key is not None and not hmac.compare_digest(
                given.encode(), self._key.encode()
            ):
                return respond_error(401, "the key is missing or wrong")
            # Only a browser sends this header: no page may use a server on its visitor's machine.
            if "Origin" in request.headers:
                return respond_error(403, "requests of web pages are refused")
            try:
                return await handler(request)
            except web.HTTPException as error:
                return respond_error(error.status, error.reason)
            except web.RequestPayloadError:
                return respond_error(400, "the body does not have its Content-Encoding")
            except (WireError, ConfigError) as error:
                return respond_error(400, str(error))
            except ValidationError as error:
                problem = error.errors()[0]
                field = ".".join(map(str, problem["loc"]))
                return respond_error(400, f"{field}: {problem['msg']}")
            except EndpointError as error:
                return respond_error(error.status or 400, error.message)

        return guard

    async def _complete(self, request: web.Request) -> web.Response:
        try:
            body = await request.json()
        # An unknown charset is a LookupError.
        except (ValueError, LookupError, RecursionError) as error:
            raise WireError(f"the body is not JSON: {error}") from error
        if not isinstance(body, dict):
            raise WireError("the body is not a JSON object")
        if body.get("stream"):
            raise WireError("this server does not stream")
        own = {name: body.pop(name) for name in (*_EXTRA_PARAMS, *_TOKEN_PARAMS) if name in body}
        asked = read_chat_request(body)
        seed = asked.settings.get("seed")
        if seed is not None and type(seed) is not int:
            raise WireError("`seed` is not a whole number")
        client = self._find_client(asked.settings, own)
        async with self._gate.call():
            reply = await client.complete(asked.messages, tools=asked.tools, seed=seed)
        return web.json_response(self._write_answer(reply, own))

    def _find_client(self, settings: dict[str, Any], own: dict[str, Any]) -> LocalClient:
        if unknown := sorted(settings.keys() - {*_SETTINGS, "seed"}):
            raise WireError(f"this server does not support {', '.join(unknown)}")
        given = {name: settings[name] for name in _SETTINGS if name in settings}
        extra = {name: own[name] for name in _EXTRA_PARAMS if own.get(name)}
        key = repr((sorted(given.items()), sorted(extra.items(), key=str)))
        if key not in self._clients:
            if len(self._clients) >= _MAX_CLIENTS:
                self._clients.clear()
            endpoint = Endpoint(provider="local", model=self._name, **given, extra_params=extra)
            self._clients[key] = LocalClient(self._local, endpoint)
        return self._clients[key]

    def _write_answer(self, reply: Reply, own: dict[str, Any]) -> dict[str, Any]:
        message, call = reply
        answer = ModelAnswer(
            message=message,
            finish_reason=normalize_finish_reason(call.finish_reason, message),
            usage=call.usage,
            model=self._name,
            id=uuid.uuid4().hex,
            created=int(time.time()),
        )
        body = write_chat_answer(answer)
        body["weight_version"] = call.weight_version
        (choice,) = body["choices"]
        ids, logprobs = call.completion_ids or (), call.logprobs or ()
        if own.get("return_token_ids"):
            body["prompt_token_ids"], choice["token_ids"] = call.prompt_ids, ids
        if own.get("logprobs"):
            tokens = self._local.tokenizer.convert_ids_to_tokens(list(ids))
            choice["logprobs"] = {
                "content": [
                    {"token": token, "logprob": logprob, "bytes": None, "top_logprobs": []}
                    for token, logprob in zip(tokens, logprobs, strict=True)
                ]
            }
        return body

    async def _list_models(self, _: web.Request) -> web.Response:
        model = {"id": self._name, "object": "model", "created": 0, "owned_by": "assay"}
        return web.json_response({"object": "list", "data": [model]})

    async def _show_version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": self._local.weight_version})

    async def _update(self, request: web.Request) -> web.Response:
        version = request.query.get("version", "")
        if not _VERSION.fullmatch(version):
            raise WireError("`version` is missing or not a name of up to 64 letters and digits")
        tensors = await asyncio.to_thread(self._read_weights, await request.read())
        async with self._gate.update():
            # Of no known age until all are replaced: a failure leaves tensors of both versions.
            self._local.weight_version = "partial"
            try:
                await asyncio.to_thread(self._replace_weights, tensors)
            except RuntimeError as error:
                return respond_error(500, f"the update failed: {error}")
            self._local.weight_version = version
        return web.json_response({"version": version})

    def _read_weights(self, body: bytes) -> dict[str, Any]:
        """Return the tensors of a safetensors file. Raises `WireError` unless they all fit."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            tensors: dict[str, Any] = load(body)
        except SafetensorError as error:
            raise WireError(f"the body is not a safetensors file: {error}") from error
        own = {name: weight.shape for name, weight in self._local.model.named_parameters()}
        if {name: tensor.shape for name, tensor in tensors.items()} != own:
            raise WireError("the weights are those of another model")
        return tensors

    def _replace_weights(self, tensors: dict[str, Any]) -> None:
        import torch

        with torch.no_grad():
            for name, weight in self._local.model.named_parameters():
                weight.copy_(tensors[name])


class UpdateGate:
    """Admits many calls at once, or one update alone. An update has priority over new calls."""

    def __init__(self) -> None:
        self._calls = 0
        self._updates = 0
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._updates)
            self._calls += 1
        try:
            yield
        finally:
            async with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    @asynccontextmanager
    async def update(self) -> AsyncIterator[None]:
        self._updates += 1
        try:
            # Held during the update: no call enters.
            async with self._changed:
                await self._changed.wait_for(lambda: not self._calls)
                yield
        finally:
            self._updates -= 1
            async with self._changed:
                self._changed.notify_all()


def respond_error(status: int, message: str) -> web.Response:
    return web.json_response(write_chat_error(status, message, None), status=status)


async def serve(server: ChatServer, host: str, port: int) -> None:
    """Serve until cancelled, and print the address."""
    runner = web.AppRunner(server.app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, backlog=1024).start()
        name = f"[{host}]" if ":" in host else host
        print(f"serving at http://{name}:{runner.addresses[0][1]}/v1", flush=True)
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", help="folder or hub id of a Hugging Face model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0: any free one")
    parser.add_argument("--device", help="default: the best available one")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--key-env", metavar="NAME", help="variable with the key of requests")
    args = parser.parse_args()
    key = os.environ.get(args.key_env, "") if args.key_env else None
    if key == "" or (key is None and not is_loopback(args.host)):
        parser.error(
            "a server for other machines needs a key: --key-env NAME, a variable that is set"
        )
    try:
        local = LocalModel.load(args.model, dtype=args.dtype, device=args.device)
        asyncio.run(serve(ChatServer(local, args.model, key=key), args.host, args.port))
    except (AssayError, OSError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
