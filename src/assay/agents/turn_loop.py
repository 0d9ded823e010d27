"""The turn loop: model and environment alternate until one of them or a limit ends it."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
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
    ToolSpec,
    Trajectory,
    describe_error,
    error_message,
    validate,
)

from .agent_limits import Limits, RolloutBudget

_ENDPOINT, _ENVIRONMENT = Boundary.ENDPOINT, Boundary.ENVIRONMENT
_CLOSE_TIMEOUT_S = 10.0
# Yield to the event loop at most every 10 ms: at each turn it would cost as much as the turn.
_YIELD_INTERVAL_S = 0.01
# The termination reason of a conversation that fills the context of the model.
_CONTEXT_FULL = "context"
# Skipped, since the timeout around `close` costs more than the rest of a short turn.
_NO_OP_CLOSES = (BasicEnvironment.close, ToolEnvironment.close)


class RolloutFailed(AssayError):
    """A rollout failed. `trajectory` has the part before the failure, `__cause__` the error."""

    def __init__(self, message: str, *, boundary: Boundary, trajectory: Trajectory) -> None:
        super().__init__(message)
        self.boundary = boundary
        self.trajectory = trajectory


async def run_agent(  # noqa: PLR0913  # all but the first three are optional
    client: ModelClient,
    environment: Environment,
    messages: Sequence[Message],
    *,
    limits: Limits | None = None,
    seed: int | None = None,
    sampling_seed: int | None = None,
    session: AgentSession | None = None,
) -> Trajectory:
    """Run the model in the environment, starting from `messages`.

    `seed` is the seed of the environment. The model samples with `sampling_seed`, which defaults
    to `seed`. With a `session` the rollout continues it: its messages come first, and the new ones
    are added to it, also when the rollout fails. The opening messages of the environment are then
    not repeated.

    Opens and closes the environment. Raises `RolloutFailed` with the trajectory so far when the
    endpoint or the environment fails, or when an `ActiveTimer.limit_time` around this call expires;
    cancellation passes through. Raises `ConfigError`, before any model call, when the environment
    offers tools and the model's calls could not be parsed. A conversation that fills the context of
    the model is truncated, unless not even the first answer fits. The duration excludes closing and
    the time that requests spend in the queue.
    """
    with ActiveTimer() as timer:
        before = [] if session is None else session.messages
        rollout = _Rollout(client, environment, [*before, *messages], limits or Limits(), timer)
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
                cause: Exception = TimeoutError(f"the limit {limit} was reached while waiting")
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


# SystemExit too: `sys.exit()` in a tool would otherwise end the whole run with its status.
_ROLLOUT_ERRORS = (Exception, SystemExit, asyncio.CancelledError)


def _to_exception(error: BaseException, boundary: Boundary) -> Exception:
    # SystemExit and CancelledError carry no message, and are not `Exception`s.
    if isinstance(error, Exception):
        return error
    kind = EndpointError if boundary is _ENDPOINT else EnvironmentFault
    if isinstance(error, SystemExit):
        exception = kind(f"the {boundary} called sys.exit({error.code!r})")
    else:
        exception = kind(f"an operation that the {boundary} awaited was cancelled")
    exception.__cause__ = error
    return exception


class _Rollout:
    """One rollout in progress."""

    ended = ""
    boundary = _ENVIRONMENT
    """The side that an error at this point is attributed to."""

    _duration = 0.0
    _session: dict[str, Any] | None = None
    _tools: Sequence[dict[str, Any]] = ()
    _checking = False
    continues = False
    """Whether a session is continued, whose messages include the opening ones."""

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
        timer: ActiveTimer,
    ) -> None:
        self._client = client
        self._environment = environment
        self._messages = messages
        self._limits = limits
        self._timer = timer
        self._task = asyncio.current_task()
        # Not always 0: a task group that failed earlier may leave its cancel request pending.
        self._cancels = 0 if self._task is None else self._task.cancelling()
        self._calls: list[ModelCall] = []
        self._steps: list[tuple[Message, Step, dict[str, Any]]] = []
        self._rewards = RewardSum()
        self._observations: list[Any] = []

    def run(self, seed: int | None, sampling_seed: int | None) -> Coroutine[Any, Any, None]:
        """Alternate turns until the end, within `max_seconds` if set."""
        seconds = self._limits.max_seconds
        turns = self._run_turns(seed, sampling_seed)
        return turns if seconds is None else self._run_with_time_limit(turns, seconds)

    def is_cancelled(self, error: BaseException) -> bool:
        """Whether the rollout itself was cancelled, not an operation that it awaits."""
        if not isinstance(error, asyncio.CancelledError):
            return False
        return self._task is None or self._task.cancelling() > self._cancels

    def is_misconfigured(self, error: BaseException) -> bool:
        """Whether the model cannot be offered the tools: every rollout would fail."""
        return self._checking and isinstance(error, ConfigError)

    def find_expired_limit(self, error: BaseException) -> str | None:
        """Return the time limit around the rollout that cancelled it, or None."""
        if not isinstance(error, asyncio.CancelledError) or self._task is None:
            return None
        expired = self._timer.list_expired_limits()
        # Each expired limit makes one cancel request: any further one is the caller's.
        return expired[0] if self._task.cancelling() - self._cancels == len(expired) > 0 else None

    def ends(self) -> bool:
        """Stop the clock. Return whether the environment has to be closed."""
        self._duration = self._timer.spent_s
        close = getattr(self._environment, "close", None)
        return getattr(close, "__func__", None) not in _NO_OP_CLOSES

    async def close(self) -> None:
        """Close the environment. A failure is recorded, and does not fail the rollout."""
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S) as timeout:
                await self._environment.close()
        except TimeoutError as error:
            late = TimeoutError(f"the environment did not close within {_CLOSE_TIMEOUT_S:g} s")
            self._close_error = describe_error(late if timeout.expired() else error)
        except _ROLLOUT_ERRORS as error:
            if self.is_cancelled(error):
                raise
            self._close_error = describe_error(_to_exception(error, _ENVIRONMENT))

    async def _run_with_time_limit(self, turns: Coroutine[Any, Any, None], seconds: float) -> None:
        try:
            async with self._timer.limit_time(seconds, name="max_seconds") as timeout:
                await turns
        except TimeoutError:
            if not timeout.expired():
                raise
            self.ended, self._truncated = "max_seconds", True

    async def _run_turns(self, seed: int | None, sampling_seed: int | None) -> None:
        messages, environment = self._messages, self._environment
        if type(environment) is not BasicEnvironment:
            # Before opening, so that an episode that hangs there is recorded with its seed.
            self._session = describe_session(environment, seed)
        if (opening := await environment.open(seed=seed)) and not self.continues:
            messages.extend(check_items(Message, opening, "open"))
        if self._session is not None:
            self._session = describe_session(environment, seed)
        if tools := environment.tools:
            tools = check_items(ToolSpec, tools, "tools")
            # Recorded, since the tools are part of the prompt.
            self._tools = [spec.model_dump(mode="json", exclude_defaults=True) for spec in tools]
            self.boundary, self._checking = _ENDPOINT, True
            await check_tools(self._client, tools)
            self._checking = False
        yielded_at = self._timer.began_at
        while not self.ended:
            if self._steps and time.perf_counter() - yielded_at > _YIELD_INTERVAL_S:
                # Where neither side awaits, nothing else would run: no timeout, no other rollout.
                await asyncio.sleep(0)
                yielded_at = time.perf_counter()
                if self._timer.list_expired_limits():
                    # The environment swallowed the cancellation of a limit.
                    raise asyncio.CancelledError
            self.boundary = _ENDPOINT
            try:
                reply = await self._client.complete(messages, tools=tools or (), seed=sampling_seed)
            except EndpointError as error:
                # Before the first answer there is nothing to score, so it is an error.
                if not self._calls or not is_context_length_error(error):
                    raise
                self.ended, self._truncated = _CONTEXT_FULL, True
                return
            action = reply.message
            call = reply.call
            if call.message_index != len(messages):
                call = call.model_copy(update={"message_index": len(messages)})
            self._calls.append(call)
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
            # A truncated answer is not the agent's decision to end, and no further one fits.
            self.ended, self._terminated, self._truncated = _CONTEXT_FULL, False, True
        if self.ended:
            return
        if self._budget is None:
            self._budget = RolloutBudget(self._limits, self._timer)
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
            # A call as one line of text: `move({"direction":"left"})`.
            return [
                f"{call.name}({call.raw_arguments})"
                if call.malformed
                else f"{call.name}({to_json(call.arguments, inf_nan_mode='constants').decode()})"
                for action, _, _ in self._steps
                for call in action.tool_calls
            ]
        # Without tools, the environment acts on the text of each message.
        return [action.text for action, step, _ in self._steps if step.was_taken]

    def _count_steps(self) -> int:
        return sum(step.was_taken for _, step, _ in self._steps)

    def _build_result(self, reason: str, *, broken: bool) -> EvaluateResult:
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
        final_info, error = None, None
        if self._terminated:
            info = self._steps[-1][2]
            # An answer that ends an episode without being a step of it has no info.
            final_info = info if info or (outputs and outputs[-1].terminated) else None
        if unknown:
            first, more = self._rewards.unknown[0], len(unknown) - 1
            others = f" and of {more} more steps" if more else ""
            error = f"the reward of step {first}{others} is unknown, and so is the total"
        # The rewards of a failed episode do not measure the agent.
        score = None if broken else self._rewards.total
        return EvaluateResult(
            score=score,
            is_score_valid=score is not None,
            reason=reason,
            error=error,
            step_outputs=outputs,
            final_control_plane_info=final_info,
            trajectory_info={
                "duration": self._duration,
                "steps": self._count_steps(),
                "termination_reason": reason,
            },
        )
