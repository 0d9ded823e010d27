"""Functions that judge several results in one call: all of a test, or all of one sample."""

import asyncio
import inspect
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from assay.errors import ScorerFault
from assay.scorers import read_outcome
from assay.types import EvaluateResult, Sample

from .scorer_call import UserFunction

ResultKey = tuple[str | None, str, str | None]
"""Endpoint, sample, rollout: one result of a test."""

# The bound for synchronous functions, whatever `concurrency` allows.
_MAX_BATCH_THREADS = 32


@dataclass(frozen=True)
class GroupMember:
    """One result of a group."""

    endpoint: str | None
    sample: Sample

    @property
    def key(self) -> ResultKey:
        return key_of(self.endpoint, self.sample)


@dataclass(frozen=True)
class GroupResults:
    """The result that a function returned for each member, or its exception."""

    results: dict[ResultKey, EvaluateResult | Exception]

    def of(self, endpoint: str | None, sample: Sample) -> EvaluateResult:
        """Return a result, or raise the exception of the function as a scorer would."""
        found = self.results[key_of(endpoint, sample)]
        if isinstance(found, Exception):
            raise found
        return found


def key_of(endpoint: str | None, sample: Sample) -> ResultKey:
    """Return the key of a sample's result."""
    return endpoint, sample.id, sample.rollout_id


def iterate_members(endpoint: str | None, samples: Iterable[Sample]) -> Iterator[GroupMember]:
    """Yield the samples that did not fail, without their placeholder scores."""
    for sample in samples:
        if sample.failure is None:
            sample.score = None
            if endpoint is not None:
                sample.metadata["endpoint"] = endpoint
            yield GroupMember(endpoint, sample)


def group_members_by_sample(found: Iterable[GroupMember]) -> list[list[GroupMember]]:
    """Group all repeats and endpoints of each sample."""
    groups: dict[str, list[GroupMember]] = {}
    for member in found:
        groups.setdefault(member.sample.id, []).append(member)
    return list(groups.values())


def group_members_by_repeat(group: Iterable[GroupMember]) -> list[list[GroupMember]]:
    """Split a group into one part for each repeat."""
    parts: dict[str, list[GroupMember]] = {}
    for member in group:
        repeat = (member.sample.rollout_id or "").removeprefix(f"{member.sample.id}#")
        parts.setdefault(repeat, []).append(member)
    return list(parts.values())


def judge_groups(
    function: UserFunction, groups: Sequence[list[GroupMember]], *, concurrency: int
) -> GroupResults:
    """Call the function once for each group. One that fails costs the results of its group.

    A failed assertion is a verdict on every result of its group: a score of 0.0.
    """
    if inspect.iscoroutinefunction(function.function):
        return asyncio.run(judge_groups_in_loop(function, groups, concurrency=concurrency))
    with ThreadPoolExecutor(min(_MAX_BATCH_THREADS, concurrency)) as threads:
        try:
            returned = list(threads.map(lambda group: _call_with_group(function, group), groups))
        except BaseException:
            # Ctrl-C must not wait for calls that are still queued.
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    return _collect_results(function, groups, returned)


async def judge_groups_in_loop(
    function: UserFunction, groups: Sequence[list[GroupMember]], *, concurrency: int
) -> GroupResults:
    """Call an async function once for each group, in the running event loop."""
    return _collect_results(function, groups, await _await_groups(function, groups, concurrency))


def _collect_results(
    function: UserFunction, groups: Sequence[list[GroupMember]], returned: Sequence[object]
) -> GroupResults:
    results: dict[ResultKey, EvaluateResult | Exception] = {}
    for group, value in zip(groups, returned, strict=True):
        if isinstance(value, AssertionError):
            is_one = len({member.sample.id for member in group}) == 1
            verdict = function.assertions.add(_describe_group(group), value, is_sample=is_one)
            results |= {member.key: verdict for member in group}
        else:
            results |= _read_group_results(group, value)
    return GroupResults(results)


def _call_with_group(function: UserFunction, group: list[GroupMember]) -> object:
    try:
        return function.score_group(
            [member.sample for member in group], [member.endpoint for member in group]
        )
    except Exception as error:
        return error


async def _await_groups(
    function: UserFunction, groups: Sequence[list[GroupMember]], concurrency: int
) -> list[object]:
    slots = asyncio.Semaphore(concurrency)

    async def one(group: list[GroupMember]) -> object:
        async with slots:
            value = _call_with_group(function, group)
            try:
                return await value if isinstance(value, Awaitable) else value
            except Exception as error:
                return error

    return await asyncio.gather(*map(one, groups))


def _read_group_results(
    group: list[GroupMember], value: object
) -> dict[ResultKey, EvaluateResult | Exception]:
    if isinstance(value, Exception):
        return {member.key: value for member in group}
    values = list(value) if isinstance(value, list | tuple) else None
    if values is None or len(values) != len(group):
        kind = "None" if value is None else f"a {type(value).__name__}"
        returned = kind if values is None else len(values)
        fault = ScorerFault(
            f"the function was called with {len(group)} samples and returned {returned}, not a "
            f"list of {len(group)} results"
        )
        return {member.key: fault for member in group}
    # Rollouts of one sample share its id, so the check of ids below cannot see a changed order.
    own = {id(member.sample): position for position, member in enumerate(group)}
    if len({member.sample.id for member in group}) == 1 and {*map(id, values)} == own.keys():
        values.sort(key=lambda each: own[id(each)])
    return {
        member.key: _read_member_result(each, member.sample)
        for member, each in zip(group, values, strict=True)
    }


def _read_member_result(value: object, sample: Sample) -> EvaluateResult | Exception:
    if isinstance(value, Sample) and value.id != sample.id:
        return ScorerFault(
            f"the function returned sample {value.id!r} in the place of {sample.id!r}"
        )
    try:
        return read_outcome(value, sample)
    except ScorerFault as error:
        return error


def _describe_group(group: list[GroupMember]) -> str:
    ids = {member.sample.id for member in group}
    return next(iter(ids)) if len(ids) == 1 else f"all {len(group)} in one call"
