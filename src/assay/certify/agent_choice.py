"""The choice of the agent under test, from the settings and the manifest."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.agents import (
    COMMAND_PREFIX,
    Agent,
    FunctionAgent,
    ModelAgent,
    ToolCode,
    build_system_prompt,
    is_agent,
    is_agent_plugin,
    is_coding_agent,
    resolve_agent,
)
from assay.errors import ConfigError
from assay.providers import ClientSettings, is_provider, to_endpoint
from assay.scorers import import_object, is_code_ref
from assay.types import AgentDefinition, Endpoint, InlineTool, compute_code_sha256, compute_sha256

from .asked_models import resolve_manifest_endpoint, strip_provider
from .certify_settings import CertifySettings
from .code_index import CodeIndex
from .code_scan import CodeFiles
from .source_files import find_callable_code


@dataclass(frozen=True)
class ChosenAgent:
    """The agent under test."""

    agent: Agent
    deviations: tuple[str, ...] = ()
    """Differences from the manifest."""

    endpoint: Endpoint | None = None
    """The endpoint, for agents that are models, and of coding agents."""

    code: CodeFiles | None = None
    """The project files of the agent, if it is code or has tools."""

    reference: str | None = None
    """The reference to the code of the agent, if it was given as one."""

    @property
    def name(self) -> str:
        """The name of the agent in certificates: its code is found by it, if it has one."""
        return self.reference or self.agent.name

    @property
    def calls_endpoint(self) -> bool:
        """Whether the agent is a program that calls the endpoint through the gateway."""
        return getattr(self.agent, "needs_endpoint", False)

    @property
    def code_sha256(self) -> str | None:
        return getattr(self.agent, "sha256", None) if self.code is None else self.code.sha256


@dataclass(frozen=True)
class _AgentRequest:
    """The inputs of the choice."""

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
) -> ChosenAgent:
    """Choose the agent to certify. Raises `ConfigError` before anything is called."""
    runner = settings.runner
    client = ClientSettings(concurrency=slots, request_timeout_s=settings.timeout_s)
    case = _AgentRequest(definition, settings, root, where, client, code or CodeIndex(root))
    if runner is None or isinstance(runner, Endpoint):
        return _choose_manifest_agent(case, runner)
    if isinstance(runner, str) and is_provider(runner.partition(":")[0]):
        return _choose_manifest_agent(case, to_endpoint(runner, where=where))
    if settings.tools is not None:
        raise ConfigError(
            "--tools applies to the manifest's own model only; a runner has its own tools",
            hint="remove --tools or --runner",
        )
    if isinstance(runner, str):
        return _choose_named_runner(case, runner)
    if is_agent(runner):
        agent = resolve_agent(runner, where=where)
        assert not isinstance(agent, Endpoint)
        return ChosenAgent(agent)
    assert callable(runner)
    name = _get_runner_name(runner)
    return ChosenAgent(FunctionAgent(runner, name), code=_find_runner_code(runner, case.code))


def _get_runner_name(runner: Callable[..., object]) -> str:
    module = getattr(runner, "__module__", "")
    # `__main__` names another file in each process: use the name that an import would have.
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if module == "__main__" and script:
        module = Path(script).stem
    return f"{module}:{getattr(runner, '__qualname__', 'function')}"


def _find_runner_code(runner: Callable[..., object], index: CodeIndex) -> CodeFiles | None:
    """Find the code of a function by its name, or else by the function itself."""
    name, own = _get_runner_name(runner), find_callable_code(runner)
    named = index.find("runner", name) if is_code_ref(name) else None
    if named is None or own is None:
        return own
    # Prefer the name, which `verify` starts from, unless it leads to other files.
    return named if set(own.files.values()) <= set(named.files.values()) else own


def _choose_named_runner(case: _AgentRequest, runner: str) -> ChosenAgent:
    is_other_name = is_coding_agent(runner) or is_agent_plugin(runner)
    has_code = runner.startswith(COMMAND_PREFIX) or (is_code_ref(runner) and not is_other_name)
    # Digested before the import, which could change the files.
    code = case.code.find("runner", runner) if has_code else None
    found = resolve_agent(runner, where="--runner", folders=(Path.cwd(), case.root))
    if not isinstance(found, Endpoint):
        endpoint = _find_manifest_endpoint(case) if is_coding_agent(runner) else None
        reference = runner if has_code else None
        return ChosenAgent(found, endpoint=endpoint, code=code, reference=reference)
    model = strip_provider(case.definition.model or case.definition.id)
    endpoint = found if "#model=" in runner else found.model_copy(update={"model": model})
    # Without the manifest's prompt: a served agent already has its role and its tools.
    return ChosenAgent(ModelAgent(endpoint, settings=case.client), endpoint=endpoint)


def _choose_manifest_agent(case: _AgentRequest, endpoint: Endpoint | None) -> ChosenAgent:
    """Build the manifest's own agent from its model, prompt and tools."""
    deviations: tuple[str, ...] = ()
    model = case.definition.model
    if endpoint is None:
        endpoint = _find_manifest_endpoint(case)
    elif model is None or strip_provider(model) != endpoint.model:
        deviations = (f"the agent's model is {endpoint.model}, not {model}",)
    named = case.settings.tools
    code = None if named is None else case.code.find("runner", named)
    agent = ModelAgent(
        endpoint,
        system=build_system_prompt(case.definition),
        environment=_load_manifest_tools(case),
        settings=case.client,
    )
    agent.name = f"own model {agent.name}"
    return ChosenAgent(agent, deviations, endpoint, code)


