"""`assay env serve`: serve environments over HTTP to remote rollouts."""

import asyncio
import inspect
import os
import secrets
import signal
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.environments import (
    Environment,
    EnvironmentServer,
    MakeEnvironment,
    ServerSettings,
    environment_by_name,
    find_environment_plugin,
    is_loopback,
)
from assay.errors import AssayError, ConfigError
from assay.registry import list_names
from assay.scorers import import_code_ref, is_code_ref
from assay.types import ToolSpec

from .arguments import add_flag, add_renamed_option
from .output import print_json, print_lines, print_message

TOKEN_VARIABLE = "ASSAY_ENV_TOKEN"
_BUILTIN_ENVIRONMENTS = ("basic", "calculator")


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="serve")
    serve = actions.add_parser(
        "serve",
        help="serve environments until interrupted",
        description="Serve environments until interrupted. Prints the address as one line.",
        allow_abbrev=False,
    )
    serve.add_argument(
        "environment",
        help="class or function, as module:Class or FILE.py:Class; or a name such as "
        "gym:FrozenLake-v1",
    )
    serve.add_argument(
        "--host",
        default="127.0.0.1",
        help="listen on this address (default: 127.0.0.1, this machine only)",
    )
    serve.add_argument(
        "--port", type=int, default=0, help="listen on this port (default: any free port)"
    )
    add_flag(
        serve,
        "--token",
        f"require a bearer token, read from ${TOKEN_VARIABLE} or else generated and shown "
        "once; always required when the address is not a loopback one",
    )
    serve.add_argument(
        "--capacity",
        type=int,
        default=100,
        help="serve this many sessions at once (default: %(default)s)",
    )
    add_renamed_option(
        serve,
        "--idle-s",
        "--idle",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="close a session that is unused for this long (default: %(default)g)",
    )
    serve.add_argument("--json", action="store_true", help="print the address as a JSON object")


def main(args: Namespace) -> int:
    """Exit status: 0 after SIGINT or SIGTERM, 2 when the environment cannot be served."""
    served = load_served_environment(args.environment)
    given = os.environ.get(TOKEN_VARIABLE) or None
    made = None
    if given is None and (args.token or not is_loopback(args.host)):
        # A server that other machines can reach is never open to everyone.
        made = secrets.token_urlsafe(24)
    settings = ServerSettings(
        host=args.host,
        port=args.port,
        token=given or made,
        capacity=args.capacity,
        idle_s=args.idle_s,
        name=served.name,
        takes_task=served.takes_task,
    )
    asyncio.run(_serve_environment(served, settings, as_json=args.json, made_token=made))
    return 0


async def _serve_environment(
    served: "ServedEnvironment", settings: ServerSettings, *, as_json: bool, made_token: str | None
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    # MCP lists tools before a session exists, so they must be known now.
    tools = await probe_tools(served)
    async with EnvironmentServer(served.make, settings, tools=tools) as server:
        mcp_url = None if tools is None else f"{server.url}/mcp"
        plain = {"url": server.url, "mcp_url": mcp_url, "token": made_token}
        # One line and nothing else: scripts read the address from stdout.
        if as_json:
            print_json(plain, indent=None)
        else:
            print_lines([server.url])
        if made_token is not None and not as_json:
            print_message(f"token: {made_token}")
        if mcp_url is None and not as_json:
            print_message("MCP is not served: the tools are unknown without a task")
        await stop.wait()
    for problem in server.sessions.close_errors:
        print_message(f"closing a session: {problem}")


@dataclass(frozen=True)
class ServedEnvironment:
    """The environment that a target on the command line names."""

    name: str
    make: MakeEnvironment
    takes_task: bool


def load_served_environment(target: str) -> ServedEnvironment:
    """Load the factory of the environments. Raises `ConfigError` if it is invalid."""
    if target in _BUILTIN_ENVIRONMENTS or target.startswith("gym:"):
        shipped = environment_by_name(target)
        return ServedEnvironment(target, lambda task: shipped(), takes_task=False)
    plugin = find_environment_plugin(target)
    if plugin is None and not is_code_ref(target):
        own = (*_BUILTIN_ENVIRONMENTS, "gym:NAME")
        names = ", ".join(list_names("assay.environments", own))
        raise ConfigError(
            "the environment is not of the form module:Class",
            where=target,
            hint=f"write my_package.desk:OrderDesk, or one of {names}",
        )
    found = plugin or import_code_ref(target, where="assay env serve")
    if not callable(found):
        raise ConfigError(
            f"the target is a {type(found).__name__}, not a class or a function", where=target
        )
    factory: Callable[..., object] = found
    parameter = _find_task_parameter(factory, target)

    def make(task: Mapping[str, Any]) -> Environment:
        if parameter is None:
            made = factory()
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            made = factory(task)
        else:
            made = factory(**{parameter.name: task})
        if not isinstance(made, Environment):
            raise ConfigError(
                f"the factory returns a {type(made).__name__}, not an environment",
                where=target,
                hint="an environment has `tools`, `open`, `step` and `close`",
            )
        return made

    return ServedEnvironment(target, make, takes_task=parameter is not None)


def _find_task_parameter(factory: Callable[..., object], target: str) -> inspect.Parameter | None:
    try:
        parameters = inspect.signature(factory).parameters
    # Callables of C have no signature; they are called without a task.
    except (TypeError, ValueError):
        return None
    if "task" in parameters:
        return parameters["task"]
    required = [
        parameter
        for parameter in parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if not required:
        return None
    raise ConfigError(
        f"the factory requires {', '.join(f'`{parameter.name}`' for parameter in required)}",
        where=target,
        hint="give the parameters defaults, or serve a function that takes `task` only",
    )


async def probe_tools(served: ServedEnvironment) -> Sequence[ToolSpec] | None:
    """Create an environment to list its tools; None if creating one requires a task.

    Raises `ConfigError` when an environment that takes no task cannot be created.
    """
    try:
        environment = served.make({})
    except Exception as error:
        if served.takes_task:
            return None
        if isinstance(error, AssayError):
            raise
        raise ConfigError(
            f"the environment cannot be created: {type(error).__name__}: {error}", where=served.name
        ) from error
    try:
        return tuple(environment.tools)
    finally:
        await environment.close()
