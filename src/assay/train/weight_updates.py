"""How new weights reach the server that samples: the hook, and one for each of two servers."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from assay.errors import EndpointError, TrainingError
from assay.providers import (
    RequestTemplate,
    build_request_template,
    hide_progress_bars,
    make_excerpt,
)
from assay.types import Endpoint

from .checkpoints import remove_folder, write_folder

_MAX_ANSWER_BYTES = 2**16
_RETRY_WAITS_S = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
# vLLM frees the blocks of its last answers a moment after it has sent them.
_RESET_WAITS_S = (0.1, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class PolicyWeights:
    """The weights of the policy after a step, with which a server is to sample."""

    version: str
    """`step-N`: the number of steps that the weights have learned from."""

    model: Any
    """The Hugging Face model. LoRA matrices are merged."""

    tokenizer: Any

    def to_safetensors(self) -> bytes:
        """Return the parameters as the content of a safetensors file."""
        from safetensors.torch import save

        # Parameters, not the state: tied weights are listed once, which the format requires.
        tensors = {
            name: weight.detach().cpu().contiguous()
            for name, weight in self.model.named_parameters()
        }
        content: bytes = save(tensors, metadata={"version": self.version})
        return content

    def save(self, folder: Path) -> None:
        """Write model and tokenizer as a folder, which is never visible half-written."""

        def fill(beside: Path) -> None:
            with hide_progress_bars():
                self.model.save_pretrained(beside)
                self.tokenizer.save_pretrained(beside)

        folder.parent.mkdir(parents=True, exist_ok=True)
        write_folder(folder, fill)


WeightUpdate = Callable[[PolicyWeights, Endpoint], Awaitable[None]]
"""Makes the server at an endpoint sample with new weights.

