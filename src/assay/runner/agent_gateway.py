"""Runs an agent of the user's own behind a recording gateway, if the run has a model."""

import asyncio
import time
from typing import TYPE_CHECKING, Any, Self

from assay.agents import Agent, AgentClient, ModelAgent, RunContext, build_trajectory
from assay.errors import AccessDenied, GatewayFault, RunStopped
from assay.providers import ModelClient
from assay.types import Boundary, Message, Sample, Trajectory

from .eval_config import EvalConfig
from .run_limits import RunSpending

if TYPE_CHECKING:
    from assay.gateway import Gateway, GatewaySession


def find_agent_gateway(
    config: EvalConfig, client: ModelClient | None, spending: RunSpending | None = None
) -> "GatewayAgent | None":
    """Return the agent of a run behind a gateway; None if it cannot use one."""
    agent = config.agent
    if agent is None or client is None or isinstance(agent, ModelAgent):
        return None
    if not getattr(agent, "uses_gateway", True):
        return None
    return GatewayAgent(agent, client, spending)


class GatewayAgent:
    """An agent whose model calls are recorded at the wire; serves its gateway while it is open."""

    def __init__(
        self, agent: Agent, client: ModelClient, spending: RunSpending | None = None
    ) -> None:
        self._agent = agent
        self._client = client
        self._spending = spending
        self._gateway: Gateway | None = None
        self.name = agent.name
        self.identity = agent.identity
        self.boundary: Boundary = getattr(agent, "boundary", Boundary.AGENT)

    async def __aenter__(self) -> Self:
        # aiohttp takes 0.1 s to import, for these agents only.
        from assay.gateway import Gateway

        self._gateway = await Gateway(self._client).__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._gateway is not None:
            await self._gateway.__aexit__(*_)

    async def run(self, sample: Sample, context: RunContext) -> Trajectory:
        """Run the agent. Its trajectory is the recorded one, if it called the model."""
        from assay.gateway import RUN_LIMIT, GatewayLimits, ReplayClient

        gateway = self._gateway
        assert gateway is not None
        limits = GatewayLimits(
            max_turns=context.limits.max_turns,
            max_tokens=context.limits.max_tokens,
            max_seconds=context.limits.max_seconds,
            max_cost_usd=context.limits.max_cost_usd,
        )
        model = None if context.client is None else context.client.client
        replay = model.session if isinstance(model, ReplayClient) else None
        session = gateway.open_session(limits=limits, seed=context.sampling_seed, replay=replay)
        session.spending.run = self._spending
        context.base_url, context.api_key = session.base_url, session.key
        context.variables = session.variables
        if context.client is not None:
            context.client = RecordedClient(context.client, session)
        try:
            own = await self._run_agent(sample, context, session)
            recorded = await session.seal()
        finally:
            await session.seal()
            gateway.forget(session)
        if session.fault is not None or not gateway.is_running:
            raise GatewayFault(session.fault or "the gateway stopped during the sample")
        limit = session.limit_reached or ""
        if self._spending is not None and limit.startswith(RUN_LIMIT):
            # Not a truncated result: the sample is repeated when the run is resumed.
            raise self._spending.build_error(limit.removeprefix(RUN_LIMIT))
        return merge_recorded(own or Trajectory(messages=list(context.messages)), recorded)

    async def _run_agent(
        self, sample: Sample, context: RunContext, session: "GatewaySession"
    ) -> Trajectory | None:
        """Return the agent's own answer; None if a limit cut it short."""
        started = time.perf_counter()
        seconds = context.limits.max_seconds
        try:
            # Calls are refused after the limit; an agent that makes none must end as well.
            async with asyncio.timeout(seconds) as timer:
                answer: object = await self._agent.run(sample, context)
        except Exception as error:
            if isinstance(error, TimeoutError) and timer.expired():
                session.limit_reached = session.limit_reached or "max_seconds"
                return None
            last = session.calls[-1] if session.calls else None
            if last is not None and last.status in (401, 403):
                # No other sample can succeed: the run stops at once.
                name = f"{self._client.endpoint.provider}:{self._client.endpoint.model}"
                raise AccessDenied(
                    f"HTTP {last.status}: {last.error}", where=name, status=last.status
                ) from error
            # An agent that fails because it reached a limit was cut short, not broken.
            if session.limit_reached is None or session.fault is not None:
                raise
            return None
        return build_trajectory(answer, context, time.perf_counter() - started)


class RecordedClient(AgentClient):
    """The model of a run as an agent calls it in this process or through the gateway."""

    def __init__(self, client: AgentClient, session: "GatewaySession") -> None:
        super().__init__(client)
        self._session = session

    def find_boundary(self, error: BaseException) -> Boundary | None:
        """Return the boundary of an error that a model call or the gateway caused."""
        if self._session.fault is not None or isinstance(error, GatewayFault | RunStopped):
            return Boundary.GATEWAY
        if (found := super().find_boundary(error)) is not None:
            return found
        last = self._session.calls[-1] if self._session.calls else None
        # The agent gave up after its model failed; a call that it aborted itself has no status.
        # A stream that broke has the status of its start. A limit is not a failure of the model.
        failed = last is not None and last.error is not None and last.status is not None
        return Boundary.ENDPOINT if failed and self._session.limit_reached is None else None

    def trajectory(self, reason: str) -> Trajectory | None:
        """Return the recorded conversation and calls; None if no call was made."""
        if not self._session.calls or reason == "agent":
            return super().trajectory(reason)
        recorded = self._session.build_trajectory()
        return recorded.model_copy(update={"termination_reason": reason})


# What only the agent knows of its rollout, such as the rewards of its environment.
_REPORTED_FIELDS = (
    *("steps", "terminated", "truncated", "evaluation_result", "session"),
    *("observations", "actions"),
)


def merge_recorded(own: Trajectory, recorded: Trajectory) -> Trajectory:
    """Join the answer of an agent with its recorded calls.

    The recorded conversation is kept, and what the agent reports of its environment. An answer
    that does not end with the last text of the conversation, such as a number that the agent has
    read from it, is added as the last message.
    """
    if not recorded.messages:
        # The calls stay: failed ones tell why, and titles and the like were paid for.
        changes: dict[str, Any] = {"calls": recorded.calls} if recorded.calls else {}
        if recorded.truncated:
            reason = recorded.termination_reason
            changes |= {"truncated": True, "termination_reason": reason}
        return own.model_copy(update=changes)
    messages = recorded.messages
    answer = _find_last_answer(own.messages)
    if answer.strip() and not _ends_with_lines(answer, _find_last_answer(messages)):
        messages = [*messages, Message(role="assistant", content=answer)]
    # Without the usage that an agent reports in total, which is that of the recorded calls.
    others = [
        call
        for call in own.calls
        if call.wire is None and (call.model is not None or call.completion_ids is not None)
    ]
    reported = {name: value for name in _REPORTED_FIELDS if (value := getattr(own, name))}
    if not recorded.truncated and own.termination_reason is not None:
        reported["termination_reason"] = own.termination_reason
    return recorded.model_copy(
        update={
            **reported,
            "messages": messages,
            "duration": own.duration,
            "calls": [*recorded.calls, *others],
        }
    )


def _ends_with_lines(text: str, last: str) -> bool:
    """Whether the last lines of a text are these. Programs may print more before the answer."""
    return bool(last.strip()) and f"\n{text.strip()}".endswith(f"\n{last.strip()}")


def _find_last_answer(messages: list[Message]) -> str:
    return next((each.text for each in reversed(messages) if each.role == "assistant"), "")
