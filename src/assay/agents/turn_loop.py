"""The turn loop: a model and an environment, until one of them or a limit ends it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from pydantic_core import to_json

from assay.environments import (
    BasicEnvironment,
    Environment,
    RewardSum,
    Step,
    ToolEnvironment,
    check_items,
    check_step,
    describe_session,
    to_plain_info,
    to_plain_json,
)
from assay.errors import AssayError, ConfigError, EndpointError, EnvironmentFault
from assay.providers import (
    ActiveTimer,
    ModelClient,
    check_tools,
    fills_context,
    is_context_length_error,
)
from assay.types import (
    AgentSession,
    Boundary,
    EvaluateResult,
    Message,
    ModelCall,
    Status,
    StepOutput,
    ToolCall,
    ToolSpec,
    Trajectory,
    describe_error,
    error_message,
    validate,
)

from .agent_limits import Limits, RolloutBudget

_ENDPOINT, _ENVIRONMENT = Boundary.ENDPOINT, Boundary.ENVIRONMENT
_CLOSE_TIMEOUT_S = 10.0
_YIELD_INTERVAL_S = 0.01
"""Other rollouts are let in after this long, not at each turn: that costs as much as a turn."""

_CONTEXT_FULL = "context"
"""Why a rollout ends when the conversation fills the context of the model."""

_NO_OP_CLOSES = (BasicEnvironment.close, ToolEnvironment.close)
"""The timeout around closing costs more than the rest of a turn."""


class RolloutFailed(AssayError):
    """A rollout broke. What happened until then is kept in `trajectory`; `__cause__` is why."""

    def __init__(self, message: str, *, boundary: Boundary, trajectory: Trajectory) -> None:
        super().__init__(message)
        self.boundary = boundary
        self.trajectory = trajectory


async def run_agent(  # noqa: PLR0913  # who acts where, from what on, and how far
    client: ModelClient,
    environment: Environment,
    messages: Sequence[Message],
    *,
    limits: Limits | None = None,
    seed: int | None = None,
    sampling_seed: int | None = None,
    session: AgentSession | None = None,
) -> Trajectory:
    """Let the model act in the environment, starting from `messages`.

    `seed` is that of the environment. The model is asked with `sampling_seed`, or with `seed`
    where there is no other. With a `session` the rollout continues it: its messages come first,
    and what happens is added to it, also when the rollout fails. An environment does not repeat
    how it opened.

    Opens and closes the environment. Raises `RolloutFailed` with everything that happened so far
    when the endpoint or the environment breaks, or when an `ActiveTimer.limited` around this call runs
    out; cancellation passes through. Raises `ConfigError`, before the model is asked, when the
    environment offers tools and the model's calls could not be read. A conversation that fills the
    context of the model is truncated, unless not even the first answer fits. The duration is
    without closing, and without what requests waited for their turn to be sent.
    """
    with ActiveTimer() as own:
        before = [] if session is None else session.messages
        rollout = _Rollout(client, environment, [*before, *messages], limits or Limits(), own)
        rollout.continues = bool(before)
        try:
            try:
                await rollout.run(seed, seed if sampling_seed is None else sampling_seed)
            finally:
                if rollout.ends():
                    await rollout.close()
        except _ROLLOUT_ERRORS as error:
            boundary, limit = rollout.boundary, rollout.find_expired_limit(error)
            if limit is not None:
                cause: Exception = TimeoutError(f"{limit} was reached while waiting for it")
            elif rollout.is_cancelled(error) or rollout.is_misconfigured(error):
                raise
            else:
                cause = _to_exception(error, boundary)
            reason = limit or (_CONTEXT_FULL if is_context_length_error(cause) else "error")
            trajectory = rollout.trajectory(reason, broken=True)
            if session is not None:
                _update_session(session, trajectory, Status.FAILED)
            raise RolloutFailed(
                f"{boundary}: {error_message(cause)}", boundary=boundary, trajectory=trajectory
            ) from cause
    trajectory = rollout.trajectory(rollout.ended)
    if session is not None:
        truncated = Status.TRUNCATED if trajectory.truncated else Status.COMPLETED
        _update_session(session, trajectory, truncated)
    return trajectory


def _update_session(session: AgentSession, trajectory: Trajectory, status: Status) -> None:
    session.messages, session.status = list(trajectory.messages), status
    if trajectory.session is not None:
        session.environment = dict(trajectory.session)


_ROLLOUT_ERRORS = (Exception, SystemExit, asyncio.CancelledError)
"""Passed on, `sys.exit()` in a tool would end the run as if all were well."""


def _to_exception(error: BaseException, boundary: Boundary) -> Exception:
    """The error itself, or one that says what happened for those that say nothing."""
    if isinstance(error, Exception):
        return error
    kind = EndpointError if boundary is _ENDPOINT else EnvironmentFault
    if isinstance(error, SystemExit):
        told = kind(f"the {boundary} called sys.exit({error.code!r})")
    else:
        told = kind(f"the {boundary} waited for something that was cancelled")
    told.__cause__ = error
    return told


async def _close_with_timeout(close: Callable[[], Awaitable[None]]) -> None:
    try:
        async with asyncio.timeout(_CLOSE_TIMEOUT_S) as timer:
            await close()
    except TimeoutError as error:
        if not timer.expired():
            raise
        raise TimeoutError(f"did not close within {_CLOSE_TIMEOUT_S:g} s") from error


def _describe_unknown_rewards(steps: Sequence[int]) -> str:
    more = f" and of {len(steps) - 1} more steps" if len(steps) > 1 else ""
    return f"the reward of step {steps[0]}{more} is unknown, and so is the total"


def _format_action(call: ToolCall) -> str:
    """A tool call as one line of text: `move({"direction":"left"})`."""
    if call.malformed:
        return f"{call.name}({call.raw_arguments})"
    return f"{call.name}({to_json(call.arguments, inf_nan_mode='constants').decode()})"


def _set_message_index(call: ModelCall, place: int) -> ModelCall:
    if call.message_index == place:
        return call
    return call.model_copy(update={"message_index": place})


class _Rollout:
    """One rollout in progress."""

    ended = ""
    boundary = _ENVIRONMENT
    """Whose side it is on when something breaks now."""

    _duration = 0.0
    _session: dict[str, Any] | None = None
    _tools: Sequence[dict[str, Any]] = ()
    _checking = False
    continues = False
    """Whether the conversation was begun before, with what the environment says at first."""

    _terminated = False
    _truncated = False
    _budget: RolloutBudget | None = None
    _close_error: str | None = None

    def __init__(
        self,
        client: ModelClient,
        environment: Environment,
        messages: list[Message],
        limits: Limits,
        own: ActiveTimer,
    ) -> None:
        self._client = client
        self._environment = environment
        self._messages = messages
        self._limits = limits
        self._own = own
        self._task = asyncio.current_task()
        # Not always 0: a group of tasks that failed earlier may leave its own request behind.
        self._cancels = 0 if self._task is None else self._task.cancelling()
        self._calls: list[ModelCall] = []
        self._steps: list[tuple[Message, Step, dict[str, Any]]] = []
        self._rewards = RewardSum()
        self._observations: list[Any] = []

    def run(self, seed: int | None, sampling_seed: int | None) -> Coroutine[Any, Any, None]:
        """Take turns until the end."""
        seconds = self._limits.max_seconds
        turns = self._run_turns(seed, sampling_seed)
        return turns if seconds is None else self._run_with_time_limit(turns, seconds)

    def is_cancelled(self, error: BaseException) -> bool:
        """Whether somebody cancels the rollout, rather than something that it waited for."""
        if not isinstance(error, asyncio.CancelledError):
            return False
        return self._task is None or self._task.cancelling() > self._cancels

    def is_misconfigured(self, error: BaseException) -> bool:
        """Whether the model cannot be offered the tools: no rollout could be made."""
        return self._checking and isinstance(error, ConfigError)

    def find_expired_limit(self, error: BaseException) -> str | None:
        """The time limit around the rollout that ended it; None when something else did."""
        if not isinstance(error, asyncio.CancelledError) or self._task is None:
            return None
        expired = self._own.list_expired_limits()
        # One request for each limit that ran out: any other is a cancellation of its own.
        return expired[0] if self._task.cancelling() - self._cancels == len(expired) > 0 else None

    def ends(self) -> bool:
        """Take the time. Whether there is something to close."""
        self._duration = self._own.spent_s
        close = getattr(self._environment, "close", None)
        return getattr(close, "__func__", None) not in _NO_OP_CLOSES

    async def close(self) -> None:
        """Close the environment. What happened stands, whether or not that works."""
        try:
            await _close_with_timeout(self._environment.close)
        except _ROLLOUT_ERRORS as error:
            if self.is_cancelled(error):
                raise
            self._close_error = describe_error(_to_exception(error, _ENVIRONMENT))

    async def _run_with_time_limit(self, turns: Coroutine[Any, Any, None], seconds: float) -> None:
        try:
            async with self._own.limit_time(seconds, name="max_seconds") as timer:
                await turns
        except TimeoutError:
            if not timer.expired():
                raise
            self.ended, self._truncated = "max_seconds", True

    async def _run_turns(self, seed: int | None, sampling_seed: int | None) -> None:
        messages, environment = self._messages, self._environment
        if type(environment) is not BasicEnvironment:
            # Before it is opened: also an episode that hangs there is recorded with its seed.
            self._session = describe_session(environment, seed)
        if (opening := await environment.open(seed=seed)) and not self.continues:
            messages.extend(check_items(Message, opening, "open"))
        if self._session is not None:
            self._session = describe_session(environment, seed)
        if tools := environment.tools:
            tools = check_items(ToolSpec, tools, "tools")
            # What the model was told of is part of what it answered to.
            self._tools = [spec.model_dump(mode="json", exclude_defaults=True) for spec in tools]
            self.boundary, self._checking = _ENDPOINT, True
            await check_tools(self._client, tools)
            self._checking = False
        let_in_at = self._own.began_at
        while not self.ended:
            if self._steps and time.perf_counter() - let_in_at > _YIELD_INTERVAL_S:
                # Where neither side ever waits, nothing else would run: no timer, no other rollout.
                await asyncio.sleep(0)
                let_in_at = time.perf_counter()
                if self._own.list_expired_limits():
                    # The environment swallowed the cancellation of a limit.
                    raise asyncio.CancelledError
            self.boundary = _ENDPOINT
            try:
                reply = await self._client.complete(messages, tools=tools or (), seed=sampling_seed)
            except EndpointError as error:
                # Before the first answer nothing happened that could be scored.
                if not self._calls or not is_context_length_error(error):
                    raise
                self.ended, self._truncated = _CONTEXT_FULL, True
                return
            action = reply.message
            self._calls.append(_set_message_index(reply.call, len(messages)))
            messages.append(action)
            self.boundary = _ENVIRONMENT
            step = check_step(await environment.step(action))
            self._steps.append((action, step, to_plain_info(step.info)))
            messages.extend(step.replies)
            self._record_step(step, reply.call)

    def _record_step(self, step: Step, call: ModelCall) -> None:
        self._terminated, self._truncated = step.terminated, step.truncated
        self._rewards.add(len(self._steps) - 1, step)
        if step.observation is not None:
            self._observations.append(to_plain_json(step.observation, "Step.observation"))
        if step.terminated or step.truncated or step.ended_by_agent:
            self.ended = "agent" if step.ended_by_agent else "environment"
        if self.ended != "environment" and fills_context(call):
            # Half an answer is not how the agent ends a rollout, and no other answer fits.
            self.ended, self._terminated, self._truncated = _CONTEXT_FULL, False, True
        if self.ended:
            return
        if self._budget is None:
            self._budget = RolloutBudget(self._limits, self._own)
        if limit := self._budget.add(call.usage):
            self.ended, self._truncated = limit, True

    def trajectory(self, reason: str, *, broken: bool = False) -> Trajectory:
        fields: dict[str, Any] = {
            "messages": self._messages,
            "calls": self._calls,
            "steps": self._count_steps(),
            "duration": self._duration,
            "terminated": self._terminated,
            "truncated": self._truncated,
            "termination_reason": reason,
        }
        if self._rewards.known is not None:
            fields["evaluation_result"] = self._build_result(reason, broken=broken)
        if self._close_error:
            fields["close_error"] = self._close_error
        if self._session is not None:
            fields["session"] = self._session
            fields["actions"] = self._collect_actions()
        if self._tools:
            fields["tools"] = self._tools
        if self._observations:
            fields["observations"] = self._observations
        return validate(Trajectory, fields)

    def _collect_actions(self) -> list[str]:
        if self._tools:
            return [
                _format_action(call) for action, _, _ in self._steps for call in action.tool_calls
            ]
        # Without tools, the environment acts on the text of each message.
        return [action.text for action, step, _ in self._steps if step.was_taken]

    def _find_final_info(self, outputs: Sequence[StepOutput]) -> dict[str, Any] | None:
        """What the control plane said in terminating the episode; None where it did not."""
        if not self._terminated:
            return None
        info = self._steps[-1][2]
        # An answer that ends an episode, and is no step of it, has no data of its own.
        return info if info or (outputs and outputs[-1].terminated) else None

    def _count_steps(self) -> int:
        return sum(step.was_taken for _, step, _ in self._steps)

    def _build_result(self, reason: str, *, broken: bool) -> EvaluateResult:
        """The verdict of an environment that gives rewards."""
        unknown = frozenset(self._rewards.unknown)
        outputs = [
            StepOutput(
                step_index=index,
                base_reward=None if index in unknown else step.reward,
                terminated=step.terminated,
                control_plane_info=info,
                metrics={"tool_calls": [call.name for call in action.tool_calls]},
                reason=step.reason,
            )
            for index, (action, step, info) in enumerate(self._steps)
            if (step.reward is not None and step.was_taken) or index in unknown
        ]
        # The rewards of an episode that broke off do not measure the agent.
        score = None if broken else self._rewards.total
        return EvaluateResult(
            score=score,
            is_score_valid=score is not None,
            reason=reason,
            error=_describe_unknown_rewards(self._rewards.unknown) if unknown else None,
            step_outputs=outputs,
            final_control_plane_info=self._find_final_info(outputs),
            trajectory_info={
                "duration": self._duration,
                "steps": self._count_steps(),
                "termination_reason": reason,
            },
        )
