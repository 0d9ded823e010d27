"""Several MCP servers as one environment. Real servers are asked in tests/flows."""

import asyncio
from pathlib import Path

import pytest

from assay.environments import ToolEnvironment, tool
from assay.errors import ConfigError, EnvironmentFault
from assay.pytest_plugin.eval_protocol.mcp_servers import McpServers, ToolServers
from assay.types import Message
from make import called, said


class Kitchen(ToolEnvironment):
    closed = False

    @tool
    def cook(self) -> str:
        """Cook."""
        return "cooked"

    async def close(self) -> None:
        self.closed = True


class Garden(ToolEnvironment):
    @tool
    def dig(self) -> str:
        """Dig."""
        return "dug"


def test_calls_go_to_the_server_that_has_the_tool() -> None:
    kitchen = Kitchen()
    servers = ToolServers([kitchen, Garden()])

    async def use() -> tuple[Message, ...]:
        await servers.open()
        step = await servers.step(said(None, called("dig", "1"), called("cook", "2")))
        end = await servers.step(said("done"))
        assert (step.terminated, end.terminated, end.ended_by_agent) == (False, True, True)
        await servers.close()
        return step.replies

    replies = asyncio.run(use())

    assert [(each.text, each.tool_call_id) for each in replies] == [("dug", "1"), ("cooked", "2")]
    assert [spec.name for spec in servers.tools] == ["cook", "dig"]
    assert kitchen.closed


def test_a_tool_that_no_server_has_is_refused_in_words_for_the_model() -> None:
    servers = ToolServers([Kitchen()])

    async def use() -> tuple[Message, ...]:
        await servers.open()
        return (await servers.step(said(None, called("fly")))).replies

    (reply,) = asyncio.run(use())

    assert "fly" in reply.text


def test_two_servers_with_one_tool_name_are_a_fault() -> None:
    with pytest.raises(EnvironmentFault, match="two MCP servers have a tool 'cook'"):
        asyncio.run(ToolServers([Kitchen(), Kitchen()]).open())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "the file is not JSON with an object `mcpServers`"),
        ("[]", "the file is not JSON with an object `mcpServers`"),
        ('{"mcpServers": {}}', "names no server"),
        ('{"mcpServers": {"a": {"args": []}}}', "neither a `url` nor a `command`"),
        (
            '{"mcpServers": {"a": {"command": "run", "env": ["NOT_SET_ANYWHERE"]}}}',
            "the environment variable NOT_SET_ANYWHERE is not set",
        ),
        (
            '{"mcpServers": {"a": {"url": "http://h/mcp", "authorization": "Basic x"}}}',
            "`Bearer …` only",
        ),
    ],
)
def test_a_configuration_that_is_not_supported_is_refused_when_the_test_runs(
    text: str, problem: str, tmp_path: Path
) -> None:
    (tmp_path / "mcp.json").write_text(text)

    with pytest.raises(ConfigError, match=problem):
        asyncio.run(McpServers(tmp_path / "mcp.json").__aenter__())


def test_a_missing_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the file cannot be read"):
        asyncio.run(McpServers(tmp_path / "mcp.json").__aenter__())
