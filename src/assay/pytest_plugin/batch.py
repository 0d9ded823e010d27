"""Functions that judge several results in one call: all of a test, or all of one sample."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from assay.errors import ScorerFault
from assay.providers import CallThreads
from assay.scorers import read_outcome
from assay.types import EvaluateResult, Sample

from .scorer_call import UserFunction

ResultKey = tuple[str | None, str, str | None]
"""Endpoint, sample, rollout: one result of a test."""

# The bound for synchronous functions, whatever `concurrency` allows.
_MAX_BATCH_THREADS = 32
_WAKE_INTERVAL_S = 0.2


@dataclass(frozen=True)
class GroupMember:
    """One result of a group."""

    endpoint: str | None
    sample: Sample

    @property
    def key(self) -> ResultKey:
        return self.endpoint, self.sample.id, self.sample.rollout_id

    @property
    def repeat(self) -> str:
        return (self.sample.rollout_id or "").removeprefix(f"{self.sample.id}#")


@dataclass(frozen=True)
class GroupResults:
    """The result that a function returned for each member, or its exception."""

    results: dict[ResultKey, EvaluateResult | Exception]

    def of(self, endpoint: str | None, sample: Sample) -> EvaluateResult:
        """Return a result, or raise the exception of the function as a scorer would."""
        found = self.results[GroupMember(endpoint, sample).key]
        if isinstance(found, Exception):
            raise found
        return found


def iterate_members(endpoint: str | None, samples: Iterable[Sample]) -> Iterator[GroupMember]:
    """Yield the samples that did not fail, without their placeholder scores."""
    for sample in samples:
        if sample.failure is None:
            # The placeholder of the rollout must not look like an earlier score.
            sample.score = None
            if endpoint is not None:
                sample.metadata["endpoint"] = endpoint
            yield GroupMember(endpoint, sample)


def group_members(
    found: Iterable[GroupMember], key: Callable[[GroupMember], str]
) -> list[list[GroupMember]]:
    """Group members by a key, in the order of their first member."""
    groups: dict[str, list[GroupMember]] = {}
    for member in found:
        groups.setdefault(key(member), []).append(member)
    return list(groups.values())


def judge_groups(
    function: UserFunction, groups: Sequence[list[GroupMember]], *, concurrency: int
) -> GroupResults:
    """Call the function once for each group. One that fails costs the results of its group.

    A failed assertion is a verdict on every result of its group: a score of 0.0.
    """
    if inspect.iscoroutinefunction(function.function):
        return asyncio.run(judge_groups_in_loop(function, groups, concurrency=concurrency))
    most = min(_MAX_BATCH_THREADS, concurrency)
    returned = asyncio.run(_call_in_threads(function, groups, most))
    return _collect_results(function, groups, returned)


async def _call_in_threads(
    function: UserFunction, groups: Sequence[list[GroupMember]], most: int
) -> list[object]:
    # Not in an executor: Ctrl-C, and the exit of the process, would wait for a call that blocks.
    threads = CallThreads(most, role="scorer")
    ticks = asyncio.create_task(_wake_loop())
    try:
        calls = (threads.run(partial(_call_with_group, function, group)) for group in groups)
        return await asyncio.gather(*calls)
    finally:
        ticks.cancel()
        threads.close()


async def _wake_loop() -> None:
    # A signal that another thread receives, such as one of these calls, does not wake the loop.
    while True:
        await asyncio.sleep(_WAKE_INTERVAL_S)


async def judge_groups_in_loop(
    function: UserFunction, groups: Sequence[list[GroupMember]], *, concurrency: int
) -> GroupResults:
    """Call an async function once for each group, in the running event loop."""
    slots = asyncio.Semaphore(concurrency)

    async def judge(group: list[GroupMember]) -> object:
        async with slots:
            value = _call_with_group(function, group)
            try:
                return await value if isinstance(value, Awaitable) else value
            except Exception as error:
                return error

    return _collect_results(function, groups, await asyncio.gather(*map(judge, groups)))


def _call_with_group(function: UserFunction, group: list[GroupMember]) -> object:
    # An exception is returned: it is the result of this group, and the others continue.
    try:
        return function.score_group(
            [member.sample for member in group], [member.endpoint for member in group]
        )
    except Exception as error:
        return error


def _collect_results(
    function: UserFunction, groups: Sequence[list[GroupMember]], returned: Sequence[object]
) -> GroupResults:
    results: dict[ResultKey, EvaluateResult | Exception] = {}
    for group, value in zip(groups, returned, strict=True):
        ids = {member.sample.id for member in group}
        if isinstance(value, AssertionError):
            judged = next(iter(ids)) if len(ids) == 1 else f"all {len(group)} in one call"
            verdict = function.assertions.add(judged, value, is_sample=len(ids) == 1)
            results |= {member.key: verdict for member in group}
        elif isinstance(value, Exception):
            results |= {member.key: value for member in group}
        elif not isinstance(value, list | tuple) or len(value) != len(group):
            kind = "None" if value is None else f"a {type(value).__name__}"
            found = len(value) if isinstance(value, list | tuple) else kind
            fault = ScorerFault(
                f"the function was called with {len(group)} samples and returned {found}, not a "
                f"list of {len(group)} results"
            )
            results |= {member.key: fault for member in group}
        else:
            values = list(value)
            # Rollouts of one sample share its id: their order is restored by object identity.
            own = {id(member.sample): position for position, member in enumerate(group)}
            if len(ids) == 1 and {*map(id, values)} == own.keys():
                values.sort(key=lambda each: own[id(each)])
            for member, each in zip(group, values, strict=True):
                try:
                    if isinstance(each, Sample) and each.id != member.sample.id:
                        raise ScorerFault(
                            f"the function returned sample {each.id!r} in the place of "
                            f"{member.sample.id!r}"
                        )
                    results[member.key] = read_outcome(each)
                except ScorerFault as error:
                    results[member.key] = error
    return GroupResults(results)
