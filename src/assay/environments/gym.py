"""Gymnasium environments by name: `gym:FrozenLake-v1`."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic_core import to_json

from assay.errors import ConfigError, EnvironmentFault, MissingExtra
from assay.types import Message, ToolCall, ToolSpec

from .environment import Step
from .tools import describe_malformed_call, quote_briefly

Formatter = Callable[[Any, Mapping[str, Any]], str]
"""Formats an observation and its info as text for the agent."""

# Gymnasium numbers its actions; models do better with words. Only for its own environments:
# one of the same name in another namespace may number its actions differently.
_ACTION_NAMES = {
    "CliffWalking": ("up", "right", "down", "left"),
    "FrozenLake": ("left", "down", "right", "up"),
    "FrozenLake8x8": ("left", "down", "right", "up"),
    "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
}


class GymEnvironment:
    """A Gymnasium environment with one tool, `act`. Each call is one step."""

    def __init__(
        self,
        name: str,
        *,
        options: Mapping[str, Any] | None = None,
        formatter: Formatter | None = None,
        action_names: Sequence[str] | None = None,
    ) -> None:
        self._gym = _make_gym(name, dict(options or {}))
        self._format = formatter or self._format_observation
        space = self._gym.action_space
        # The first action and the number of actions; 0 actions for arrays of numbers.
        self._start, self._count = 0, 0
        if type(space).__name__ == "Discrete":
            self._start, self._count = int(space.start), int(space.n)
        elif space.dtype is None or space.dtype.kind not in "biuf":
            raise ConfigError(
                f"the actions are elements of {space}, not numbers or an array of them",
                where=f"gym:{name}",
                hint="wrap the environment: supported are Discrete, Box, MultiDiscrete and "
                "MultiBinary",
            )
        known = _ACTION_NAMES.get(name.partition("-")[0], ())
        # Only if the counts agree: options may change the actions of an environment.
        self._names = tuple(action_names or (known if len(known) == self._count else ()))
        if self._names and len(self._names) != self._count:
            raise ConfigError(
                f"`action_names` has {len(self._names)} names for {self._count} actions",
                where=f"gym:{name}",
            )
        if self._names:
            schema: dict[str, Any] = {"type": "string", "enum": list(self._names)}
        elif self._count:
            last = self._start + self._count - 1
            schema = {"type": "integer", "minimum": self._start, "maximum": last}
        else:
            space = self._gym.action_space
            schema = {
                "type": "array",
                "items": {"type": "number" if space.dtype.kind == "f" else "integer"},
                "description": f"An element of {space}",
            }
        parameters = {"type": "object", "properties": {"action": schema}, "required": ["action"]}
        act = ToolSpec(name="act", description=f"Take one step in {name}.", parameters=parameters)
        self.tools: Sequence[ToolSpec] = (act,)
        self._opened = False
        self._over = False

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        if self._opened:
            raise EnvironmentFault(
                "the environment is single-use and was already opened", hint="make another one"
            )
        self._opened = True
        observation, info = self._gym.reset(seed=seed)
        return (Message(role="user", content=self._format(observation, info)),)

    async def step(self, action: Message) -> Step:
        if not action.tool_calls:
            words = "Nothing happened: use the tool `act` to take a step."
            reply = Message(role="user", content=words)
            return Step(replies=(reply,), reward=0.0, acted=False)
        replies: list[Message] = []
        # An agent that takes no step earns 0.0: with None the episode would stay unscored.
        reward = 0.0
        last = Step(acted=False)
        for call in action.tool_calls:
            words, step = self._take_step(call)
            if step is not None:
                last = step
                reward += step.reward or 0.0
            replies.append(
                Message(role="tool", content=words, tool_call_id=call.id, name=call.name)
            )
        return Step(
            replies=tuple(replies),
            reward=reward,
            terminated=last.terminated,
            truncated=last.truncated,
            acted=last.acted,
            info=last.info,
            observation=last.observation,
        )

    def _take_step(self, call: ToolCall) -> tuple[str, Step | None]:
        """Take one step. A mistake of the agent is answered without a step."""
        if self._over:
            return "The episode is over.", None
        if call.name != "act":
            return f"Error: unknown tool {quote_briefly(call.name)}; use 'act'", None
        if call.malformed:
            return f"Error: {describe_malformed_call(call)}", None
        try:
            chosen = self._parse_action(call.arguments.get("action"))
        except ValueError as mistake:
            return f"Error: {mistake}", None
        observation, reward, terminated, truncated, info = self._gym.step(chosen)
        self._over = bool(terminated or truncated)
        step = Step(
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated),
            info={"reward": float(reward), **_to_plain_value(info)},
            observation=_to_plain_value(observation),
        )
        return self._format(observation, info), step

    def _parse_action(self, action: object) -> Any:
        """Convert an action of the agent to one of the gym. Raises `ValueError` for a mistake."""
        if self._names:
            if action not in self._names:
                raise ValueError(
                    f"{quote_briefly(action)} is not an action; choose from {list(self._names)}"
                )
            return self._start + self._names.index(str(action))
        if self._count:
            # A bool is an int in Python: `true` would silently be action 1.
            if isinstance(action, bool) or not isinstance(action, int):
                raise ValueError(f"{quote_briefly(action)} is not an action; give a whole number")
            if not self._start <= action < self._start + self._count:
                last = self._start + self._count - 1
                raise ValueError(
                    f"{quote_briefly(action)} is not an action; choose {self._start} to {last}"
                )
            return action
        import numpy as np

        space = self._gym.action_space
        # The agent sees one message for all causes: numpy would describe its own internals.
        mistake = ValueError(f"{quote_briefly(action)} is not an element of {space}")
        try:
            with np.errstate(all="ignore"):
                given = np.asarray(action, dtype=float).reshape(space.shape)
                chosen = np.asarray(action, dtype=space.dtype).reshape(space.shape)
        except (TypeError, ValueError, OverflowError) as error:
            raise mistake from error
        # The conversion is lossy: 1.9 becomes 1 as an integer, 1e39 an infinity as float32.
        exact = np.isfinite(chosen) if space.dtype.kind == "f" else chosen == given
        if not exact.all() or not space.contains(chosen):
            raise mistake
        return chosen

    def _format_observation(self, observation: Any, info: Mapping[str, Any]) -> str:
        words = f"Observation: {to_json(_to_plain_value(observation)).decode()}"
        if self._gym.render_mode != "ansi":
            return words
        # A model cannot see terminal colours: highlighted text is put in brackets instead.
        drawn = re.sub(r"\x1b\[(?:4[0-7]|7)m(.*?)\x1b\[0m", r"[\1]", self._gym.render())
        return words + "\n" + re.sub(r"\x1b\[[0-9;]*m", "", drawn)

    async def close(self) -> None:
        self._gym.close()


def find_gym_creator(name: str) -> Any:
    """Return the creator of a Gymnasium environment. Raises `ConfigError` for an unknown name."""
    try:
        import gymnasium
        from gymnasium.envs.registration import load_env_creator
    except ModuleNotFoundError as error:
        raise MissingExtra.build("gym", by=f"gym:{name}", package="gymnasium") from error
    try:
        entry_point = gymnasium.spec(name).entry_point
    except gymnasium.error.Error as error:
        raise ConfigError(
            str(error), where=f"gym:{name}", hint="see `gymnasium.registry` for the names"
        ) from error
    try:
        return load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    except Exception as error:
        raise _build_gym_error(name, error) from error


def _make_gym(name: str, options: dict[str, Any]) -> Any:
    creator = find_gym_creator(name)
    import gymnasium

    metadata = getattr(creator, "metadata", None)
    modes = metadata.get("render_modes") if isinstance(metadata, Mapping) else None
    # Text drawings are part of the observation; images cannot be sent as text.
    drawn = {"render_mode": "ansi"} if "ansi" in (modes or ()) else {}
    try:
        return gymnasium.make(name, **drawn | options)
    except Exception as error:
        raise _build_gym_error(name, error, hint="check `options`" if options else None) from error


def _build_gym_error(name: str, error: Exception, hint: str | None = None) -> ConfigError:
    # Third-party code: any exception is possible.
    message = f"the environment cannot be made: {type(error).__name__}: {error}"
    return ConfigError(message, where=f"gym:{name}", hint=hint)


def _to_plain_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _to_plain_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain_value(inner) for inner in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    return value if isinstance(value, str | int | float | bool | None) else str(value)
