"""What `agent=` accepts: agents, functions, models, commands, URLs and references to code."""

import inspect
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeGuard
from urllib.parse import parse_qsl, urlsplit

from assay.errors import ConfigError
from assay.providers import PROVIDERS, is_provider, parse_model
from assay.registry import Plugin, find_plugin, list_plugin_names
from assay.scorers import import_code_ref, is_code_ref
from assay.types import Endpoint

from .agent import COMMAND_PREFIX, Agent
from .function_agent import FunctionAgent, ObjectAgent
from .model_agent import ModelAgent

AgentRef = Agent | Endpoint | str | Callable[..., object]
"""An agent, or something that names one: see `resolve_agent`."""

_URL_PREFIXES = ("http://", "https://")
# Paths of servers that speak the chat-completions protocol.
_CHAT_PATHS = ("/v1", "/chat/completions")
_URL_SETTINGS = ("answer", "key_env", "model", "request")
_AGENT_HINT = (
    "pass provider:model, http://host/path, cmd:COMMAND, FILE.py:function, module:function, a "
    "coding agent such as claude-code, or the name of a plug-in; see `assay docs agents`"
)
CODING_AGENT_NAMES = ("claude-code", "codex", "opencode", "pi")
"""The coding agents that have a name; their recipes are loaded when one is used."""

AGENT_NAMES = ("cmd", "http", "https", *CODING_AGENT_NAMES, *PROVIDERS)
"""The beginnings of agent strings that plug-ins cannot use as names."""


def resolve_agent(
    ref: object, *, where: str = "agent", folders: tuple[Path, ...] = ()
) -> Agent | Endpoint:
    """Return the agent that `ref` names, or the endpoint of a model.

    `ref` is an `Agent`, whose `run` may also block or take the sample alone, an `Endpoint`, a
    function that takes the sample, or a string:
    `provider:model[@URL]`, `cmd:COMMAND`, `http://host/v1` (a server with the chat-completions
    protocol), `http://host/ask#answer=PATH` (any JSON service), `FILE.py:function`,
    `module:function`, a coding agent as `claude-code` or `claude-code:ARGUMENTS`, or a plug-in as
    `NAME` or `NAME:SETTINGS`. Code is looked for in `folders`, by default the current one. Raises
    `ConfigError` for anything else.
    """
    if isinstance(ref, Endpoint):
        return ref
    if is_agent(ref):
        return _adapt_run_method(ref)
    if isinstance(ref, str):
        return _resolve_agent_string(ref.strip(), where, folders)
    if callable(ref) and not isinstance(ref, type):
        return FunctionAgent(ref)
    if isinstance(ref, type):
        raise ConfigError(
            f"`agent` is the class `{ref.__name__}`, not one of its objects",
            where=where,
            hint=f"pass an object, such as agent = {ref.__name__}()",
        )
    if callable(getattr(ref, "run", None)):
        texts = [
            each for each in ("name", "identity") if not isinstance(getattr(ref, each, 0), str)
        ]
        raise ConfigError(
            f"the agent of type `{type(ref).__name__}` has `run`, but no text as "
            + " and ".join(f"`{each}`" for each in texts),
            where=where,
            hint="set `name` and `identity`, or pass a function that calls the object",
        )
    raise ConfigError(
        f"`agent` cannot be of type `{type(ref).__name__}`", where=where, hint=_AGENT_HINT
    )


def _adapt_run_method(agent: Agent) -> Agent:
    """Return the agent, or one that calls its `run` as a function if it is not of the protocol."""
    # The run of a model agent is a plain function that returns a coroutine.
    if isinstance(agent, ModelAgent):
        return agent
    if inspect.iscoroutinefunction(agent.run):
        with suppress(TypeError):
            inspect.signature(agent.run).bind(None, None)
            return agent
    return ObjectAgent(agent)


def is_model_ref(ref: object) -> bool:
    """Whether `ref` is an endpoint or a string that names a model."""
    return isinstance(ref, Endpoint) or (
        isinstance(ref, str)
        and not ref.startswith(COMMAND_PREFIX)
        and (ref.startswith(_URL_PREFIXES) or is_provider(ref.partition(":")[0]))
        and isinstance(resolve_agent(ref), Endpoint)
    )


def is_agent(value: object) -> TypeGuard[Agent]:
    """Whether an object has the attributes of the `Agent` protocol."""
    return (
        not isinstance(value, type)
        and callable(getattr(value, "run", None))
        and isinstance(getattr(value, "name", None), str)
        and isinstance(getattr(value, "identity", None), str)
    )


def is_coding_agent(text: str) -> bool:
    """Whether a string names a coding agent: `claude-code` or `claude-code:ARGUMENTS`."""
    return text.partition(":")[0] in CODING_AGENT_NAMES


def is_agent_plugin(text: str) -> bool:
    """Whether a string names the agent of a plug-in: `NAME` or `NAME:SETTINGS`."""
    name = text.partition(":")[0]
    return name not in AGENT_NAMES and name in list_plugin_names("assay.agents")


