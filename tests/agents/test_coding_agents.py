"""Coding agents by name: what a program is given, what it must not see, and what is refused."""

import asyncio
import json
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from assay.agents import AgentClient, AgentFault, RunContext, resolve_agent
from assay.agents.agent_ref import CODING_AGENT_NAMES
from assay.agents.coding_agents import RECIPES, CodingAgent, read_program_version
from assay.errors import ConfigError
from assay.providers import connect
from assay.types import Endpoint, Sample

# Prints what it was started with, and the files of its HOME.
PROGRAM = """#!/bin/sh
[ "$1" = --version ] && echo "program 1.2.3 (build 9)" && exit 0
echo "arguments: $*"
echo "folder: $(pwd)"
echo "prompt: $(cat)"
env | sort
find "$HOME" -type f | while read -r file; do echo "file: ${file#"$HOME"/}"; cat "$file"; done
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for recipe in RECIPES.values():
        write_program(folder / recipe.program, PROGRAM)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def write_program(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def run(agent: CodingAgent, **fields: Any) -> str:
    async def scenario() -> str:
        endpoint = Endpoint(provider="openai", model="model-7", api_key="unused-key-7")
        client = connect(endpoint)
        given: dict[str, Any] = {
            "messages": Sample(prompt="Fix it.").messages,
            "client": AgentClient(client),
            "base_url": "http://127.0.0.1:9/s/x/v1",
            "variables": {"OPENAI_API_KEY": "assay-secret", "ANTHROPIC_BASE_URL": "http://gate"},
        }
        found = await agent.run(Sample(prompt="Fix it."), RunContext(**{**given, **fields}))
        await client.close()
        return found.messages[-1].text

    return asyncio.run(scenario())


def find_file(output: str, name: str) -> str:
    return output.partition(f"file: {name}\n")[2].partition("\nfile: ")[0]


def test_each_name_has_a_recipe_and_no_plugin_can_take_it() -> None:
    assert tuple(RECIPES) == CODING_AGENT_NAMES


@pytest.mark.parametrize("name", RECIPES)
def test_a_program_gets_the_prompt_a_home_and_an_environment_without_secrets(
    name: str, programs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_TOKEN", "canary-of-the-user")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/canary-of-the-user")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/canary-of-the-user")
    workspace = tmp_path / "work"
    workspace.mkdir()

    output = run(CodingAgent(name), workspace=workspace)

    assert "prompt: Fix it." in output
    assert f"folder: {workspace}" in output
    assert "OPENAI_API_KEY=assay-secret" in output
    assert "canary-of-the-user" not in output
    # The key is in the environment only: files of a HOME are easily copied.
    assert "assay-secret" not in output.partition("file: ")[2]


def test_codex_is_configured_for_the_gateway(programs: Path) -> None:
    output = run(CodingAgent("codex"))

    settings = tomllib.loads(find_file(output, ".codex/config.toml"))
    assert settings["model"] == "model-7"
    assert settings["model_providers"][settings["model_provider"]] == {
        "name": "assay",
        "base_url": "http://127.0.0.1:9/s/x/v1",
        "env_key": "OPENAI_API_KEY",
        "wire_api": "responses",
    }
    assert settings["analytics"] == {"enabled": False}


def test_opencode_is_configured_for_the_gateway(programs: Path) -> None:
    output = run(CodingAgent("opencode"))

    settings = json.loads(find_file(output, ".config/opencode/opencode.json"))
    assert settings["model"] == "assay/model-7"
    assert settings["provider"]["assay"]["options"]["baseURL"] == "http://127.0.0.1:9/s/x/v1"
    assert (settings["autoupdate"], settings["share"]) == (False, "disabled")


def test_pi_is_configured_for_the_gateway(programs: Path) -> None:
    output = run(CodingAgent("pi"))

    provider = json.loads(find_file(output, ".pi/agent/models.json"))["providers"]["assay"]
    assert provider["baseUrl"] == "http://127.0.0.1:9/s/x/v1"
    assert [each["id"] for each in provider["models"]] == ["model-7"]
    assert "PI_OFFLINE=1" in output


def test_claude_code_uses_one_model_for_all_its_calls(programs: Path) -> None:
    output = run(CodingAgent("claude-code"))

    assert "arguments: -p --dangerously-skip-permissions\n" in output
    assert output.count("=model-7\n") == 4
    assert "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1" in output
    assert "IS_SANDBOX=1" in output


def test_arguments_after_the_name_are_passed_on(programs: Path) -> None:
    agent = resolve_agent("claude-code: --effort 'very high'")

    assert isinstance(agent, CodingAgent)
    assert agent.name == "claude-code:--effort 'very high'"
    assert "--dangerously-skip-permissions --effort very high\n" in run(agent)


def test_the_version_and_the_arguments_are_part_of_the_identity(programs: Path) -> None:
    plain, other = CodingAgent("codex"), CodingAgent("codex", "-c a=1")

    assert plain.identity.startswith("codex 1.2.3 ")
    assert plain.identity == CodingAgent("codex").identity
    assert plain.identity != other.identity
    write_program(programs / "codex", PROGRAM.replace("1.2.3", "1.2.4"))
    assert CodingAgent("codex").identity != plain.identity


def test_the_version_of_a_package_is_read_without_starting_the_program(tmp_path: Path) -> None:
    package = tmp_path / "node_modules" / "opencode-ai"
    (package / "bin").mkdir(parents=True)
    (package / "package.json").write_text('{"name": "opencode-ai", "version": "7.8.9"}')
    (package / "bin" / "opencode").write_text("not a program")
    (tmp_path / "opencode").symlink_to(package / "bin" / "opencode")

    assert read_program_version(tmp_path / "opencode", "opencode-ai") == "7.8.9"


def test_a_program_without_a_version_is_refused(tmp_path: Path) -> None:
    write_program(tmp_path / "pi", "#!/bin/sh\necho hello\n")

    with pytest.raises(ConfigError, match="`pi --version` printed no version"):
        read_program_version(tmp_path / "pi", "x")
    with pytest.raises(ConfigError, match="`none --version` failed"):
        read_program_version(tmp_path / "none", "x")


def test_a_missing_program_is_refused_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ConfigError, match="'codex' of the agent 'codex' was not found") as caught:
        resolve_agent("codex")

    assert caught.value.hint == "install it: npm install -g @openai/codex"


def test_unknown_names_and_broken_arguments_are_refused(programs: Path) -> None:
    with pytest.raises(ConfigError, match="no coding agent is named 'cursor'"):
        CodingAgent("cursor")
    with pytest.raises(ConfigError, match="the arguments cannot be parsed"):
        CodingAgent("codex", "'")


def test_an_agent_without_a_model_and_a_failing_program_are_failures(programs: Path) -> None:
    with pytest.raises(AgentFault, match="needs a model"):
        run(CodingAgent("codex"), base_url=None)
    write_program(programs / "codex", "#!/bin/sh\necho no credit >&2\nexit 4\n")
    with pytest.raises(AgentFault, match="exited with status 4; stderr: no credit"):
        run(CodingAgent("codex"))