def _find_manifest_endpoint(case: _AgentRequest) -> Endpoint:
    model = case.definition.model
    if model is None:
        raise ConfigError(
            "the agent has no `model` to call",
            where=case.where,
            hint="add a `model`, or pass the agent as --runner: a function, a URL or a command",
        )
    return resolve_manifest_endpoint(model, where=f"{case.where}: model", option="--runner")


def _load_manifest_tools(case: _AgentRequest) -> ToolCode | None:
    """Load the code of the agent's tools. Raises `ConfigError` for one that cannot be run."""
    where = f"{case.where}: tools"
    inline = [tool for tool in case.definition.tools if isinstance(tool, InlineTool)]
    others = [tool for tool in case.definition.tools if not isinstance(tool, InlineTool)]
    if others:
        listed = ", ".join(tool if isinstance(tool, str) else tool.uri for tool in others)
        raise ConfigError(
            f"assay cannot call the tools {listed}",
            where=where,
            hint="pass an agent that has the tools as --runner",
        )
    if not inline:
        if case.settings.tools is not None:
            raise ConfigError("--tools has no effect: the agent has no tools", where=where)
        return None
    if case.settings.tools is None:
        raise ConfigError(
            f"the tools {', '.join(tool.name for tool in inline)} have no code in the manifest",
            where=where,
            hint="pass --tools MODULE with a function for each tool, or --runner",
        )
    return _import_tool_functions(inline, case.settings.tools, case.root)


def _import_tool_functions(inline: list[InlineTool], name: str, root: Path) -> ToolCode:
    module: Any = import_object(name, folders=(Path.cwd(), root), where="--tools")
    functions: list[Callable[..., Any]] = []
    for tool in inline:
        function = getattr(module, tool.name, None)
        if not callable(function):
            raise ConfigError(f"{name!r} has no function {tool.name!r}", where="--tools")
        functions.append(function)
    found = dict.fromkeys(compute_code_sha256(function) for function in functions)
    digests = [digest for digest in found if digest is not None]
    # A module may only collect functions of other files, so that all files are digested. A
    # function without a file makes the digest unknown: its changes would go unnoticed.
    sha256 = None
    if len(digests) == len(found):
        sha256 = digests[0] if len(digests) == 1 else compute_sha256("".join(digests).encode())
    return ToolCode(inline, functions, sha256)
