"""Evaluates coding agents with a scripted model, where nothing but loopback is reached.

Run as a program, it takes a JSON object on stdin and prints the samples, one line each. `run_agent`
starts it, in a network namespace of its own where the machine allows that.
"""

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, web

from assay.agents.coding_agents import RECIPES
from assay.gateway import Gateway
from assay.providers import Reply
from assay.runner import EvalConfig, evaluate
from assay.types import Endpoint, Message, ModelCall, Sample, ToolCall, ToolSpec, Usage

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / ".npm-agents" / "node_modules" / ".bin"
SHELL_COMMAND = "printf forty-two > answer.txt && cat answer.txt"
# The task of docs/agents.md.
REPAIR_COMMAND = "sed -i 's/price for/price * quantity for/' cart.py && echo forty-two"
CHECK = "grep -qx forty-two answer.txt"
PROMPT = "Write forty-two into answer.txt."
_SHELLS = ("bash", "Bash", "exec_command", "shell", "shell_command", "local_shell")
_SUBAGENTS = ("Agent", "Task", "task")
_MAX_DEPTH = 2


class ScriptedModel:
    """Answers by what it is asked: a title, a subagent, a command in the shell, or the end."""

    endpoint = Endpoint(provider="mock", model="echo")

    def __init__(self, task: str) -> None:
        self._task = task
        self._count = 0

    async def close(self) -> None:
        pass

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        seed: int | None = None,
    ) -> Reply:
        self._count += 1
        answer = self._answer(messages, {tool.name: tool for tool in tools})
        usage = Usage(input_tokens=self._count_tokens(messages), output_tokens=7)
        reason = "tool_calls" if answer.tool_calls else "stop"
        call = ModelCall(model="scripted", usage=usage, finish_reason=reason, latency_s=0.0)
        return Reply(answer, call)

    def _count_tokens(self, messages: Sequence[Message]) -> int:
        # Enough to be compacted, once, after the first call of a tool.
        is_compacted = any("Summary: the file" in message.text for message in messages)
        return 90_000 if self._task == "compaction" and not is_compacted else 100

    def _answer(self, messages: Sequence[Message], tools: dict[str, ToolSpec]) -> Message:
        last = messages[-1]
        if "CHECKPOINT COMPACTION" in last.text:
            return Message(role="assistant", content="Summary: the file is written.")
        shell = next((name for name in _SHELLS if name in tools), None)
        subagent = next((name for name in _SUBAGENTS if name in tools), None)
        depth = max(
            (n for n in range(1, 9) for each in messages if f"depth-{n}" in each.text), default=0
        )
        calls = sum(len(message.tool_calls) for message in messages)
        if shell is None:
            return Message(role="assistant", content="A title")
        if self._task == "subagents" and subagent and depth < _MAX_DEPTH and calls < 2 - depth:
            kind = "general" if subagent == "task" else "general-purpose"
            return self._call(subagent, self._describe_subagent(depth + 1, calls, kind))
        if self._task == "subagents" and (depth or calls):
            return Message(role="assistant", content=f"Finished at depth {depth}.")
        if calls and last.role == "tool":
            return Message(role="assistant", content=f"The file contains {last.text.strip()!r}.")
        if any("Summary: the file" in each.text for each in messages):
            return Message(role="assistant", content="Done after the summary.")
        command = REPAIR_COMMAND if self._task == "docs" else SHELL_COMMAND
        return self._call(shell, _build_shell_arguments(tools[shell], command))

    def _describe_subagent(self, depth: int, calls: int, kind: str) -> dict[str, Any]:
        return {
            "description": f"Part {calls}",
            "prompt": f"This is depth-{depth}, part {calls}.",
            "subagent_type": kind,
            "run_in_background": False,
        }

    def _call(self, name: str, arguments: dict[str, Any]) -> Message:
        call = ToolCall(id=f"call_{self._count:04d}", name=name, arguments=arguments)
        return Message(
            role="assistant", content=None, reasoning="A tool will do it.", tool_calls=(call,)
        )


def _build_shell_arguments(tool: ToolSpec, command: str) -> dict[str, Any]:
    fields = tool.parameters.get("properties", {})
    name = "command" if "command" in fields else "cmd"
    is_list = fields.get(name, {}).get("type") == "array"
    arguments: dict[str, Any] = {name: ["sh", "-c", command] if is_list else command}
    if "description" in fields:
        arguments["description"] = "Write the file"
    return arguments


