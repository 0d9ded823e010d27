"""Gymnasium environments by name: `gym:FrozenLake-v1`."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic_core import to_json

from assay.errors import ConfigError, EnvironmentFault, MissingExtra
from assay.types import Message, ToolCall, ToolSpec

from .environment import Step
from .tools import echoed, not_an_object

Formatter = Callable[[Any, Mapping[str, Any]], str]
"""From an observation and its info to the words the agent reads."""

_ACTION_NAMES = {
    "CliffWalking": ("up", "right", "down", "left"),
    "FrozenLake": ("left", "down", "right", "up"),
    "FrozenLake8x8": ("left", "down", "right", "up"),
    "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
}
"""Gymnasium numbers its actions; a model does better with words. Its own environments only: one
of the same name in another's namespace may mean something else by them."""


class GymEnvironment:
    """A Gymnasium environment with one tool, `act`. Each call of it is one step."""

    def __init__(
        self,
        name: str,
        *,
        options: Mapping[str, Any] | None = None,
        formatter: Formatter | None = None,
        action_names: Sequence[str] | None = None,
    ) -> None:
        self._gym = _made(name, dict(options or {}))
        self._format = formatter or self._shown
        self._start, self._count = _discrete(self._gym.action_space, name)
        known = _ACTION_NAMES.get(name.partition("-")[0], ())
        self._names = tuple(action_names or (known if len(known) == self._count else ()))
        if self._names and len(self._names) != self._count:
            raise ConfigError(
                f"{len(self._names)} action names for {self._count} actions",
                where=f"gym:{name}",
            )
        self.tools: Sequence[ToolSpec] = (self._tool(name),)
        self._opened = False
        self._over = False

    def _tool(self, name: str) -> ToolSpec:
        return ToolSpec(
            name="act",
            description=f"Take one step in {name}.",
            parameters={
                "type": "object",
                "properties": {"action": self._action_schema()},
                "required": ["action"],
            },
        )

    def _action_schema(self) -> dict[str, Any]:
        if self._names:
            return {"type": "string", "enum": list(self._names)}
        if self._count:
            last = self._start + self._count - 1
            return {"type": "integer", "minimum": self._start, "maximum": last}
        space = self._gym.action_space
        return {
            "type": "array",
            "items": {"type": "number" if space.dtype.kind == "f" else "integer"},
            "description": f"An element of {space}",
        }

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        if self._opened:
            raise EnvironmentFault("it is single-use, and was used", hint="make another")
        self._opened = True
        observation, info = self._gym.reset(seed=seed)
        return (Message(role="user", content=self._format(observation, info)),)

    async def step(self, action: Message) -> Step:
        if not action.tool_calls:
            words = "Nothing happened: use the tool `act` to take a step."
            reply = Message(role="user", content=words)
            return Step(replies=(reply,), reward=0.0, acted=False)
        replies: list[Message] = []
        # An agent that takes no step gets nothing for it, which is not to be left unjudged.
        reward = 0.0
        last = Step(acted=False)
        for call in action.tool_calls:
            words, step = self._one(call)
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

    def _one(self, call: ToolCall) -> tuple[str, Step | None]:
        """One step of the gym; a mistake of the agent takes none."""
        if self._over:
            return "The episode is over.", None
        if call.name != "act":
            return f"Error: there is no tool {echoed(call.name)}; use 'act'", None
        if call.malformed:
            return f"Error: {not_an_object(call)}", None
        try:
            chosen = self._chosen(call.arguments.get("action"))
        except ValueError as mistake:
            return f"Error: {mistake}", None
        observation, reward, terminated, truncated, info = self._gym.step(chosen)
        self._over = bool(terminated or truncated)
        step = Step(
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated),
            info={"reward": float(reward), **_plain(info)},
            observation=_plain(observation),
        )
        return self._format(observation, info), step

    def _chosen(self, action: object) -> Any:
        """The gym's own action for what the agent asked. Raises `ValueError` for a mistake."""
        if self._names:
            if action not in self._names:
                raise ValueError(f"{echoed(action)} is no action; choose from {list(self._names)}")
            return self._start + self._names.index(str(action))
        if self._count:
            if isinstance(action, bool) or not isinstance(action, int):
                raise ValueError(f"{echoed(action)} is no action; give a whole number")
            if not self._start <= action < self._start + self._count:
                last = self._start + self._count - 1
                raise ValueError(f"{echoed(action)} is no action; choose {self._start} to {last}")
            return action
        return self._array(action)

    def _array(self, action: object) -> Any:
        import numpy as np

        space = self._gym.action_space
        mistake = ValueError(f"{echoed(action)} is no element of {space}")
        try:
            with np.errstate(all="ignore"):
                asked = np.asarray(action, dtype=float).reshape(space.shape)
                chosen = np.asarray(action, dtype=space.dtype).reshape(space.shape)
        except (TypeError, ValueError, OverflowError) as error:
            raise mistake from error
        # Made into whole numbers, 1.9 would be 1; as 32 bits, 1e39 is an infinity.
        kept = np.isfinite(chosen) if space.dtype.kind == "f" else chosen == asked
        if not kept.all() or not space.contains(chosen):
            raise mistake
        return chosen

    def _shown(self, observation: Any, info: Mapping[str, Any]) -> str:
        words = f"Observation: {to_json(_plain(observation)).decode()}"
        if self._gym.render_mode == "ansi":
            words += f"\n{_without_colours(self._gym.render())}"
        return words

    async def close(self) -> None:
        self._gym.close()


