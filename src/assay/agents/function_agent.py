"""An agent that is a function from a sample to text, messages or a trajectory."""

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError

from assay.types import Message, Sample, Trajectory, compute_code_sha256, describe_error

from .agent_thread import AgentLoop
from .certified_agent import AgentAnswer, AgentFault, strip_expected_answer


class FunctionAgent:
    """Calls a function in a thread; an async one runs in the loop of another thread."""

    def __init__(self, function: Callable[..., object], name: str) -> None:
        self.name = name
        self.sha256 = compute_code_sha256(function)
        self.identity = f"{name} {self.sha256}"
        self._function = function
        self._loop = AgentLoop()

    async def answer(self, sample: Sample, *, seed: int | None) -> AgentAnswer:
        """Call the function and return its result as a trajectory."""
        question = strip_expected_answer(sample)
        if inspect.iscoroutinefunction(self._function):
            value, seconds = await self._loop.run(self._function(question))
        else:
            value, seconds = await _call_in_thread(self._function, question)
            if inspect.isawaitable(value):
                value, longer = await self._loop.run(value)
                seconds += longer
        return AgentAnswer(build_trajectory(value, sample, seconds), seconds)

    async def close(self) -> None:
        """Stop the thread of async functions."""
        self._loop.close()


async def _call_in_thread(
    function: Callable[..., object], question: Sample
) -> tuple[object, float]:
    # A daemon thread, not an executor: a function that never returns must not block the exit of
    # the process, and an executor joins its threads.
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[object, float]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: object, seconds: float, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result((value, seconds))
        else:
            done.set_exception(error)

    def work() -> None:
        started, value = time.perf_counter(), None
        error: BaseException | None = None
        try:
            value = context.run(function, question)
        except BaseException as caught:
            # StopIteration cannot be put into a future; an exit must not end the run.
            error = AgentFault(describe_error(caught))
            error.__cause__ = caught
        seconds = time.perf_counter() - started
        try:
            loop.call_soon_threadsafe(settle, value, seconds, error)
        except RuntimeError:
            return  # the event loop was closed before the call returned

    threading.Thread(target=work, name="assay-agent", daemon=True).start()
    return await done


def build_trajectory(value: object, sample: Sample, seconds: float) -> Trajectory:
    """Convert the return value of an agent to a trajectory.

    Raises `AgentFault` if it is not an answer.
    """
    if isinstance(value, Trajectory):
        return _prepend_prompt(value, sample)
    if isinstance(value, str):
        answer: list[Message] = [Message(role="assistant", content=value)]
    elif isinstance(value, Message | dict):
        answer = _validate_messages([value])
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray) and value:
        answer = _validate_messages(value)
    else:
        kind = "None" if value is None else f"a {type(value).__name__}"
        raise AgentFault(f"the agent returned {kind}", hint="return text, messages or a Trajectory")
    prompt = sample.messages
    # Agents may return the whole conversation or only the part after the prompt.
    whole = prompt and len(answer) > len(prompt) and _messages_match(answer[: len(prompt)], prompt)
    return Trajectory(
        messages=answer if whole else [*prompt, *answer],
        duration=seconds,
        terminated=True,
        termination_reason="agent",
    )


def _prepend_prompt(trajectory: Trajectory, sample: Sample) -> Trajectory:
    # The question must be in the trajectory: an agent cannot replace it with an easier one.
    if not trajectory.messages:
        raise AgentFault("the agent returned a trajectory without messages")
    left = list(sample.messages)
    for message in trajectory.messages:
        if left and _messages_match([message], left[:1]):
            left.pop(0)
    if not left:
        return trajectory
    return trajectory.model_copy(update={"messages": [*sample.messages, *trajectory.messages]})


def _validate_messages(values: Sequence[Any]) -> list[Message]:
    try:
        return [
            each if isinstance(each, Message) else Message.model_validate(each) for each in values
        ]
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise AgentFault(f"the agent returned an invalid message: {first['msg']}") from None


def _messages_match(some: Sequence[Message], others: Sequence[Message]) -> bool:
    return all(
        one.role == other.role and one.text == other.text
        for one, other in zip(some, others, strict=True)
    )
