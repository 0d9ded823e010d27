"""The limits of a session or of a run, and the spending against them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from assay.errors import ConfigError
from assay.providers import UsageTotals
from assay.types import Usage

RUN_LIMIT = "run_limits."
"""The start of the name of a limit that a session shares with the others of its run."""


@dataclass(frozen=True, kw_only=True)
class GatewayLimits:
    """Limits of one session. None: no limit."""

    max_turns: int | None = None
    """Answers of the model, those of subagents and summaries included, but no titles."""

    max_tokens: int | None = None
    """Tokens read and written, over all calls."""

    max_seconds: float | None = None
    """From the start of the session."""

    max_cost_usd: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_turns", "max_tokens", "max_seconds", "max_cost_usd"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (number and 0 < value < float("inf")):
                raise ConfigError(
                    f"{name}={value!r} is not a number above 0", where=type(self).__name__
                )


class CallSpending:
    """The turns, tokens and dollars that a session or a run has spent."""

    def __init__(self, limits: GatewayLimits) -> None:
        self.run: CallSpending | None = None
        """The spending of the whole run, which a session adds to and whose limits it obeys."""

        self._limits = limits
        self._started = time.monotonic()
        self._turns = 0
        self._in_flight = 0
        self.totals = UsageTotals()

    @property
    def left_s(self) -> float | None:
        """Seconds until the time limit. None: no limit."""
        most = self._limits.max_seconds
        return None if most is None else most - (time.monotonic() - self._started)

    @property
    def asked_turns(self) -> int:
        """Turns that were answered or are in flight."""
        return self._turns + self._in_flight

    @contextmanager
    def reserve_turn(self, turns: int) -> Iterator[None]:
        """Count a call as a turn while the block runs: calls may come at the same time."""
        self._in_flight += turns
        try:
            with nullcontext() if self.run is None else self.run.reserve_turn(turns):
                yield
        finally:
            self._in_flight -= turns

    def add(self, usage: Usage | None, *, is_turn: bool = True) -> None:
        """Count one more answer."""
        self._turns += is_turn
        self.totals.add(usage)
        if self.run is not None:
            self.run.add(usage, is_turn=is_turn)

    def find_limit(self, *, is_turn: bool = True) -> str | None:
        """Return the name of the limit that allows no further call, or None.

        A limit of turns does not apply to titles and probes.
        """
        limits = self._limits
        if self.left_s is not None and self.left_s <= 0:
            return "max_seconds"
        spent = self.totals.find_limit(
            max_tokens=limits.max_tokens, max_cost_usd=limits.max_cost_usd
        )
        if spent is not None:
            return spent
        if is_turn and limits.max_turns is not None and self.asked_turns >= limits.max_turns:
            return "max_turns"
        of_run = None if self.run is None else self.run.find_limit(is_turn=is_turn)
        return None if of_run is None else f"{RUN_LIMIT}{of_run}"