def _without_colours(text: str) -> str:
    """A drawing for a reader without a terminal: what was highlighted stands in brackets."""
    marked = re.sub(r"\x1b\[(?:4[0-7]|7)m(.*?)\x1b\[0m", r"[\1]", text)
    return re.sub(r"\x1b\[[0-9;]*m", "", marked)


def registered(name: str) -> Any:
    """What makes the Gymnasium environment of this name. Raises `ConfigError` without one."""
    try:
        import gymnasium
        from gymnasium.envs.registration import load_env_creator
    except ModuleNotFoundError as error:
        raise MissingExtra.needed("gym", by=f"gym:{name}", package="gymnasium") from error
    try:
        entry_point = gymnasium.spec(name).entry_point
    except gymnasium.error.Error as error:
        raise ConfigError(
            str(error), where=f"gym:{name}", hint="`gymnasium.registry` lists the names"
        ) from error
    try:
        return load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    except Exception as error:
        raise _not_made(name, error) from error


def _made(name: str, options: dict[str, Any]) -> Any:
    creator = registered(name)
    import gymnasium

    metadata = getattr(creator, "metadata", None)
    modes = metadata.get("render_modes") if isinstance(metadata, Mapping) else None
    drawn = {"render_mode": "ansi"} if "ansi" in (modes or ()) else {}
    try:
        return gymnasium.make(name, **drawn | options)
    except Exception as error:
        raise _not_made(name, error, hint="check its `options`" if options else None) from error


def _not_made(name: str, error: Exception, hint: str | None = None) -> ConfigError:
    """Whatever it is that an environment raises, which is anybody's code."""
    what = f"it cannot be made: {type(error).__name__}: {error}"
    return ConfigError(what, where=f"gym:{name}", hint=hint)


def _discrete(space: Any, name: str) -> tuple[int, int]:
    """First action and number of actions; 0 of them for a space that is an array of numbers."""
    if type(space).__name__ == "Discrete":
        return int(space.start), int(space.n)
    if space.dtype is None or space.dtype.kind not in "biuf":
        raise ConfigError(
            f"its actions are elements of {space}, not numbers or an array of them",
            where=f"gym:{name}",
            hint="wrap it: an agent chooses from Discrete, Box, MultiDiscrete or MultiBinary",
        )
    return 0, 0


def _plain(value: Any) -> Any:
    """Gymnasium's arrays and scalars as plain JSON values."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    return value if isinstance(value, str | int | float | bool | None) else str(value)
