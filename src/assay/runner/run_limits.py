"""The limits of a whole run, which hold for every model call of its agents."""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.errors import ConfigError, RunStopped
from assay.gateway import CallSpending, GatewayLimits
from assay.providers import ClientWrapper, ModelClient, Reply
from assay.stats import format_plural
from assay.types import Message, ToolSpec, Trajectory, Usage

from .sample_cost import compute_trajectory_cost


@dataclass(frozen=True, kw_only=True)
class RunLimits(GatewayLimits):
    """Limits of a whole run, over all its samples. None: no limit.

    At a limit, model calls are refused, also those of samples in flight, and no sample starts.
    Each limit counts from the start of the run, and from 0 again when it is resumed.
    """

    max_turns: int | None = None
    """Answers of the model, those of subagents and summaries included, but no titles."""

    max_tokens: int | None = None
    """Tokens read and written, over all calls."""

    max_seconds: float | None = None
    """Time on the clock. Samples in flight are cancelled at the limit."""

    max_cost_usd: float | None = None
    """Cost of all calls. `EvalConfig.max_cost_usd` lets samples in flight finish instead."""


class RunSpending(CallSpending):
    """The turns, tokens, dollars and seconds that a run has spent."""

    def __init__(self, limits: RunLimits) -> None:
        super().__init__(limits)
        self._run_limits = limits

    def find_error(self) -> RunStopped | None:
        """Return the error that ends the run once a limit is reached, or None."""
        limit = self.find_limit()
        return None if limit is None else self.build_error(limit)

    def build_error(self, limit: str) -> RunStopped:
        """Build the error that ends a run at a limit, such as `max_turns`."""
        name, _, unknown = limit.partition(" ")
        value = getattr(self._run_limits, name)
        most = f"{value:g}" if isinstance(value, float) else str(value)
        hint = "resume the run with a higher limit, which counts from 0 again"
        if unknown:
            amount = "usage" if name == "max_tokens" else "cost"
            reason = f"the {amount} of a model call is unknown, so the limit cannot be enforced"
            hint = "remove the limit and resume the run"
        elif name == "max_seconds":
            reason = "the time is over"
        elif name == "max_turns":
            reason = f"its agents asked for {format_plural(self.asked_turns, 'turn')}"
        elif name == "max_tokens":
            reason = f"its model calls took {self.totals.tokens:,} tokens"
        else:
            reason = f"its model calls cost ${self.totals.cost_usd:.4f}"
        return RunStopped(f"the run was stopped by run_limits.{name}={most}: {reason}", hint=hint)

    def add_reported(self, trajectory: Trajectory, *, has_client: bool) -> None:
        """Count the calls of a rollout that were not counted when they were answered."""
        for call in trajectory.calls:
            # Calls at the gateway have a wire, those through the client of the run an exchange.
            is_counted = call.wire is not None or "exchange" in (call.model_extra or {})
            if not is_counted and call.error is None:
                self.add(call.usage)
        if not has_client and not trajectory.calls:
            self.add(Usage(cost_usd=compute_trajectory_cost(trajectory)), is_turn=False)


class LimitedClient(ClientWrapper):
    """A model client that raises `RunStopped` instead of calling the model after a limit."""

    def __init__(self, client: ModelClient, spending: RunSpending) -> None:
        super().__init__(client)
        self._spending = spending

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        seed: int | None = None,
    ) -> Reply:
        """Return the model's next message. Raises `RunStopped` after a limit of the run."""
        if (stopped := self._spending.find_error()) is not None:
            raise stopped
        with self._spending.reserve_turn(1):
            reply = await super().complete(messages, tools=tools, seed=seed)
            self._spending.add(reply.call.usage)
            return reply


def refuse_shared_limits(limits: RunLimits | None, *, where: str) -> None:
    """Raise `ConfigError` for limits of a run that several processes execute."""
    if limits is not None:
        raise ConfigError(
            "`run_limits` cannot be enforced over several processes",
            where=where,
            hint="execute the run in one process, or limit its cost with `max_cost_usd`, which all "
            "processes share",
        )