def find_agent_plugin(name: str) -> Plugin:
    """Load the plug-in of a name: an `Agent`, an `Endpoint`, a function or a class.

    Raises `ConfigError` for an unknown name, and for a plug-in that is something else.
    """
    plugin = find_plugin("assay.agents", name)
    if plugin is None:
        raise ConfigError(f"no plug-in for agents is named {name!r}", hint=_AGENT_HINT)
    if not (callable(plugin.value) or is_agent(plugin.value) or isinstance(plugin.value, Endpoint)):
        kind = type(plugin.value).__name__
        raise plugin.build_error(f"the plug-in is of type `{kind}`, not an agent")
    return plugin


def _build_plugin_agent(text: str) -> Agent | Endpoint:
    """Return the agent of `NAME` or `NAME:SETTINGS`.

    Without settings a function is the agent, and a class is called to build one. With settings a
    function or class is called with their text.
    """
    name, colon, settings = text.partition(":")
    plugin = find_agent_plugin(name)
    found: Any = plugin.value
    if callable(found) and (colon or isinstance(found, type)):
        try:
            found = found(settings) if colon else found()
        except Exception as error:
            # The settings are not shown: they may contain a key.
            problem = f"the agent cannot be built: {type(error).__name__}: {error}"
            raise plugin.build_error(problem) from error
    elif colon:
        raise plugin.build_error("the agent takes no settings")
    if isinstance(found, Endpoint):
        return found
    if is_agent(found):
        return _adapt_run_method(found)
    if callable(found) and not isinstance(found, type):
        return FunctionAgent(found, name)
    raise plugin.build_error(f"the plug-in returned a `{type(found).__name__}`, not an agent")


def _resolve_agent_string(text: str, where: str, folders: tuple[Path, ...]) -> Agent | Endpoint:
    if text.startswith(COMMAND_PREFIX):
        from .command_agent import CommandAgent  # loads what starts processes

        return CommandAgent(text.removeprefix(COMMAND_PREFIX).strip())
    if text.startswith(_URL_PREFIXES):
        return _resolve_url(text, where)
    if is_coding_agent(text):
        from .coding_agents import CodingAgent

        name, _, arguments = text.partition(":")
        return CodingAgent(name, arguments.strip())
    if is_provider(text.partition(":")[0]):
        return parse_model(text)
    if is_agent_plugin(text):
        return _build_plugin_agent(text)
    if is_code_ref(text):
        found = import_code_ref(text, where=where, folders=folders)
        if isinstance(found, str):
            raise ConfigError(f"{text!r} is a string, not an agent", where=where)
        if callable(found) and not isinstance(found, type) and not is_agent(found):
            return FunctionAgent(found, text)
        return resolve_agent(found, where=where)
    from difflib import get_close_matches  # for this message only

    # The string is not shown: it may be an address with a key.
    close = get_close_matches(text.partition(":")[0], AGENT_NAMES, n=1, cutoff=0.75)
    hint = f"did you mean {close[0]}:...?" if close else _AGENT_HINT
    if os.path.isfile(text):
        is_python = text.endswith(".py")
        hint = f"name its function: {text}:NAME" if is_python else f"run it: {COMMAND_PREFIX}{text}"
    raise ConfigError("the string does not name an agent", where=where, hint=hint)


def _resolve_url(text: str, where: str) -> Agent | Endpoint:
    url, _, fragment = text.partition("#")
    try:
        settings = dict(parse_qsl(fragment, strict_parsing=True)) if fragment else {}
    except ValueError:
        settings = {"": ""}
    if unknown := settings.keys() - set(_URL_SETTINGS):
        raise ConfigError(
            f"the part after # of the agent's address has the unknown setting {min(unknown)!r}",
            where=where,
            hint=f"settings are NAME=VALUE, joined by &: {', '.join(_URL_SETTINGS)}",
        )
    path = urlsplit(url).path.rstrip("/")
    if path.endswith(_CHAT_PATHS) and not settings.keys() & {"answer", "request"}:
        base = url.removesuffix("/").removesuffix("/chat/completions")
        model = settings.get("model", "default")
        return parse_model(
            f"openai-compatible:{model}@{base}"
            + (f"#key_env={settings['key_env']}" if "key_env" in settings else "")
        )
    if "model" in settings:
        raise ConfigError(
            "`model` applies to addresses that end with /v1 or /chat/completions", where=where
        )
    from .http_agent import HttpAgent  # aiohttp takes 0.1 s to import, for these agents only

    return HttpAgent(
        url,
        request=_read_request_template(settings.get("request"), where),
        answer=settings.get("answer"),
        key_env=settings.get("key_env"),
    )


def _read_request_template(name: str | None, where: str) -> dict[str, Any] | None:
    """Read a request template: a JSON object, or the name of a file with one."""
    if name is None:
        return None
    try:
        text = name if name.lstrip().startswith("{") else Path(name).read_text("utf-8")
        template = json.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the request template cannot be read: {error}",
            where=where,
            hint='`request` is a JSON object or its file, such as {"question": "{prompt}"}',
        ) from None
    if not isinstance(template, dict):
        raise ConfigError("the request template is not a JSON object", where=where)
    return template
