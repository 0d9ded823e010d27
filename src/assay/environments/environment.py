"""The interface of environments, and the checks on their return values."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import dropwhile
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json

from assay.errors import EnvironmentFault
from assay.types import Message, ToolSpec

_ItemModel = TypeVar("_ItemModel", bound=BaseModel)
# Values of environments may be large arrays; messages show their beginning.
_MAX_REPR_CHARS = 100


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one exchange with an environment."""

    replies: tuple[Message, ...] = ()
    """The messages of the environment: results of tools, or text of a user."""

    reward: float | None = None
    """None if the environment gives no rewards, or has not given its first one. A None after a
    known reward means that this reward is unknown, and so is the total."""

    terminated: bool = False
    truncated: bool = False
    ended_by_agent: bool = False
    """Whether the answer of the agent ended the episode. The rollout then ends, even if the
    environment itself is neither terminated nor truncated."""

    acted: bool = True
    """False if the environment took no step, for example for an unknown tool: there was nothing to
    reward, and `reward=None` does not mean that a reward is unknown."""

    info: Mapping[str, Any] = field(default_factory=dict)
    """Data of the control plane, never shown to the agent. Recorded as JSON."""

    reason: str | None = None
    observation: Any = None
    """The current observation. Recorded as JSON, like `info`."""

    rewards: tuple[float | None, ...] = ()
    """The reward of each step, if the environment took several in one exchange; `reward` is then
    their `add_rewards`."""

    @property
    def was_taken(self) -> bool:
        """Whether this counts as a step of the environment. Any exchange with a reward does."""
        return self.acted or bool(self.reward)


@runtime_checkable
class Environment(Protocol):
    """One episode. Environments are single-use: make another one instead of a reset.

    `open` applies the seed (including 0) before the first observation. Mistakes of the agent are
    answered with a message; exceptions are faults of the environment. An environment may have a
    method `describe_session`: the dictionary that it returns is recorded as the session.
    """

    @property
    def tools(self) -> Sequence[ToolSpec]: ...

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        """Start the episode. Return the messages that follow the prompt."""
        ...

    async def step(self, action: Message) -> Step:
        """Answer a message of the agent."""
        ...

    async def close(self) -> None: ...


def check_step(given: object) -> Step:
    """Return the step with values of the declared types.

    Converts messages as dictionaries, numbers of numpy, and None for no messages. Other values
    raise `EnvironmentFault`: recorded, they would make the whole rollout unreadable. `info` and
    `observation` are left to `to_plain_info` and `to_plain_json`.
    """
    if not isinstance(given, Step):
        raise EnvironmentFault(
            f"`step` returned {_shorten_value(given)}, not a `Step`", hint="return a `Step`"
        )
    step: Any = given  # a dataclass does not enforce its annotations
    # The fast path, taken at nearly every turn.
    if (
        type(step.terminated) is bool
        and type(step.truncated) is bool
        and type(step.ended_by_agent) is bool
        and type(step.acted) is bool
        and (step.reason is None or type(step.reason) is str)
        and (step.reward is None or (type(step.reward) is float and math.isfinite(step.reward)))
        and step.rewards == ()
        and (step.replies == () or _is_sequence_of(Message, step.replies))
    ):
        return given
    if step.reason is not None and not isinstance(step.reason, str):
        raise EnvironmentFault(f"`Step.reason` is {_shorten_value(step.reason)}, not text")
    return replace(
        given,
        replies=tuple(check_items(Message, step.replies, "Step.replies")),
        reward=_check_step_reward(step.reward),
        rewards=tuple(map(_check_step_reward, step.rewards or ())),
        terminated=_check_step_flag(step.terminated, "terminated"),
        truncated=_check_step_flag(step.truncated, "truncated"),
        ended_by_agent=_check_step_flag(step.ended_by_agent, "ended_by_agent"),
        acted=_check_step_flag(step.acted, "acted"),
    )


def _is_sequence_of(kind: type[BaseModel], given: object) -> bool:
    return (type(given) is tuple or type(given) is list) and set(map(type, given)) <= {kind}


