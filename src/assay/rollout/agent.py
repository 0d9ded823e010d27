"""The turn loop: a model and an environment, until one of them or a limit ends it."""

import asyncio
import math
import time
from collections.abc import Coroutine, Sequence
from typing import Any

from assay.endpoints import ModelClient
from assay.errors import AssayError, EnvironmentFault
from assay.models import (
    Boundary,
    EvaluateResult,
    Message,
    ModelCall,
    StepOutput,
    ToolSpec,
    Trajectory,
    Usage,
)
from assay.models.written import validated

from .environment import Environment, Step
from .environments import BasicEnvironment, ToolEnvironment
from .limits import Limits, Spent

_CLOSE_SECONDS = 10.0
_NOTHING_TO_CLOSE = (BasicEnvironment.close, ToolEnvironment.close)
"""The timeout around closing costs more than the rest of a turn."""


class RolloutFailed(AssayError):
    """A rollout broke. What happened until then is kept in `trajectory`; `__cause__` is why."""

    def __init__(self, message: str, *, boundary: Boundary, trajectory: Trajectory) -> None:
        super().__init__(message)
        self.boundary = boundary
        self.trajectory = trajectory


async def run_agent(
    client: ModelClient,
    environment: Environment,
    messages: Sequence[Message],
    *,
    limits: Limits | None = None,
    seed: int | None = None,
) -> Trajectory:
    """Let the model act in the environment, starting from `messages`.

    Opens and closes the environment. Raises `RolloutFailed` with everything that happened so far
    when the endpoint or the environment breaks; cancellation passes through.
    """
    rollout = _Rollout(client, environment, limits or Limits(), seed)
    try:
        try:
            await rollout.run(messages)
        finally:
            if getattr(environment.close, "__func__", None) not in _NOTHING_TO_CLOSE:
                await rollout.close()
    except _Broken as broken:
        cause = broken.__cause__
        raise RolloutFailed(
            f"{broken.boundary}: {cause}",
            boundary=broken.boundary,
            trajectory=rollout.trajectory("error", broken=True),
        ) from cause
    return rollout.trajectory(rollout.ended)


class _Broken(Exception):
    """Carries a boundary from where something broke to where the trajectory is made."""

    def __init__(self, boundary: Boundary) -> None:
        self.boundary = boundary


def _placed(call: ModelCall, place: int) -> ModelCall:
    if call.message_index == place:
        return call
    return call.model_copy(update={"message_index": place})


def _checked(step: Step) -> Step:
    if step.reward is not None and not math.isfinite(step.reward):
        raise EnvironmentFault(
            f"the reward is {step.reward}", hint="a reward is a finite number, or None"
        )
    return step


class _Rollout:
    """One rollout in progress."""

    ended = ""
    _tools: Sequence[ToolSpec] = ()
    _terminated = False
    _truncated = False
    _rewarded = False
    _spent: Spent | None = None
    _close_error: str | None = None

    def __init__(
        self, client: ModelClient, environment: Environment, limits: Limits, seed: int | None
    ) -> None:
        self._started = time.perf_counter()
        self._client = client
        self._environment = environment
        self._limits = limits
        self._seed = seed
        self._messages: list[Message] = []
        self._calls: list[ModelCall] = []
        self._steps: list[tuple[Message, Step]] = []
        self._observations: list[Any] = []

    def run(self, messages: Sequence[Message]) -> Coroutine[Any, Any, None]:
        """Take turns until the end."""
        self._messages.extend(messages)
        seconds = self._limits.max_seconds
        return self._turns() if seconds is None else self._turns_in_time(seconds)

    async def close(self) -> None:
        """Close the environment. What happened stands, whether or not that works."""
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._environment.close()
        except Exception as error:
            self._close_error = f"{type(error).__name__}: {error}"

    async def _turns_in_time(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds) as deadline:
                await self._turns()
        except TimeoutError:
            if not deadline.expired():
                raise
            self.ended, self._truncated = "max_seconds", True

    async def _turns(self) -> None:
        messages, seed = self._messages, self._seed
        try:
            messages.extend(await self._environment.open(seed=seed))
            self._tools = tools = self._environment.tools
        except Exception as error:
            raise _Broken(Boundary.ENVIRONMENT) from error
        while not self.ended:
            try:
                reply = await self._client.complete(messages, tools=tools, seed=seed)
            except Exception as error:
                raise _Broken(Boundary.ENDPOINT) from error
            action = reply.message
            self._calls.append(_placed(reply.call, len(messages)))
            messages.append(action)
            try:
                step = _checked(await self._environment.step(action))
            except Exception as error:
                raise _Broken(Boundary.ENVIRONMENT) from error
            self._steps.append((action, step))
            messages.extend(step.replies)
            self._settle(step, reply.call.usage)

    def _settle(self, step: Step, usage: Usage | None) -> None:
        self._terminated, self._truncated = step.terminated, step.truncated
        if step.reward is not None:
            self._rewarded = True
        if step.observation is not None:
            self._observations.append(step.observation)
        if step.terminated or step.truncated:
            self.ended = "agent" if step.ended_by_agent else "environment"
            return
        if self._spent is None:
            self._spent = Spent(self._limits)
        if limit := self._spent.add(usage):
            self.ended, self._truncated = limit, True

    def trajectory(self, reason: str, *, broken: bool = False) -> Trajectory:
        duration = time.perf_counter() - self._started
        fields: dict[str, Any] = {
            "messages": self._messages,
            "calls": self._calls,
            "steps": len(self._steps),
            "duration": duration,
            "terminated": self._terminated,
            "truncated": self._truncated,
            "termination_reason": reason,
        }
        if self._rewarded:
            fields["evaluation_result"] = self._result(reason, duration, broken=broken)
        if self._close_error:
            fields["close_error"] = self._close_error
        if self._tools:
            # What the model was told of is part of what it answered to.
            fields["tools"] = [spec.model_dump(exclude_defaults=True) for spec in self._tools]
        if self._observations:
            fields["observations"] = self._observations
        return validated(Trajectory, fields)

    def _result(self, reason: str, duration: float, *, broken: bool) -> EvaluateResult:
        """The verdict of an environment that gives rewards."""
        outputs = [
            StepOutput(
                step_index=index,
                base_reward=step.reward,
                terminated=step.terminated,
                control_plane_info=dict(step.info),
                metrics={"tool_calls": [call.name for call in action.tool_calls]},
                reason=step.reason,
            )
            for index, (action, step) in enumerate(self._steps)
            if step.reward is not None
        ]
        return EvaluateResult(
            # What a broken environment gave until then is no measurement of the agent.
            score=None if broken else sum(output.base_reward for output in outputs),
            is_score_valid=not broken,
            reason=reason,
            step_outputs=outputs,
            final_control_plane_info=outputs[-1].control_plane_info if self._terminated else None,
            trajectory_info={
                "duration": duration,
                "steps": len(self._steps),
                "termination_reason": reason,
            },
        )
