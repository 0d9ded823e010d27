"""The one place that joins source, rollout, scoring and record."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from assay.agents import RolloutFailed, run_agent
from assay.errors import (
    AccessDenied,
    AssayError,
    ConfigError,
    DatasetError,
    EnvironmentFault,
    RunStopped,
    ScorerFault,
    WireError,
)
from assay.providers import ModelClient, OwnTime
from assay.scorers import ScoreCaller
from assay.stats import finite, refuse_out_of_bounds
from assay.store import Entry, Kept, Writer, failure_entry, result_entry
from assay.types import (
    Boundary,
    EvaluateResult,
    Failure,
    Sample,
    Status,
    Trajectory,
    assign,
)

from .early_stop import Admission, EarlyStop, ObservedClient
from .eval_config import EvalConfig, RolloutFunction
from .recording_client import RecordingClient
from .rollout_job import Unit
from .run_progress import Oversight
from .sent_messages import Unprepared, digest_messages, prepare_messages

_Done = TypeVar("_Done")


class Engine:
    """Runs units through a bounded number of workers and records each as it ends."""

    _probes = True
    """Whether a few samples have to show that one can succeed before all workers start."""

    def __init__(
        self,
        config: EvalConfig,
        client: ModelClient | None,
        writer: Writer,
        oversight: Oversight,
    ) -> None:
        self._config = config
        self._model = client
        self._writer = writer
        limited = config.sample_timeout_s is not None
        self._scorer = (
            None if config.score_fn is None else ScoreCaller(config.score_fn, apart=limited)
        )
        self._progress = oversight.progress
        self._watch = oversight.watch
        self._stop = oversight.stop
        self._fatal: BaseException | None = None
        self._hopeless = False
        self._woken = asyncio.Event()
        self._probes = self._probes and oversight.stops_early
        self._early = EarlyStop(
            is_watching=self._probes,
            fail_on_error=config.fail_on_error,
            total=oversight.progress.total,
            max_cost_usd=config.max_cost_usd,
            spent_usd=oversight.spent_usd,
            resumed=oversight.progress.already_done > 0,
        )
        self._admission = Admission(self._early)
        self._client = ObservedClient(client, self._early) if client and self._probes else client
        self._finished: list[tuple[Unit, bool]] = []

    async def run(self, todo: Iterator[Unit]) -> None:
        """Work until there is nothing left, or the run is stopped.

        Raises what makes going on pointless: a refused key, a run in which nothing succeeds, a
        limit of the run, a dataset that cannot be read on, a store that cannot be written. What
        was recorded before that stays.
        """
        todo = self._ahead(todo)
        workers = [asyncio.create_task(self._work(todo)) for _ in range(self._config.concurrency)]
        overseer = asyncio.create_task(self._oversee(workers))
        try:
            ends = await asyncio.gather(*workers, return_exceptions=True)
        finally:
            for worker in workers:
                worker.cancel()
            overseer.cancel()
            await asyncio.gather(*workers, overseer, return_exceptions=True)
            self._admission.close()
            self._submit_finished()
            await self._writer.flush()
            if self._scorer is not None:
                self._scorer.close()
        self._account_for(ends)
        if self._fatal is not None:
            raise self._fatal

    def _ahead(self, todo: Iterator[Unit]) -> Iterator[Unit]:
        """The same units, read several at a time, which is faster than one by one.

        An error is raised where it stands: behind the units that were read before it.
        """
        count = min(self._config.concurrency, _TOGETHER)
        problem: BaseException | None = None
        while problem is None:
            if self._finished:
                # A dataset may take its time. What is done is not kept waiting for it.
                self._submit_finished()
            read: list[Unit] = []
            try:
                read.extend(islice(todo, count))
            except SystemExit as error:
                problem = DatasetError(f"the dataset's own code called sys.exit({error.code!r})")
            except Exception as error:
                problem = error
            yield from read
            if len(read) < count:
                break
        if problem is not None:
            raise problem

    def _account_for(self, ends: list[BaseException | None]) -> None:
        """A worker that died on its own has lost its sample: the run must not look complete."""
        if self._fatal is None and not self._stop.requested:
            self._fatal = next((end for end in ends if end is not None), None)
            if isinstance(self._fatal, asyncio.CancelledError):
                # Not ours: passed on, it would look as if the caller had cancelled the run.
                self._fatal = AssayError("a sample was cancelled from within its own code")
            elif self._fatal is None:
                progress = self._progress
                ended = progress.already_done + progress.done + progress.failed
                self._fatal = self._early.conclude(ended)

    def _give_up(self, error: BaseException) -> None:
        """End the run, and now: nothing that is still in flight could be kept."""
        self._fatal = self._fatal or error
        self._hopeless = True
        self._woken.set()

    async def _oversee(self, workers: list[asyncio.Task[None]]) -> None:
        """Once a stop is asked for, give samples in flight their grace time, then end them."""
        self._stop.listen(self._woken.set)
        while not (self._stop.requested or self._hopeless):
            await self._woken.wait()
        self._woken.clear()
        if not (self._stop.at_once or self._hopeless):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), self._stop.grace_s)
        for worker in workers:
            worker.cancel()

    def _is_ending(self) -> bool:
        return self._stop.requested or self._fatal is not None

    async def _work(self, todo: Iterator[Unit]) -> None:
        early, admission = self._early, self._admission
        while not self._is_ending():
            reason = None
            if self._probes and not early.is_settled:
                reason = await admission.enter()
                if self._is_ending():
                    return
            try:
                unit = next(todo, None)
            except Exception as error:
                # The dataset: no worker can go on, but the others finish what they have.
                self._fatal = error
                return
            if unit is None:
                return
            if reason is not None:
                # Only now: a run of which nothing is left has not been cut short.
                self._fatal = reason
                return
            admission.start()
            given = unit.sample.trajectory
            try:
                failure = await self._attempt(unit)
            finally:
                admission.end()
            # A refused key says nothing about the sample. Whatever else ended the run, what was
            # done until then is kept, and so is a rollout that only could not be scored.
            unscored = failure is not None and failure.boundary is Boundary.SCORER
            paid = unscored and _made_by_now(unit.sample, given)
            if paid or not isinstance(self._fatal, AccessDenied):
                if self._writer.is_full:
                    await self._until_room()
                self._hand_over(unit, failed=failure is not None)

    async def _attempt(self, unit: Unit) -> Failure | None:
        """Fill the sample in. A failure is data; only cancellation passes through."""
        sample = unit.sample
        if sample.failure is not None:
            return sample.failure  # it came here failed, and is kept as it is
        own, given = self._own_time(), sample.trajectory
        try:
            if unit.kept is not None:
                self._take(unit, unit.kept)
            elif (rollout := self._rollout(unit)) is not None:
                trajectory = await (rollout if own is None else self._in_time(rollout, own))
                assign(sample, {"trajectory": trajectory})
                self._early.answered = True
                if own is not None:
                    self._refuse_late(own)
        except ConfigError as error:
            # Not this sample's: no rollout could be made.
            self._give_up(error)
            raise
        except RolloutFailed as failed:
            sample.trajectory = failed.trajectory
            return self._failed(sample, failed.__cause__ or failed, failed.boundary)
        except Unprepared as unprepared:
            return self._failed(sample, unprepared.__cause__ or unprepared, unprepared.boundary)
        except TimeoutError as error:
            return self._failed(sample, error, unit.waited_for or _slower_side(sample.trajectory))
        except Exception as error:
            # Whatever else: the environment is the only other code in a rollout.
            return self._failed(sample, error, unit.waited_for or Boundary.ENVIRONMENT)
        try:
            if self._scorer is None:
                score = _own_result(sample)
            else:
                judged = self._scorer(sample)
                result = await (judged if own is None else self._in_time(judged, own))
                if own is not None:
                    self._refuse_late(own)
                score = _with_steps(result, sample.trajectory)
            _refuse_unaverageable(score)
            if self._config.bounds is not None:
                refuse_out_of_bounds(score, self._config.bounds)
            if sample.id != unit.sample_id:
                raise ScorerFault(f"the id of the sample was changed to {sample.id!r}")
        except (Exception, SystemExit) as error:
            # Passed on, sys.exit() in somebody's code would end the run as if all were well.
            sample.id = unit.sample_id
            return self._failed(sample, error, Boundary.SCORER)
        except asyncio.CancelledError:
            if unit.kept is not None or not self._loses(sample, given):
                raise
            # It is paid for: kept, it is scored when the run is resumed.
            unscored = RunStopped("the run was stopped before the sample was scored")
            return _fail(sample, Failure.of(unscored, Boundary.SCORER))
        truncated = sample.trajectory is not None and sample.trajectory.truncated
        status = Status.TRUNCATED if truncated else Status.COMPLETED
        assign(sample, {"score": score, "status": status})
        if not self._early.succeeded:
            self._early.succeeded = True
            if self._early.is_settled:
                # Nobody observes the answers any more.
                self._client = self._model
        return None

    def _own_time(self) -> OwnTime | None:
        return None if self._config.sample_timeout_s is None else OwnTime()

    def _loses(self, sample: Sample, given: Trajectory | None) -> bool:
        """Whether the end of the run would throw away a rollout that waits for its score."""
        ends = self._stop.requested or isinstance(self._fatal, RunStopped | AccessDenied)
        return ends and _made_by_now(sample, given)

    def _take(self, unit: Unit, kept: Kept) -> None:
        """Take a rollout that was paid for instead of another one."""
        # For what it does to the sample: a scorer may read that.
        prepare_messages(self._config, unit.sample)
        assign(unit.sample, {"trajectory": kept.trajectory})
        unit.prompt_digest = kept.prompt_digest

    def _rollout(self, unit: Unit) -> Coroutine[Any, Any, Trajectory] | None:
        """What rolls the sample out; None when it is scored as it is."""
        if self._config.rollout_fn is not None:
            return self._rolled_out_by_function(unit, self._config.rollout_fn)
        return None if self._client is None else self._rolled_out(unit, self._client)

    def _rolled_out(self, unit: Unit, client: ModelClient) -> Coroutine[Any, Any, Trajectory]:
        sample = unit.sample
        messages = prepare_messages(self._config, sample)
        unit.prompt_digest = digest_messages(messages)
        try:
            environment = self._config.make_environment(sample)
        except (Exception, SystemExit) as error:
            raise Unprepared(Boundary.ENVIRONMENT) from error
        return run_agent(
            client,
            environment,
            messages,
            limits=self._config.limits,
            seed=self._environment_seed(unit),
            sampling_seed=self._config.sampling_seed_of(sample, unit.repeat),
        )

    def _environment_seed(self, unit: Unit) -> int | None:
        return self._config.seed_of(unit.sample, unit.repeat)

    async def _rolled_out_by_function(self, unit: Unit, roll_out: RolloutFunction) -> Trajectory:
        unit.prompt_digest = digest_messages(prepare_messages(self._config, unit.sample))
        client = None if self._client is None else RecordingClient(self._client)
        try:
            returned: object = await roll_out(client, unit.sample)
        except SystemExit as error:
            raise EnvironmentFault(f"`rollout_fn` called sys.exit({error.code!r})") from error
        except (Exception, asyncio.CancelledError) as error:
            if client is not None:
                limited = isinstance(error, asyncio.CancelledError)
                unit.sample.trajectory = client.trajectory(_SAMPLE_TIMEOUT if limited else "error")
                unit.waited_for = client.boundary_of(error)
            raise
        if not isinstance(returned, Trajectory):
            kind = type(returned).__name__
            raise EnvironmentFault(f"`rollout_fn` returned a {kind}, not a Trajectory")
        return returned

    async def _in_time(self, work: Awaitable[_Done], own: OwnTime) -> _Done:
        seconds = self._config.sample_timeout_s
        assert seconds is not None
        try:
            with own:
                async with own.limited(seconds, name=_SAMPLE_TIMEOUT) as timer:
                    return await work
        except TimeoutError as error:
            if not timer.expired():
                raise
            raise _late(seconds) from error
        except RolloutFailed as failed:
            if failed.trajectory.termination_reason == _SAMPLE_TIMEOUT:
                raise failed from _late(seconds)
            raise

    def _refuse_late(self, own: OwnTime) -> None:
        """Raise `TimeoutError` after the limit: asyncio timeouts fire only at await points."""
        seconds = self._config.sample_timeout_s
        assert seconds is not None
        if own.spent_s > seconds:
            raise _late(seconds)

    def _failed(self, sample: Sample, error: BaseException, boundary: Boundary) -> Failure:
        failure = Failure.of(error, boundary, retryable=getattr(error, "retryable", True))
        ending = self._early.fail(error, failure)
        if isinstance(ending, AccessDenied) or (ending and self._early.is_hopeless):
            self._give_up(ending)
        elif ending is not None:
            # Samples in flight are paid for, and end by themselves.
            self._fatal = self._fatal or ending
        return _fail(sample, failure)

    def _hand_over(self, unit: Unit, *, failed: bool) -> None:
        """Give the sample to the store without waiting for the disk.

        Those that end in one turn of the event loop are handed over together. Doing one kind of
        work several times over is faster than doing all kinds in turn.
        """
        finished = self._finished
        finished.append((unit, failed))
        if len(finished) >= _TOGETHER:
            self._submit_finished()
        elif len(finished) == 1:
            asyncio.get_running_loop().call_soon(self._submit_finished)

    async def _until_room(self) -> None:
        try:
            await self._writer.until_room()
        except AssayError as error:
            self._give_up(error)

    def _submit_finished(self) -> None:
        finished, self._finished = self._finished, []
        entries: list[Entry] = []
        notes: list[_Note] = []
        for unit, failed in finished:
            try:
                entry, note = self._written(unit, failed=failed)
            except Exception as error:
                # Whatever it is: a sample that is not recorded is never passed over.
                self._give_up(error)
            else:
                entries.append(entry)
                notes.append(note)
        try:
            # Only what is told of them waits for the disk: the samples themselves can go.
            self._writer.submit(entries, partial(self._recorded, notes))
        except Exception as error:
            self._give_up(error)

    def _written(self, unit: Unit, *, failed: bool) -> "tuple[Entry, _Note]":
        sample = unit.sample
        try:
            if failed:
                return self._entry(failure_entry, unit), None
            note = sample.reward, cost_of(sample)
            return self._entry(result_entry, unit), note
        except WireError as error:
            # Somebody's code put a value into the sample that no file can hold.
            unit.sample = bare = _writable(sample)
            in_rollout = bare.trajectory is None and sample.trajectory is not None
            self._failed(bare, error, Boundary.ENVIRONMENT if in_rollout else Boundary.SCORER)
            return self._entry(failure_entry, unit), None

    @staticmethod
    def _entry(make: Callable[[str, Sample, int], Entry], unit: Unit) -> Entry:
        entry = make(unit.key, unit.sample, unit.repeat)
        entry.prompt_digest = unit.prompt_digest
        return entry

    def _recorded(self, notes: "list[_Note]", outcome: list[bool] | AssayError) -> None:
        if isinstance(outcome, AssayError):
            self._give_up(outcome)
            return
        progress, watch = self._progress, self._watch
        try:
            for note, fresh in zip(notes, outcome, strict=True):
                if note is None:
                    progress.failed += 1
                elif fresh:
                    progress.add(*note)
                if watch is not None:
                    watch(progress)
        except Exception as error:
            self._give_up(error)


_Note = tuple[float | None, float | None] | None
"""What the progress counts of a sample: its reward and its cost, or None for one that failed."""

_SAMPLE_TIMEOUT = "sample_timeout_s"
_TOGETHER = 50


def _made_by_now(sample: Sample, given: Trajectory | None) -> bool:
    """Whether the sample has a rollout that it did not come with, and that was paid for."""
    return sample.trajectory is not None and sample.trajectory is not given


def _fail(sample: Sample, failure: Failure) -> Failure:
    """Write down why a sample has no score."""
    sample.status = Status.FAILED
    sample.failure = failure
    score = EvaluateResult(error=f"{failure.kind}: {failure.message}")
    sample.score = _with_steps(score, sample.trajectory)
    return failure


def _writable(sample: Sample) -> Sample:
    """What of a sample can be written, whatever was put into it."""
    kept = Sample(
        id=sample.id,
        index=sample.index,
        group_index=sample.group_index,
        rollout_id=sample.rollout_id,
    )
    for name in ("input", "prompt", "ground_truth", "metadata", "trajectory"):
        more = kept.model_copy(update={name: getattr(sample, name)})
        with suppress(WireError):
            more.to_json_bytes()
            kept = more
    return kept


def _own_result(sample: Sample) -> EvaluateResult:
    """What the environment itself said, where nobody else is asked."""
    own = sample.trajectory.evaluation_result if sample.trajectory is not None else None
    none = EvaluateResult(reason="the environment gave no reward")
    return own or _with_steps(none, sample.trajectory)


def _with_steps(result: EvaluateResult, trajectory: Trajectory | None) -> EvaluateResult:
    """The result with the environment's steps: they belong to it, whoever judged it."""
    if trajectory is None or (trajectory.session is None and trajectory.evaluation_result is None):
        return result
    own = trajectory.evaluation_result
    more: dict[str, Any] = {}
    if own is not None and result.step_outputs is None:
        more["step_outputs"] = own.step_outputs
        more["final_control_plane_info"] = own.final_control_plane_info
    if result.trajectory_info is None:
        more["trajectory_info"] = _trajectory_info(trajectory)
    return result.model_copy(update=more)