def check_items(kind: type[_ItemModel], given: object, what: str) -> Sequence[_ItemModel]:
    """Return the items of an environment as `kind`; dictionaries are validated.

    None is an empty sequence. Raises `EnvironmentFault` for anything else.
    """
    if _is_sequence_of(kind, given):
        return cast(Sequence[_ItemModel], given)
    if given is None:
        return ()
    # All three are iterable, but one of them in place of a sequence is a mistake.
    if isinstance(given, str | Mapping | BaseModel) or not isinstance(given, Iterable):
        raise EnvironmentFault(
            f"`{what}` is {_shorten_value(given)}, not a sequence",
            hint=f"return a sequence of `{kind.__name__}`",
        )
    items: list[_ItemModel] = []
    for each in given:
        try:
            items.append(each if isinstance(each, kind) else kind.model_validate(each))
        except ValidationError as error:
            raise EnvironmentFault(
                f"`{what}` contains {_shorten_value(each)}, which is not a `{kind.__name__}`"
            ) from error
    return tuple(items)


def describe_session(environment: Environment, seed: int | None) -> dict[str, Any]:
    """Return the description of a session for its rollout: plain JSON without secrets."""
    session: dict[str, Any] = {"environment": type(environment).__name__}
    if seed is not None:
        session["seed"] = seed
    describe = getattr(environment, "describe_session", None)
    return session if describe is None else {**session, **to_plain_info(describe())}


def _check_step_reward(given: Any) -> float | None:
    if given is None:
        return None
    try:
        # Not text: `float` would accept "nan" and "1_0".
        reward = math.nan if isinstance(given, str) else float(given)
    except (TypeError, ValueError, OverflowError):
        reward = math.nan
    if not math.isfinite(reward):
        raise EnvironmentFault(
            f"the reward is {_shorten_value(given)}, not a finite number",
            hint="return a finite number, or None",
        )
    return reward


class RewardSum:
    """The sum of the rewards of an episode, as long as all of them are known.

    An environment may give its first reward late, for example at the end. After that, a step
    without a reward makes the total unknown: it is never counted as 0.
    """

    __slots__ = ("known", "unknown")

    def __init__(self) -> None:
        self.known: float | None = None
        """The sum of the known rewards; None before the first one."""

        self.unknown: list[int] = []
        """The indices of the steps whose reward is unknown."""

    @property
    def total(self) -> float | None:
        return None if self.unknown else self.known

    def add(self, index: int, step: Step) -> None:
        """Add one step. Raises `EnvironmentFault` if the sum is not finite."""
        is_unknown = False
        for reward in step.rewards or (step.reward,):
            if reward is not None:
                self.known = (self.known or 0.0) + reward
                if not math.isfinite(self.known):
                    raise EnvironmentFault(f"the rewards add up to {self.known}")
            # Before the first known reward, and without a step, None does not mean unknown.
            elif self.known is not None and step.acted and not step.ended_by_agent:
                is_unknown = True
        if is_unknown:
            self.unknown.append(index)


def add_rewards(rewards: Sequence[float | None]) -> float | None:
    """Return the total reward of an exchange with several steps.

    None if no reward is known, or if one after the first known reward is unknown.
    """
    late = list(dropwhile(lambda reward: reward is None, rewards))
    known = [reward for reward in late if reward is not None]
    return sum(known) if known and len(known) == len(late) else None


def _check_step_flag(given: Any, name: str) -> bool:
    if given in (True, False):  # 0, 1 and the booleans of numpy too
        return bool(given)
    raise EnvironmentFault(f"`Step.{name}` is {_shorten_value(given)}, not a bool")


def to_plain_info(given: Any) -> dict[str, Any]:
    """Return a copy of a step's `info` as plain JSON; None is empty."""
    if not given:
        return {}
    if not isinstance(given, Mapping):
        raise EnvironmentFault(
            f"`Step.info` is {_shorten_value(given)}, not a dictionary", hint="return a dictionary"
        )
    try:
        info: dict[str, Any] = to_plain_json(given, "Step.info")
    except EnvironmentFault:
        # Once more per key: the error should name the one at fault.
        for key, value in given.items():
            to_plain_json({key: value}, f"Step.info[{key!r}]")
        raise
    return info


def to_plain_json(value: object, what: str) -> Any:
    """Return the value as JSON represents it: arrays are lists; NaN and infinities are None.

    Raises `EnvironmentFault` for values without a JSON form.
    """
    try:
        return from_json(to_json(value, inf_nan_mode="null", fallback=_convert_array))
    except Exception as error:
        problem = str(error).removeprefix("Error serializing to JSON: ")
        raise EnvironmentFault(
            f"`{what}` cannot be written as JSON: {problem}", hint="use plain values only"
        ) from error


def _convert_array(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()  # numpy, torch and other array libraries
    raise TypeError(f"{type(value).__name__} is not a plain value")


def _shorten_value(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _MAX_REPR_CHARS else f"{shown[:_MAX_REPR_CHARS]}…"