It returns when the server answers every later request with them. It raises `EndpointError` if the
server is unreachable, and `TrainingError` if it refuses. No answer may be sampled partly with the
old weights and partly with the new ones."""


async def update_patiently(
    update: WeightUpdate,
    weights: PolicyWeights,
    endpoint: Endpoint,
    *,
    wait: Callable[[float, EndpointError], Awaitable[None]],
) -> None:
    """Update a server. While it is unreachable, as during a restart, this retries for a minute.

    `wait` is called with the seconds until the next try and the error of the last one.
    """
    for wait_s in _RETRY_WAITS_S:
        try:
            return await update(weights, endpoint)
        except EndpointError as error:
            await wait(wait_s, error)
    return await update(weights, endpoint)


@dataclass(frozen=True)
class UploadWeights:
    """Sends the weights as the body of `PUT /v1/weights`, as `examples/serve` takes them."""

    timeout_s: float = 600.0

    async def __call__(self, weights: PolicyWeights, endpoint: Endpoint) -> None:
        """Upload the weights. The server replaces its own between two batches."""
        body = await asyncio.to_thread(weights.to_safetensors)
        template = build_request_template(endpoint, "/weights", timeout_s=self.timeout_s)
        headers = {"Content-Type": "application/octet-stream"}
        async with _Requests(template) as requests:
            url = f"{template.url}?version={weights.version}"
            await requests.send("PUT", url, data=body, headers=headers, hint=_UPLOAD_HINT)


_UPLOAD_HINT = (
    "examples/serve has this address; for vLLM set update_weights=ReloadVLLM(folder), "
    "for another server a function of yours"
)


@dataclass(frozen=True)
class ReloadVLLM:
    """Writes the weights to a folder that vLLM can read, and makes vLLM load them.

    vLLM must run with `VLLM_SERVER_DEV_MODE=1`. It is paused with `mode=wait`: answers in progress
    are completed with the old weights, and later ones wait for the new ones.
    """

    folder: str | Path
    """Each version is a folder in it. The one before is removed; other folders are kept."""

    server_folder: str | None = None
    """The path of `folder` on the machine of the server. None: the same path."""

    timeout_s: float = 600.0
    _written: set[Path] = field(default_factory=set, init=False, repr=False, compare=False)

    async def __call__(self, weights: PolicyWeights, endpoint: Endpoint) -> None:
        """Write the folder, then pause, reload, clear the prefix cache and resume."""
        folder = Path(self.folder).absolute() / weights.version
        await asyncio.to_thread(weights.save, folder)
        path = f"{self.server_folder or folder.parent}/{weights.version}"
        reload = {"method": "reload_weights", "kwargs": {"weights_path": path}}
        template = build_request_template(endpoint, "", timeout_s=self.timeout_s)
        # These routes are beside /v1.
        root = template.url.rstrip("/").removesuffix("/v1")
        async with _Requests(template) as requests:
            await requests.send("POST", f"{root}/pause?mode=wait", hint=_VLLM_HINT)
            # A server whose update failed stays paused: it may hold parts of both versions.
            await requests.send("POST", f"{root}/collective_rpc", json=reload, hint=_VLLM_HINT)
            await _reset_prefix_cache(requests, f"{root}/reset_prefix_cache")
            await requests.send("POST", f"{root}/resume", hint=_VLLM_HINT)
        # Only what it wrote itself: checkpoints of any trainer are called `step-N`, too.
        for old in self._written - {folder}:
            await asyncio.to_thread(remove_folder, old)
            self._written.discard(old)
        self._written.add(folder)


_VLLM_HINT = (
    "start vLLM with VLLM_SERVER_DEV_MODE=1, on a machine that can read the folder; restart it if "
    "it stays paused"
)


async def _reset_prefix_cache(requests: "_Requests", url: str) -> None:
    for wait_s in (*_RESET_WAITS_S, None):
        refusal: TrainingError | None = None
        try:
            answer = await requests.send("POST", url, hint=_VLLM_HINT)
        except TrainingError as error:
            answer, refusal = "", error
        # Some versions answer with nothing, others with `success`. A cache in use is not reset, and
        # the status is 200 all the same.
        if refusal is None and not re.search(r"\bfalse\b", answer):
            return
        if wait_s is not None:
            await asyncio.sleep(wait_s)
    raise refusal or TrainingError(
        f"the server keeps prefixes that the old weights computed: it answered {answer!r}",
        where=url,
        hint="end other uses of the server, and restart it: it is still paused",
    )


class _Requests:
    """Requests that must succeed; an async context manager."""

    def __init__(self, template: RequestTemplate) -> None:
        self._template = template

    async def __aenter__(self) -> Self:
        # aiohttp takes 0.1 s to import, for these trainings only.
        from aiohttp import ClientSession, ClientTimeout

        timeout = ClientTimeout(total=self._template.timeout_s)
        self._http = ClientSession(headers=self._template.headers, timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def send(self, method: str, url: str, *, hint: str, **content: Any) -> str:
        """Return the answer to a request on one line, redacted and cut short.

        Raises `TrainingError` if it is an error, and `EndpointError` if there is none.
        """
        from aiohttp import ClientError

        where, proxy = url.partition("?")[0], self._template.proxy
        if proxy is not None:
            content |= {"proxy": proxy.url, "proxy_headers": proxy.credentials}
        try:
            # No redirects: a server must not choose who gets the weights and the key.
            async with self._http.request(method, url, allow_redirects=False, **content) as answer:
                body = b""
                # One read returns the part that has arrived, which may lack the end of an answer.
                while len(body) < _MAX_ANSWER_BYTES and (part := await answer.content.readany()):
                    body += part
                cut = len(body) >= _MAX_ANSWER_BYTES
                text = make_excerpt(
                    body.decode("utf-8", "replace"), self._template.redactor, cut=cut
                )
                if answer.status < 300:
                    return text
                problem = f"HTTP {answer.status}: {text}"
        except (ClientError, TimeoutError, OSError) as error:
            raise EndpointError(
                f"the server did not take the new weights: {type(error).__name__}: {error}",
                where=where,
                hint="start the server, or correct `server`; a training that has begun can resume",
            ) from error
        raise TrainingError(
            f"the server did not take the new weights: {problem}", where=where, hint=hint
        )
