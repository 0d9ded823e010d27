"""From what was asked for to the agent under test. What cannot be run is refused here."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.agents import Agent, CommandAgent, EndpointAgent, FunctionAgent, ToolCode
from assay.errors import ConfigError
from assay.providers import PROVIDERS, ClientSettings, parse_model
from assay.types import AgentDefinition, Endpoint, InlineTool, code_sha256, sha256_of

from .asked_models import bare_model, manifest_endpoint
from .certify_settings import CertifySettings
from .code_index import COMMAND, CodeIndex
from .import_ref import function_named, imported, is_code_name
from .source_files import CodeFiles, find_callable_code

_ADDRESSES = ("http://", "https://")


@dataclass(frozen=True)
class Chosen:
    """The agent under test."""

    agent: Agent
    rehearsal: tuple[str, ...] = ()
    """What differs from the manifest."""

    endpoint: Endpoint | None = None
    """Where it is, for agents that are models."""

    code: CodeFiles | None = None
    """The files of the project that it is made of, where it is code or has tools."""

    @property
    def code_sha256(self) -> str | None:
        return self.agent.sha256 if self.code is None else self.code.sha256


@dataclass(frozen=True)
class _Case:
    """What an agent is chosen by."""

    definition: AgentDefinition
    settings: CertifySettings
    root: Path
    where: str
    client: ClientSettings
    code: CodeIndex


def choose_agent(
    definition: AgentDefinition,
    settings: CertifySettings,
    *,
    root: Path,
    where: str,
    slots: int,
    code: CodeIndex | None = None,
) -> Chosen:
    """The agent that is to be certified. Raises `ConfigError` before anything is called."""
    runner = settings.runner
    client = ClientSettings(concurrency=slots, request_timeout_s=settings.timeout_s)
    case = _Case(definition, settings, root, where, client, code or CodeIndex(root))
    if runner is None or isinstance(runner, Endpoint):
        return _own(case, runner)
    if isinstance(runner, str) and runner.partition(":")[0] in PROVIDERS:
        return _own(case, parse_model(runner))
    if settings.tools is not None:
        raise ConfigError("--tools is for the manifest's own model; a runner brings its own")
    if isinstance(runner, str):
        return _by_text(case, runner)
    return Chosen(FunctionAgent(runner, _name(runner)), code=_code_of(runner, case.code))


def _name(runner: Callable[..., object]) -> str:
    module = getattr(runner, "__module__", "")
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if module == "__main__" and script:
        module = Path(script).stem
    return f"{module}:{getattr(runner, '__qualname__', 'function')}"


def _code_of(runner: Callable[..., object], index: CodeIndex) -> CodeFiles | None:
    """The code of a function, as its name finds it; of the function itself, where it does not."""
    named = index.runner(_name(runner)) if is_code_name(_name(runner)) else None
    held = find_callable_code(runner)
    if named is None or held is None:
        return held
    return named if set(held.files.values()) <= set(named.files.values()) else held


def _by_text(case: _Case, runner: str) -> Chosen:
    if runner.startswith(COMMAND):
        command = CommandAgent(runner.removeprefix(COMMAND).strip())
        return Chosen(command, code=case.code.runner(command.name))
    if runner.startswith(_ADDRESSES):
        model = bare_model(case.definition.model or case.definition.id)
        endpoint = Endpoint(provider="openai-compatible", model=model, api_base=runner)
        # Whoever serves an agent there has given it its role already.
        agent = EndpointAgent(endpoint, definition=None, settings=case.client)
        return Chosen(agent, endpoint=endpoint)
    if not is_code_name(runner):
        raise ConfigError(
            f"{runner!r} is no runner",
            where="--runner",
            hint="give module:function, http://host/v1, cmd:COMMAND or provider:model[@URL]",
        )
    code = case.code.runner(runner)
    function = function_named(runner, folders=(Path.cwd(), case.root), where="--runner")
    return Chosen(FunctionAgent(function, runner), code=code)


def _own(case: _Case, endpoint: Endpoint | None) -> Chosen:
    """The manifest's own agent: its model, its words, its tools."""
    rehearsal: tuple[str, ...] = ()
    model = case.definition.model
    if endpoint is None:
        if model is None:
            raise ConfigError(
                "the agent has no `model`",
                where=case.where,
                hint="give --runner: a function, an address or a command that is the agent",
            )
        endpoint = manifest_endpoint(model, where=f"{case.where}: model", option="--runner")
    elif model is None or bare_model(model) != endpoint.model:
        rehearsal = (f"the agent's model is {endpoint.model}, not {model}",)
    named = case.settings.tools
    code = None if named is None else case.code.runner(named)
    agent = EndpointAgent(
        endpoint, definition=case.definition, tools=_tools(case), settings=case.client
    )
    return Chosen(agent, rehearsal, endpoint, code)


def _tools(case: _Case) -> ToolCode | None:
    """The agent's tools with their code. Raises `ConfigError` for one that cannot be run."""
    where = f"{case.where}: tools"
    inline = [tool for tool in case.definition.tools if isinstance(tool, InlineTool)]
    others = [tool for tool in case.definition.tools if not isinstance(tool, InlineTool)]
    if others:
        listed = ", ".join(tool if isinstance(tool, str) else tool.uri for tool in others)
        raise ConfigError(
            f"the tools {listed} cannot be run from here",
            where=where,
            hint="certify the agent where it has them, with --runner",
        )
    if not inline:
        if case.settings.tools is not None:
            raise ConfigError("--tools is given, but the agent has none", where=where)
        return None
    if case.settings.tools is None:
        raise ConfigError(
            f"the tools {', '.join(tool.name for tool in inline)} have no code in the manifest",
            where=where,
            hint="give --tools MODULE with a function for each, or --runner",
        )
    return _tool_code(inline, case.settings.tools, case.root)


def _tool_code(inline: list[InlineTool], name: str, root: Path) -> ToolCode:
    module: Any = imported(name, folders=(Path.cwd(), root), where="--tools")
    functions: list[Callable[..., Any]] = []
    for tool in inline:
        function = getattr(module, tool.name, None)
        if not callable(function):
            raise ConfigError(f"{name!r} has no function {tool.name!r}", where="--tools")
        functions.append(function)
    return ToolCode(inline, functions, _digest(functions))


def _digest(functions: list[Callable[..., Any]]) -> str | None:
    """Of the file that holds them; of all their files, where the module only collects them.

    None when one of them has no file: a change of it would not be seen.
    """
    found = dict.fromkeys(code_sha256(function) for function in functions)
    digests = [digest for digest in found if digest is not None]
    if len(digests) < len(found):
        return None
    return digests[0] if len(digests) == 1 else sha256_of("".join(digests).encode())