def _trajectory_info(trajectory: Trajectory) -> dict[str, Any]:
    own = trajectory.evaluation_result
    if own is not None and own.trajectory_info is not None:
        return own.trajectory_info
    # An environment that gives no rewards has no result of its own.
    return {
        "duration": trajectory.duration,
        "steps": trajectory.steps,
        "termination_reason": trajectory.termination_reason,
    }


def _refuse_unaverageable(result: EvaluateResult) -> None:
    """Refuse here what no mean can hold: recorded, it would cost the numbers of the whole run."""
    try:
        if result.score is not None:
            finite(result.score, "the score")
        for name, metric in result.metrics.items():
            if metric.score is not None:
                finite(metric.score, "the metric {!r}", name)
    except ConfigError as error:
        raise ScorerFault(error.message) from None


def _late(seconds: float) -> TimeoutError:
    return TimeoutError(f"the sample was not finished within {seconds} s")


def _slower_side(trajectory: Trajectory | None) -> Boundary:
    """Where most of the time of a finished rollout went."""
    if trajectory is None or trajectory.duration is None:
        return Boundary.ENVIRONMENT
    asked_s = sum(call.latency_s or 0.0 for call in trajectory.calls)
    return Boundary.ENDPOINT if 2 * asked_s > trajectory.duration else Boundary.ENVIRONMENT


def cost_of(sample: Sample) -> float | None:
    """What the model calls of a sample cost; None when one of them is unknown."""
    if sample.trajectory is None:
        return 0.0
    total = 0.0
    for call in sample.trajectory.calls:
        if call.usage is None or call.usage.cost_usd is None:
            return None
        total += call.usage.cost_usd
    return total
