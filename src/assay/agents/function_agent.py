"""An agent that is a function from a sample to text, messages or a trajectory."""

import asyncio
import contextvars
import functools
import inspect
import time
from collections.abc import Callable
from typing import Any, TypeVar

from assay.errors import ConfigError
from assay.providers import CallThreads
from assay.types import Sample, Trajectory, compute_code_sha256, describe_error

from .agent import Agent, AgentFault, RunContext
from .agent_answer import build_trajectory
from .agent_thread import AgentLoop
from .identity import describe_globals, identify

_Value = TypeVar("_Value")

# Threads of blocking functions. A sample that finds none waits, which its time limit excludes.
_MAX_AGENT_THREADS = 1000


class FunctionAgent:
    """Calls a function in a thread; an async one runs in the event loop of another thread.

    The function takes the sample, and the `RunContext` if it has a second parameter.
    """

    def __init__(
        self,
        function: Callable[..., object],
        name: str | None = None,
        *,
        identity: str | None = None,
    ) -> None:
        self.name = name or name_function(function)
        self.identity = identity or f"{self.name} {identify(function)}"
        # Now: a cache that the function fills is empty when the run is resumed.
        self.globals = describe_globals(function)
        """Digests of the module-level constants and functions that the function uses."""
        self._function = function
        self._takes_context = _check_signature(function, self.name)
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004  # an instance with async __call__
        )
        self._loop = AgentLoop()
        self._threads: dict[asyncio.AbstractEventLoop, CallThreads] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Threads and loops stay behind: a worker that gets a copy of the agent has its own.
        return {**vars(self), "_loop": AgentLoop(), "_threads": {}}

    @property
    def uses_gateway(self) -> bool:
        """Whether the function can know the address of a gateway."""
        return self._takes_context

    @functools.cached_property
    def sha256(self) -> str | None:
        """The digest of the file that defines the function."""
        return compute_code_sha256(self._function)

    async def run(self, sample: Sample, context: RunContext) -> Trajectory:
        """Call the function and return its result as a trajectory."""
        arguments = (sample, context) if self._takes_context else (sample,)
        if self._is_async:
            awaitable: Any = self._function(*arguments)
            value, seconds = await self._loop.run(awaitable)
        else:
            value, seconds = await self._call_in_thread(arguments)
            if inspect.isawaitable(value):
                value, longer = await self._loop.run(value)
                seconds += longer
        if isinstance(value, str):
            return build_trajectory(value, context, seconds)
        # Conversion runs code of the returned objects, and may take long for large ones.
        convert = functools.partial(build_trajectory, value, context, seconds)
        return await self._run_in_thread(convert)

    async def _call_in_thread(self, arguments: tuple[object, ...]) -> tuple[object, float]:
        # Threads start with an empty context; functions may read the variables of their caller.
        variables = contextvars.copy_context()

        def call() -> tuple[object, float]:
            started = time.perf_counter()
            try:
                value = variables.run(self._function, *arguments)
            except Exception:
                raise
            except BaseException as error:
                # An exit of the function must not end the run.
                raise AgentFault(describe_error(error)) from error
            return value, time.perf_counter() - started

        return await self._run_in_thread(call)

    async def _run_in_thread(self, work: Callable[[], _Value]) -> _Value:
        # A pool serves one event loop; evaluations in several threads may share the agent.
        loop = asyncio.get_running_loop()
        if (pool := self._threads.get(loop)) is None:
            pool = self._threads[loop] = CallThreads(_MAX_AGENT_THREADS, role="agent")
        return await pool.run(work)

    async def close(self) -> None:
        """Stop the threads."""
        while self._threads:
            self._threads.popitem()[1].close()
        self._loop.close()


class ObjectAgent(FunctionAgent):
    """Calls `run` of an object with `name` and `identity` as a function is called.

    For objects whose `run` blocks, or takes the sample alone.
    """

    def __init__(self, wrapped: Agent) -> None:
        super().__init__(wrapped.run, wrapped.name, identity=wrapped.identity)
        self._wrapped = wrapped

    async def close(self) -> None:
        """Stop the threads, and close the object if it can be closed."""
        await super().close()
        close = getattr(self._wrapped, "close", None)
        if close is not None and inspect.isawaitable(closing := close()):
            await closing


def name_function(function: object) -> str:
    """Return the name of a function in reports: `module:function`."""
    named = function if hasattr(function, "__qualname__") else type(function)
    if isinstance(function, functools.partial):
        named = function.func
    module = getattr(named, "__module__", None) or ""
    return f"{module}:{getattr(named, '__qualname__', type(named).__name__)}"


def _check_signature(function: Callable[..., object], name: str) -> bool:
    """Return whether a function takes the context. Raises `ConfigError` if it takes no sample."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False  # some built-in functions have no signature
    for count in (1, 2):
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        # A second parameter with a default is the function's own, unless it is the context.
        return count == 2 or "context" in list(signature.parameters)[1:2]
    raise ConfigError(
        f"the agent {name} cannot be called with a sample: its parameters are {signature}",
        hint="write a function of one parameter, the sample, or of two: sample and context",
    )
