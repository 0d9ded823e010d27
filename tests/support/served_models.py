"""The server of `examples/serve` in a thread of its own, with a log of what it was asked."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from aiohttp import web

from assay.providers.in_process import LocalModel
from assay.scorers import import_file

CHAT_SERVER = Path(__file__).parents[2] / "examples" / "serve" / "chat_server.py"
example: Any = import_file(CHAT_SERVER)


class ServedModel:
    """A running server."""

    def __init__(
        self,
        local: LocalModel,
        *,
        without: frozenset[str],
        key: str | None,
        change: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        self.local = local
        self.url = ""
        self.log: list[tuple[str, str]] = []
        """Method and path of each request, with the query."""

        self.restarts: set[int] = set()
        """Steps of a training, for a test that simulates restarts before them."""

        self._server = example.ChatServer(local, "letters", key=key)
        self._server.app.on_response_prepare.append(self._note)
        self.reloads = True
        """False: `reload_weights` does nothing, as if it had another folder."""

        for path in ("/pause", "/collective_rpc", "/reset_prefix_cache", "/resume"):
            self._server.app.router.add_post(path, self._answer_as_vllm)
        write = self._server._write_answer

        def write_part(*given: Any) -> dict[str, Any]:
            body: dict[str, Any] = write(*given)
            for part in (body, body["choices"][0]):
                for name in without & part.keys():
                    del part[name]
            if change is not None:
                change(body)
            return body

        self._server._write_answer = write_part

    async def _answer_as_vllm(self, request: web.Request) -> web.Response:
        """Answer vLLM's routes for weights; `/collective_rpc` loads the folder that it is given."""
        if request.path == "/collective_rpc" and self.reloads:
            folder = (await request.json())["kwargs"]["weights_path"]
            new = dict(LocalModel.load(folder, device="cpu").model.named_parameters())
            with torch.no_grad():
                for name, weight in self.local.model.named_parameters():
                    weight.copy_(new[name])
        return web.json_response({"success": True})

    async def _note(self, request: web.Request, _: web.StreamResponse) -> None:
        self.log.append((request.method, request.path_qs))

    @property
    def versions(self) -> list[str]:
        """The versions that the server was updated to."""
        return [path.rpartition("=")[2] for method, path in self.log if method == "PUT"]

    def serve(self, started: threading.Event, ended: list[Any]) -> None:
        async def run() -> None:
            runner = web.AppRunner(self._server.app, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
            stop = asyncio.Event()
            ended.append(lambda: loop.call_soon_threadsafe(stop.set))
            started.set()
            await stop.wait()
            await runner.cleanup()

        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(run())
        finally:
            started.set()
            loop.close()


@contextmanager
def serving(
    local: LocalModel,
    *,
    without: frozenset[str] = frozenset(),
    key: str | None = None,
    change: Callable[[dict[str, Any]], None] | None = None,
) -> Iterator[ServedModel]:
    """Serve a model. Answers lack the fields in `without`, and are passed to `change`."""
    served = ServedModel(local, without=without, key=key, change=change)
    started = threading.Event()
    ended: list[Any] = []
    thread = threading.Thread(target=served.serve, args=(started, ended), daemon=True)
    thread.start()
    started.wait()
    try:
        yield served
    finally:
        for end in ended:
            end()
        thread.join()
