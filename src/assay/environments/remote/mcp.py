"""Environments of MCP servers: tools act; the control plane reports reward and end."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import from_json, to_json

from assay.errors import EnvironmentFault
from assay.types import Message, ToolCall, ToolSpec

from ..environment import Step, add_rewards
from .control_plane import ABSENT, MCP_SESSION_HEADER, ControlPlane, EpisodeStatus
from .http_client import EnvironmentClient, InvalidResponse
from .json_rpc import INVALID_PARAMS, RpcError
from .mcp_session import EPISODE_HEADER, Era, McpSession, get_server, open_mcp_session


class McpEnvironment:
    """One episode at an MCP server.

    The tool calls of the agent are sent to the server in order; a message without a call ends the
    episode. Rewards require the control plane (`/control/*` next to `/mcp`). Without it there are
    none, and the server receives the seed but does not confirm its use.
    """

    def __init__(
        self,
        client: EnvironmentClient,
        task: Mapping[str, Any] | None = None,
        *,
        era: Era | None = None,
    ) -> None:
        self.tools: Sequence[ToolSpec] = ()
        self._client = client
        self._task = task or {}
        self._era = era
        # Not derived from the sample: equal samples would share one episode.
        self._episode = uuid.uuid4().hex
        self._session: McpSession | None = None
        self._control: ControlPlane | None = None
        self._status = EpisodeStatus(False, False, None, None)

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        extra: dict[str, Any] = {} if seed is None else {"seed": seed}
        if self._task:
            extra["config"] = dict(self._task)
        session = await open_mcp_session(
            self._client, episode=self._episode, extra=extra, era=self._era
        )
        self._session = session
        try:
            self.tools = await session.list_tools()
        except RpcError as refusal:
            raise self._build_refusal_fault("to list its tools", refusal) from None
        headers = {MCP_SESSION_HEADER: self._episode, EPISODE_HEADER: self._episode}
        control = ControlPlane(self._client, session.url, headers)
        # Other servers ignore a reset of an unknown session and still report success. So the first
        # request for the state creates the session, the reset applies the seed, and the state after
        # that is the first observation.
        state = None if session.keeps_episodes else await control.initial_state()
        server = get_server(self._client)
        if server.has_control and state is ABSENT:
            raise EnvironmentFault(
                "the control plane has disappeared: /control/initial_state is missing",
                where=self._client.where,
            )
        server.has_control = state is not ABSENT
        if state is ABSENT:
            return ()
        self._control = control
        if session.keeps_episodes or seed is not None:
            await control.reset(seed, self._task if session.keeps_episodes else None)
            state = await control.initial_state()
        self._status = await control.status()
        # Steps of another rollout would be rewarded to this one.
        if self._status.step_count:
            raise EnvironmentFault(
                f"the new episode already has {self._status.step_count} steps",
                where=self._client.where,
                hint="the server must open a fresh session for each episode",
            )
        text = _format_state(state)
        return (Message(role="user", content=text),) if text else ()

    def describe_session(self) -> dict[str, Any]:
        return self._client.describe_session("mcp", self._episode)

    async def step(self, action: Message) -> Step:
        if not action.tool_calls:
            return await self._end_by_agent()
        replies: list[Message] = []
        rewards: list[float | None] = []
        observation: Any = None
        taken = False
        for call in action.tool_calls:
            content, acted = await self._call_tool(call)
            reply = Message(role="tool", content=content, tool_call_id=call.id, name=call.name)
            replies.append(reply)
            if acted:
                try:
                    observation = from_json(reply.text, allow_inf_nan=False)
                except ValueError:
                    observation = reply.text
                earned = await self._read_rewards()
                rewards += earned
                # Without a control plane, calls that act and calls that only look are the same.
                taken = taken or bool(earned) or self._control is None
        return Step(
            replies=tuple(replies),
            reward=add_rewards(rewards),
            rewards=tuple(rewards),
            acted=taken,
            terminated=self._status.terminated,
            truncated=self._status.truncated,
            info=await self._read_info(),
            observation=observation,
        )

    async def _end_by_agent(self) -> Step:
        """End the episode for the agent. Rewards since the last step are read, not assumed."""
        reward, before = None, self._status
        if self._control is not None and not before.over:
            self._status = await self._control.status()
            reward = _compute_gain(before, self._status)
            if reward is None and before.total_reward is not None:
                raise self._build_reward_fault("`total_reward` changed from a number to null")
        return Step(
            reward=reward,
            # As reported: an agent that leaves does not terminate the environment.
            terminated=self._status.terminated,
            truncated=self._status.truncated,
            ended_by_agent=True,
            acted=self._status != before,
            info=await self._read_info(),
        )

    async def _call_tool(self, call: ToolCall) -> tuple[Any, bool]:
        """Make a call. Return its answer, and whether the environment may have taken a step.

        Every call is answered: chat APIs reject a conversation with an open call.
        """
        if self._status.over:
            return "The episode is over.", False
        names = [spec.name for spec in self.tools]
        if call.name not in names:
            return f"Error: unknown tool {call.name!r}; the tools are {names}", False
        if call.malformed:
            return f"Error: the arguments of {call.name!r} are not a JSON object", False
        if self._session is None:
            raise EnvironmentFault("the environment is not open", where=self._client.where)
        try:
            result = await self._session.call_tool(call.name, call.arguments)
        except RpcError as refusal:
            # Wrong arguments are a mistake of the agent; any other refusal is a fault.
            if refusal.code == INVALID_PARAMS:
                return f"Error: {refusal.message}", False
            raise self._build_refusal_fault(f"to call {call.name!r}", refusal) from None
        # Without a step count, the reward after a failed call could be that of the step before it.
        failed = result.get("isError") is True and self._status.step_count is None
        return self._convert_content(result), not failed

    async def _read_rewards(self) -> list[float | None]:
        """Return the rewards of the last call: None if unknown, empty if no step was taken."""
        if self._control is None:
            return []
        before, self._status = self._status, await self._control.status()
        now = self._status.step_count
        taken = 1 if now is None else now - (before.step_count or 0)
        if taken < 0:
            raise self._build_reward_fault(f"the step count fell to {now}")
        if taken == 0:
            # The server still reports the reward of the last step, which was already counted.
            return []
        reward, count = await self._control.reward()
        if count is not None and now is not None and count != now:
            raise self._build_reward_fault(
                f"the step count changed to {count} between two requests"
            )
        if taken == 1:
            return [reward]
        # Several steps in one call: only the change of the total covers all of them.
        gained = _compute_gain(before, self._status)
        if gained is None:
            raise self._build_reward_fault(
                f"one tool call took {taken} steps, and the server reports only the last reward"
            )
        return [gained]

    def _build_reward_fault(self, problem: str) -> EnvironmentFault:
        return EnvironmentFault(
            f"the reward is unknown: {problem}",
            where=self._client.where,
            hint="check that nothing else acts in the same session",
        )

    async def _read_info(self) -> Mapping[str, Any]:
        if self._control is None:
            return {}
        status = self._status
        return {
            **await self._control.info(),
            "terminated": status.terminated,
            "truncated": status.truncated,
            "step_count": status.step_count,
            "total_reward": status.total_reward,
        }

    def _convert_content(self, result: Mapping[str, Any]) -> Any:
        """Convert the result of a tool to message content: plain text if there is only text."""
        blocks = result.get("content")
        if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
            raise InvalidResponse(
                "the result of a tool has no list `content`", where=self._client.where
            )
        if not blocks and result.get("structuredContent") is not None:
            return _format_state(result["structuredContent"])
        if all(isinstance(block.get("text"), str) for block in blocks):
            return "\n".join(block["text"] for block in blocks)
        return tuple(_from_mcp_block(block) for block in blocks)

    def _build_refusal_fault(self, request: str, refusal: RpcError) -> EnvironmentFault:
        return EnvironmentFault(
            f"the server refused {request}: {refusal.message}",
            where=self._client.where,
            hint="the session may have expired, or the environment failed; see the server log",
        )

    async def close(self) -> None:
        session, self._session = self._session, None
        control, self._control = self._control, None
        if session is None:
            return
        try:
            if control is not None and session.keeps_episodes:
                await control.close()
        finally:
            try:
                await session.close()
            finally:
                # Also after an error: the next episode in the queue must not wait for ever.
                self._client.queue.release()


def _compute_gain(before: EpisodeStatus, now: EpisodeStatus) -> float | None:
    # Before the first step a missing total is 0; later it is unknown.
    if now.total_reward is None or (before.total_reward is None and before.step_count):
        return None
    return now.total_reward - (before.total_reward or 0.0)


def _format_state(value: Any) -> str:
    """Return a state as text for the agent: strings unchanged, other values as JSON."""
    if isinstance(value, dict) and list(value) == ["observation"]:
        value = value["observation"]
    return value if isinstance(value, str) else to_json(value).decode()


def _from_mcp_block(block: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a block of MCP to a block of a message."""
    kind = block.get("type")
    if kind == "image" and isinstance(block.get("data"), str):
        url = f"data:{block.get('mimeType', 'image/png')};base64,{block['data']}"
        return {"type": "image_url", "image_url": {"url": url}}
    resource = block.get("resource")
    if kind == "resource" and isinstance(resource, dict) and isinstance(resource.get("text"), str):
        return {"type": "text", "text": resource["text"]}
    if kind == "text" and isinstance(block.get("text"), str):
        return {"type": "text", "text": block["text"]}
    # For example a link or audio: passed on as JSON, so that nothing is silently dropped.
    return {"type": "text", "text": to_json(dict(block)).decode()}