@asynccontextmanager
async def _serve_faults(root: str) -> AsyncIterator[str]:
    """Forward to the model's server; the first two calls with tools are refused and cut off."""
    faults = ["refuse", "cut"]

    async def forward(request: web.Request) -> web.StreamResponse:
        data = await request.read()
        fault = faults.pop(0) if faults and json.loads(data).get("tools") else None
        if fault == "refuse":
            error = {"type": "rate_limit_error", "message": "too many requests"}
            return web.json_response({"error": error}, status=429, headers={"Retry-After": "1"})
        names = ("Authorization", "x-api-key", "Content-Type", "anthropic-version")
        headers = {name: request.headers[name] for name in names if name in request.headers}
        async with http.post(root + request.path_qs, data=data, headers=headers) as answer:
            body = await answer.read()
            if fault is None:
                return web.Response(
                    body=body, status=answer.status, content_type=answer.content_type
                )
            response = web.StreamResponse(headers={"Content-Type": answer.content_type})
        await response.prepare(request)
        await response.write(body[: len(body) // 2])
        assert request.transport is not None
        request.transport.close()
        return response

    app = web.Application(client_max_size=10**9)
    app.router.add_post("/{path:.*}", forward)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with ClientSession() as http:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def _evaluate(
    agent: str, provider: str, task: str, store: Path, *, replay: bool
) -> list[Sample]:
    """Return the sample, and with `replay` also that of a replay without the server."""
    rows = [{"id": "task", "question": PROMPT}]
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(Gateway(ScriptedModel(task)))
        served = server.open_session()
        base = served.root_url if provider == "anthropic" else served.base_url
        if task == "faults":
            faulty = await stack.enter_async_context(_serve_faults(server.url))
            base = base.replace(server.url, faulty)
        endpoint = Endpoint(
            provider=provider, model="scripted-model", api_base=base, api_key=served.key
        )
        config = EvalConfig(agent=agent, endpoint=endpoint, check=CHECK, timeout_s=600)
        report = await evaluate(rows, config, store=store)
    reports = [report]
    if replay:
        keyless = endpoint.model_copy(update={"api_key": ""})
        config = replace(config, replay=report.run_id, endpoint=keyless)
        reports.append(await evaluate(rows, config, store=store))
    return [sample for each in reports for sample in each.samples]


def run_agent(
    agent: str,
    providers: Sequence[str],
    folder: Path,
    *,
    task: str = "tool",
    replay: bool = False,
) -> list[Sample]:
    """Evaluate an agent once with the API of each provider. `folder/home-N` is the HOME it left.

    With `replay`, each is followed by the sample of its replay.
    """
    program = find_program(agent.partition(":")[0])
    assert program is not None
    shims = folder / "bin"
    shims.mkdir()
    # Keeps the HOME, which the agent itself removes.
    shim = shims / program.name
    shim.write_text(
        f'#!/bin/sh\n"{program}" "$@"\nstatus=$?\n'
        f'cp -r "$HOME" "{folder}/home-$(ls "{folder}" | grep -c home)"\n'
        "exit $status\n"
    )
    shim.chmod(0o755)
    # Read for the version, which saves a start of the program.
    package = RECIPES[agent.partition(":")[0]].package
    (shims / "package.json").write_text(json.dumps({"name": package, "version": "1.0.0"}))
    job = {
        "agent": agent,
        "providers": list(providers),
        "task": task,
        "replay": replay,
        "store": str(folder / "s.db"),
    }
    done = subprocess.run(
        [*_isolate(), sys.executable, __file__],
        input=json.dumps(job),
        env={**os.environ, "PATH": f"{shims}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=2000,
    )
    assert done.returncode == 0, done.stderr
    return [Sample.model_validate_json(line) for line in done.stdout.splitlines()]


def find_program(agent: str) -> Path | None:
    """Return the installed program of an agent; None where npm could not install it."""
    path = PACKAGES / RECIPES[agent].program
    return path if path.exists() and shutil.which("node") else None


def _isolate() -> list[str]:
    """Return the beginning of a command that reaches loopback only; nothing if not allowed."""
    probe = ["unshare", "-n", "sh", "-c", "ip link set lo up"]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True).returncode:
        return []
    return ["unshare", "-n", "sh", "-c", 'ip link set lo up; exec "$@"', "isolated"]


def run_commands(commands: Sequence[str], folder: Path) -> str:
    """Run `assay` commands that ask a model of Anthropic, which is scripted here."""
    program = find_program("claude-code")
    assert program is not None
    done = subprocess.run(
        [*_isolate(), sys.executable, __file__],
        input=json.dumps({"commands": list(commands), "folder": str(folder)}),
        env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=2000,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def _run_commands(commands: Sequence[str], folder: str) -> None:
    async with Gateway(ScriptedModel("docs")) as server:
        session = server.open_session()
        for line in commands:
            command = shlex.split(line.removeprefix("$ assay "))
            if "--model" in command:
                command[command.index("--model") + 1] += f"@{session.root_url}"
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "assay", *command),
                cwd=folder,
                env={**os.environ, "ANTHROPIC_API_KEY": session.key},
            )
            assert await process.wait() == 0, line


async def _main() -> None:
    job = json.load(sys.stdin)
    if "commands" in job:
        await _run_commands(job["commands"], job["folder"])
        return
    for provider in job["providers"]:
        samples = await _evaluate(
            job["agent"], provider, job["task"], Path(job["store"]), replay=job["replay"]
        )
        for sample in samples:
            print(sample.to_json())


if __name__ == "__main__":
    asyncio.run(_main())
