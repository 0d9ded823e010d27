"""Coding agents by name: programs that work in a folder, with the model of the run.

Each recipe writes the program's own settings into a new HOME, so that neither the settings nor
the keys of the user are read.
"""

import functools
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from assay.errors import ConfigError
from assay.types import Sample, Trajectory, compute_sha256

from .agent import AgentFault, RunContext
from .agent_answer import build_trajectory
from .command_agent import render_prompt
from .program_run import list_safe_variables, reach_directly, run_program
from .workspace import create_folder

# `--version` of a program that is installed without npm.
_VERSION_TIMEOUT_S = 60.0
_VERSION = re.compile(r"\d+\.\d+[\w.+-]*")
# The folders between a program and the description of its package.
_MAX_PACKAGE_DEPTH = 4
_PROVIDER = "assay"


@dataclass(frozen=True)
class ModelConnection:
    """How a program reaches the model of its sample."""

    base_url: str
    model: str


@dataclass(frozen=True)
class CodingRecipe:
    """How one program is configured and started."""

    program: str
    package: str
    """The npm package that contains the program."""

    arguments: tuple[str, ...]
    """Those of a run without questions to the user; the prompt is the standard input."""

    write_settings: Callable[[ModelConnection], Mapping[str, str]]
    """Returns the files of its HOME."""

    variables: Mapping[str, str] = field(default_factory=dict)
    model_variables: tuple[str, ...] = ()
    """Variables that name the model."""


def _write_codex_settings(connection: ModelConnection) -> dict[str, str]:
    # A JSON string is a TOML string.
    return {
        ".codex/config.toml": f"""\
model = {json.dumps(connection.model)}
model_provider = "{_PROVIDER}"
web_search = "disabled"
check_for_update_on_startup = false

[model_providers.{_PROVIDER}]
name = "{_PROVIDER}"
base_url = {json.dumps(connection.base_url)}
env_key = "OPENAI_API_KEY"
wire_api = "responses"

[analytics]
enabled = false
"""
    }


def _write_opencode_settings(connection: ModelConnection) -> dict[str, str]:
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "permission": {"*": "allow"},
        "model": f"{_PROVIDER}/{connection.model}",
        "provider": {
            _PROVIDER: {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": connection.base_url, "apiKey": "{env:OPENAI_API_KEY}"},
                "models": {connection.model: {"name": connection.model}},
            }
        },
    }
    return {".config/opencode/opencode.json": json.dumps(settings)}


def _write_pi_settings(connection: ModelConnection) -> dict[str, str]:
    provider = {
        "baseUrl": connection.base_url,
        "apiKey": "OPENAI_API_KEY",  # the name of the variable
        "api": "openai-completions",
        "models": [{"id": connection.model, "name": connection.model, "input": ["text", "image"]}],
    }
    settings = {"defaultProvider": _PROVIDER, "defaultModel": connection.model}
    return {
        ".pi/agent/models.json": json.dumps({"providers": {_PROVIDER: provider}}),
        ".pi/agent/settings.json": json.dumps(settings),
    }


RECIPES: Mapping[str, CodingRecipe] = {
    "claude-code": CodingRecipe(
        program="claude",
        package="@anthropic-ai/claude-code",
        arguments=("-p", "--dangerously-skip-permissions"),
        write_settings=lambda _: {},
        variables={
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_TELEMETRY": "1",
            # It refuses to skip permissions for root otherwise, as in most containers.
            "IS_SANDBOX": "1",
        },
        model_variables=(
            "ANTHROPIC_MODEL",
            "ANTHROPIC_SMALL_FAST_MODEL",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL",
            "CLAUDE_CODE_SUBAGENT_MODEL",
        ),
    ),
    "codex": CodingRecipe(
        program="codex",
        package="@openai/codex",
        arguments=(
            "exec",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
        ),
        write_settings=_write_codex_settings,
    ),
    "opencode": CodingRecipe(
        program="opencode",
        package="opencode-ai",
        arguments=("run",),
        write_settings=_write_opencode_settings,
        variables={
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
        },
    ),
    "pi": CodingRecipe(
        program="pi",
        package="@earendil-works/pi-coding-agent",
        arguments=("-p",),
        write_settings=_write_pi_settings,
        variables={"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"},
    ),
}
"""The coding agents that have a name."""


