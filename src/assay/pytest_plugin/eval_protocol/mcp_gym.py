"""Environments from a server script: started for the test, one episode for each rollout."""

import ast
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from assay.environments import Environment, RemoteEnvironments, Step, launch_server
from assay.errors import ConfigError, EnvironmentFault
from assay.types import Message, Sample, ToolSpec

from .dataset import find_beside

_STARTUP_TIMEOUT_S = 60.0
_EVAL_PROTOCOL_PACKAGE = "eval_protocol"


class GymServer:
    """The server of `server_script_path`, which runs while the async context is open."""

    def __init__(self, script: str, folder: Path, kwargs: Mapping[str, Any]) -> None:
        # The defaults of eval-protocol: one server for each test.
        defaults = {"server_mode": "per_run", "start_server": True}
        others = {name: value for name, value in kwargs.items() if value != defaults.get(name)}
        for name in sorted(others.keys() - {"domain", "port"}):
            raise ConfigError(
                f"assay does not support {name!r} with the value {kwargs[name]!r}",
                where="rollout_processor_kwargs",
            )
        path = find_beside(script, folder)
        domain = [] if kwargs.get("domain") is None else ["--domain", str(kwargs["domain"])]
        port = str(kwargs.get("port", "{port}"))
        # Some servers read their port from the command line, others from the variable PORT.
        self._command = ["env", f"PORT={port}", sys.executable, str(path), "--port", port, *domain]
        self._url = f"http://127.0.0.1:{port}/mcp/"
        self._script = path
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Callable[[Sample], Environment]:
        # Not in the constructor: a test that is only collected needs no server.
        check_imports(self._script)
        try:
            server = launch_server(self._command, self._url, deadline_s=_STARTUP_TIMEOUT_S)
            url = (await self._stack.enter_async_context(server)).url
            remote = RemoteEnvironments(url, kind="mcp")
            await self._stack.enter_async_context(remote)
        except BaseException:
            await self._stack.aclose()
            raise
        return lambda sample: GymEpisode(remote.make, sample)

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()


def check_imports(script: Path) -> None:
    """Raise `ConfigError` for a script that is missing or cannot import eval_protocol.

    The replacements of `assay.compat` exist in this process only.
    """
    if not script.is_file():
        raise ConfigError(f"{script} does not exist", where="server_script_path")
    spec = find_spec(_EVAL_PROTOCOL_PACKAGE)
    # The origin is "assay.compat" for the replacement, and None for a plain folder of that name.
    if spec is not None and spec.origin not in (None, "assay.compat"):
        return
    try:
        tree = ast.parse(script.read_bytes(), filename=str(script))
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"the script is not Python: {error}", where=str(script)) from error
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if any(name.partition(".")[0] == _EVAL_PROTOCOL_PACKAGE for name in names):
            raise ConfigError(
                "the server script imports `eval_protocol`, which assay does not replace in "
                "another process",
                where=str(script),
                hint="pip install eval-protocol, or write the server with the package `mcp`",
            )


class GymEpisode:
    """One episode, opened with the prompt of the row's `user_prompt_template`."""

    def __init__(self, make: Callable[[Mapping[str, Any]], Environment], sample: Sample) -> None:
        about = sample.metadata.get("dataset_info") or {}
        self._context = dict(about.get("environment_context") or {})
        self._template = about.get("user_prompt_template") or "{observation}"
        self._where = f"row {sample.id}"
        self._environment = make(self._context)

    @property
    def tools(self) -> Sequence[ToolSpec]:
        return self._environment.tools

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        """Return the first prompt. The seed in `environment_context` is used in every run."""
        own = self._context.get("seed")
        opening = await self._environment.open(seed=own if isinstance(own, int) else seed)
        observation = "\n".join(message.text for message in opening)
        if not opening and "{observation}" in self._template:
            raise EnvironmentFault(
                "the server has no /control/initial_state to fill {observation} with",
                where=self._where,
            )
        try:
            prompt = self._template.format(**{**self._context, "observation": observation})
        except (KeyError, IndexError, ValueError, AttributeError) as error:
            raise EnvironmentFault(
                f"`user_prompt_template` cannot be filled: {type(error).__name__}: {error}",
                where=self._where,
                hint="it may name `observation` and the keys of `environment_context`",
            ) from error
        return (Message(role="user", content=prompt),)

    async def step(self, action: Message) -> Step:
        return await self._environment.step(action)

    async def close(self) -> None:
        await self._environment.close()