class CodingAgent:
    """Runs a coding agent such as Claude Code for each sample, with the model of the run.

    It works in the workspace of the sample, without asking for permissions, and with a HOME of its
    own, which is removed afterwards. The run needs an `endpoint`: the program reaches it through
    the gateway, which records its calls.
    """

    needs_endpoint = True
    """Whether a run without a model is refused."""

    needs_workspace = True
    """Whether each sample has a folder of its own, with the files of its row."""

    usual_concurrency = 8
    """Samples at once unless the run sets a number: each program takes some hundred megabytes."""

    def __init__(self, name: str, arguments: str = "") -> None:
        if name not in RECIPES:
            raise ConfigError(
                f"no coding agent is named {name!r}", hint=f"the names are {', '.join(RECIPES)}"
            )
        self._recipe = RECIPES[name]
        try:
            self._arguments = shlex.split(arguments)
        except ValueError as error:
            raise ConfigError(f"the arguments cannot be parsed: {error}", where=name) from None
        found = shutil.which(self._recipe.program)
        if found is None:
            raise ConfigError(
                f"the program {self._recipe.program!r} of the agent {name!r} was not found",
                where="agent",
                hint=f"install it: npm install -g {self._recipe.package}",
            )
        self._program = str(Path(found).absolute())
        self.name = f"{name}:{arguments}" if arguments else name

    @functools.cached_property
    def version(self) -> str:
        """The version of the program."""
        return read_program_version(Path(self._program), self._recipe.package)

    @functools.cached_property
    def identity(self) -> str:
        """Name, version and a digest of all settings."""
        example = self._recipe.write_settings(ModelConnection("", ""))
        settings = [*self._recipe.arguments, *self._arguments, example, self._recipe.variables]
        digest = compute_sha256(json.dumps(settings, default=dict).encode())[:12]
        return f"{self.name.partition(':')[0]} {self.version} {digest}"

    async def run(self, sample: Sample, context: RunContext) -> Trajectory:
        """Return the output of the program. A nonzero exit status raises `AgentFault`."""
        if context.base_url is None or context.client is None:
            raise AgentFault(f"the agent {self.name!r} needs a model", hint="set `endpoint`")
        recipe, model = self._recipe, context.client.endpoint.model
        with create_folder() as folder:
            home, scratch = Path(folder, "home"), Path(folder, "tmp")
            workspace = context.workspace or Path(folder, "workspace")
            for each in (home, scratch, workspace):
                each.mkdir(exist_ok=True)
            for name, text in recipe.write_settings(
                ModelConnection(context.base_url, model)
            ).items():
                path = home / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, "utf-8")
            end = await run_program(
                [self._program, *recipe.arguments, *self._arguments],
                render_prompt(context.messages).encode("utf-8", "replace"),
                cwd=workspace,
                variables={
                    **list_safe_variables(),
                    **reach_directly(context.variables),
                    **recipe.variables,
                    **dict.fromkeys(recipe.model_variables, model),
                    "HOME": str(home),
                    # Removed with it: some programs leave files there.
                    "TMPDIR": str(scratch),
                    "PWD": str(workspace),
                    "ASSAY_WORKSPACE": str(workspace),
                },
            )
        end.raise_for_status()
        text = end.stdout.decode("utf-8", "replace").strip()
        return build_trajectory(text, context, end.seconds)


def read_program_version(program: Path, package: str) -> str:
    """Return the version of an installed program. Raises `ConfigError` if it has none.

    That of its npm package is read without starting the program.
    """
    for folder in list(program.resolve().parents)[:_MAX_PACKAGE_DEPTH]:
        try:
            described = json.loads((folder / "package.json").read_text("utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(described, dict) and described.get("name") == package:
            return str(described.get("version"))
    with create_folder() as home:
        try:
            end = subprocess.run(
                [program, "--version"],
                env={**list_safe_variables(), "HOME": home},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_VERSION_TIMEOUT_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigError(f"`{program.name} --version` failed: {error}") from None
    # Some programs print their version to stderr.
    answer = (end.stdout + b"\n" + end.stderr).decode("utf-8", "replace")
    if (found := _VERSION.search(answer)) is None:
        raise ConfigError(
            f"`{program.name} --version` printed no version",
            hint=f"install it again: npm install -g {package}",
        )
    return found[0]
