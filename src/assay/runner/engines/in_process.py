"""The engine of a run: joins dataset, rollout, scoring and store."""

import asyncio
import time
from collections.abc import Awaitable, Coroutine, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from assay.agents import (
    Agent,
    AgentClient,
    AgentFault,
    ModelAgent,
    PreparationFailed,
    RolloutFailed,
    RunContext,
    build_trajectory,
    hide_expected_answer,
)
from assay.errors import (
    AccessDenied,
    AssayError,
    ConfigError,
    DatasetError,
    RunStopped,
    ScorerFault,
    WireError,
)
from assay.providers import ActiveTimer, ModelClient
from assay.scorers import ScoreCaller
from assay.stats import check_finite, refuse_out_of_bounds
from assay.store import InsertRow, KeptRollout, Writer, build_failure_row, build_result_row
from assay.types import (
    Boundary,
    EvaluateResult,
    Failure,
    Sample,
    Status,
    Trajectory,
    Usage,
    set_unchecked,
)

from ..early_stop import Admission, EarlyStop, ObservedClient
from ..environment_result import add_environment_steps, read_environment_result
from ..eval_config import EvalConfig
from ..kept_rollouts import keep_failure, restore_failure
from ..replay_source import conclude_replay
from ..rollout_function import RolloutFunctionAgent
from ..rollout_job import RolloutJob, drop_unwritable_fields
from ..run_limits import LimitedClient
from ..run_progress import RunControl
from ..sample_cost import compute_sample_cost, compute_trajectory_cost
from ..sent_messages import digest_messages, prepare_messages

_Awaited = TypeVar("_Awaited")


class EvalEngine:
    """Runs jobs through a bounded number of workers and records each as it ends."""

    _probes = True
    """Whether one of a few samples has to succeed before all workers start."""

    def __init__(
        self,
        config: EvalConfig,
        client: ModelClient | None,
        writer: Writer,
        control: RunControl,
    ) -> None:
        self._spending = control.spending
        if client is not None and self._spending is not None:
            client = LimitedClient(client, self._spending)
        self._config = config
        self._model = client
        self._writer = writer
        limited = config.timeout_s is not None
        self._scorer = (
            None if config.score_fn is None else ScoreCaller(config.scorer, always_threaded=limited)
        )
        self._bounds = config.score_bounds
        self._progress = control.progress
        self._watch = control.watch
        self._stop = control.stop
        self._replay = control.replay
        self._fatal: BaseException | None = None
        self._hopeless = False
        self._woken = asyncio.Event()
        self._probes = self._probes and control.stops_early
        self._early = EarlyStop(
            is_watching=self._probes,
            fail_on_error=config.fail_on_error,
            total=control.progress.total,
            max_cost_usd=config.max_cost_usd,
            spent_usd=control.spent_usd,
            resumed=control.is_resumed or control.progress.already_done > 0,
        )
        self._early.peers = control.peers
        self._admission = Admission(self._early)
        self._client = ObservedClient(client, self._early) if client and self._probes else client
        self._agent = self._choose_agent()
        self._finished: list[tuple[RolloutJob, bool]] = []
        self._timer: asyncio.TimerHandle | None = None

    def _choose_agent(self) -> Agent | None:
        """Return the agent of the run; None when samples are scored without a rollout."""
        config = self._config
        if config.agent is not None:
            return config.agent
        if config.rollout_fn is not None:
            return RolloutFunctionAgent(config.rollout_fn)
        if self._client is None:
            return None
        assert config.endpoint is not None
        return ModelAgent(config.endpoint, client=self._client, environment=config.make_environment)

    async def run(self, todo: Iterator[RolloutJob]) -> None:
        """Execute all jobs, until none is left or the run is stopped.

        Raises errors that affect the whole run: a refused key, a run in which nothing succeeds, a
        limit of the run, an unreadable dataset, an unwritable store. Samples recorded before the
        error are kept.
        """
        todo = self._read_ahead(todo)
        workers = [asyncio.create_task(self._work(todo)) for _ in range(self._config.concurrency)]
        watcher = asyncio.create_task(self._cancel_on_stop(workers))
        poll = asyncio.create_task(self._early.poll_peers())
        if (spending := self._spending) is not None and spending.left_s is not None:
            timed_out = spending.build_error("max_seconds")
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(spending.left_s, self._abort, timed_out)
        try:
            ends = await asyncio.gather(*workers, return_exceptions=True)
        finally:
            for worker in workers:
                worker.cancel()
            watcher.cancel()
            poll.cancel()
            try:
                await asyncio.gather(*workers, watcher, poll, return_exceptions=True)
            finally:
                # Also when the caller cancels a second time. After the workers: they may have
                # finished samples while they were being cancelled.
                self._admission.close()
                if self._timer is not None:
                    self._timer.cancel()
                self._submit_finished()
                if self._scorer is not None:
                    self._scorer.close()
            await self._writer.flush()
        self._check_worker_ends(ends)
        if self._fatal is not None:
            raise self._fatal

    def _read_ahead(self, todo: Iterator[RolloutJob]) -> Iterator[RolloutJob]:
        """Yield the same jobs, read in batches, which is faster than one by one."""
        # An error of the dataset is raised after the jobs that were read before it.
        count = min(self._config.concurrency, _BATCH_SIZE)
        problem: BaseException | None = None
        while problem is None:
            if self._finished:
                # A dataset may block for a while: record finished samples first.
                self._submit_finished()
            read: list[RolloutJob] = []
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

    def _check_worker_ends(self, ends: list[BaseException | None]) -> None:
        """Keep a run from looking complete when a worker died and lost its sample."""
        if self._fatal is None and not self._stop.requested:
            self._fatal = next((end for end in ends if end is not None), None)
            if isinstance(self._fatal, asyncio.CancelledError):
                # Raised by user code. Re-raised, it would look as if the caller cancelled the run.
                self._fatal = AssayError("the code of a sample cancelled its own task")
            elif self._fatal is None:
                progress = self._progress
                ended = progress.already_done + progress.done + progress.failed
                self._fatal = self._early.conclude(ended)

    def _abort(self, error: BaseException) -> None:
        """End the run at once: samples in flight could not be kept."""
        self._fatal = self._fatal or error
        self._hopeless = True
        self._woken.set()

    async def _cancel_on_stop(self, workers: list[asyncio.Task[None]]) -> None:
        """Wait for a stop request and its grace time, then cancel the samples in flight."""
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

    async def _work(self, todo: Iterator[RolloutJob]) -> None:
        early, admission = self._early, self._admission
        while not self._is_ending():
            reason, job = None, None
            if self._probes and not early.is_settled:
                reason = await admission.enter()
            if reason is None and self._spending is not None:
                reason = self._spending.find_error()
            try:
                job = None if self._is_ending() else next(todo, None)
            except Exception as error:
                # The dataset failed: no worker can continue, but the others finish their samples.
                self._fatal = error
            if reason is not None:
                # Checked after reading a job: a run without further jobs was not cut short.
                if job is not None:
                    self._fatal = reason
                return
            if job is None:
                admission.withdraw()
                return
            await self._execute(job)

    async def _execute(self, job: RolloutJob) -> None:
        given = job.sample.trajectory
        self._admission.start()
        try:
            failure = await self._attempt(job)
        finally:
            self._admission.end()
        # A failure by a refused key is not recorded: it does not concern the sample. Any other
        # outcome is recorded, and so is an unscored rollout, which was paid for.
        unscored = failure is not None and failure.boundary is Boundary.SCORER
        if failure is not None and failure.kind == RunStopped.__name__ and not unscored:
            # Cut by a limit of the run: recorded as an attempt if it was paid for.
            cut = job.sample.trajectory
            if cut is None or cut is given or not cut.calls:
                return
        paid = failure is None or (unscored and _has_new_rollout(job.sample, given))
        if paid or not isinstance(self._fatal, AccessDenied):
            if self._writer.is_full:
                # Back-pressure: samples must not pile up in memory behind a slow disk.
                try:
                    await self._writer.wait_for_room()
                except AssayError as error:
                    self._abort(error)
            self._queue_for_store(job, failed=failure is not None)

    async def _attempt(self, job: RolloutJob) -> Failure | None:
        """Roll out and score the sample. Failures are returned; only cancellation propagates."""
        sample = job.sample
        if sample.failure is not None and not self._config.score_failures:
            return sample.failure  # already failed, such as in a rescored run: keep it
        given, limit = sample.trajectory, self._config.timeout_s
        own = None if limit is None else ActiveTimer()
        problem = await self._roll_out(job, own)
        if job.replay is not None:
            problem = conclude_replay(sample, job.replay) or problem
        if problem is not None:
            error, boundary = problem
            if isinstance(error, RunStopped):
                # A limit of the run cut the sample: the others end by themselves or are cut too.
                self._fatal = self._fatal or error
                return _mark_failed(sample, Failure.of(error, boundary))
            refused = isinstance(error, AccessDenied) and not self._early.answered
            if refused or boundary is Boundary.REPLAY or not self._config.score_failures:
                return self._record_failure(sample, error, boundary)
            sample.failure = Failure.of(error, boundary)
            if sample.trajectory is None or sample.trajectory is given:
                messages = [] if job.context is None else job.context.messages
                sample.trajectory = Trajectory(messages=messages, termination_reason="error")
        keep_failure(sample)
        try:
            if self._scorer is None:
                score = read_environment_result(sample)
            else:
                judged = self._scorer(sample)
                result = await (judged if own is None else self._run_with_timeout(judged, own))
                if own is not None:
                    self._check_timeout(own)
                score = add_environment_steps(result, sample.trajectory)
            _check_finite_scores(score)
            if self._bounds is not None:
                refuse_out_of_bounds(score, self._bounds)
            if sample.id != job.sample_id:
                raise ScorerFault(f"the id of the sample was changed to {sample.id!r}")
        except (Exception, SystemExit) as error:
            # Re-raised, sys.exit() in a scorer would end the process with its exit status.
            sample.id = job.sample_id
            return self._record_failure(sample, error, Boundary.SCORER)
        except asyncio.CancelledError:
            if job.kept is not None or not self._loses_rollout(sample, given):
                raise
            # The rollout was paid for: keep it, to score it when the run is resumed.
            unscored = RunStopped("the run was stopped before the sample was scored")
            return _mark_failed(sample, Failure.of(unscored, Boundary.SCORER))
        truncated = sample.trajectory is not None and sample.trajectory.truncated
        status = Status.TRUNCATED if truncated else Status.COMPLETED
        set_unchecked(sample, {"score": score, "status": status, "failure": None})
        if not self._early.succeeded:
            self._early.succeeded = True
            if self._early.is_settled:
                # Answers need not be observed any longer: skip the wrapper.
                self._client = self._model
                if isinstance(self._agent, ModelAgent) and self._model is not None:
                    self._agent.client = self._model
        return None

    async def _roll_out(
        self, job: RolloutJob, own: ActiveTimer | None
    ) -> tuple[BaseException, Boundary] | None:
        """Give the sample its trajectory. Returns the error of a failed rollout."""
        sample = job.sample
        try:
            if job.kept is not None:
                self._reuse_rollout(job, job.kept)
            elif (rollout := self._start_rollout(job)) is not None:
                # A result that the dataset brings is about another answer.
                sample.score = None
                trajectory = await (
                    rollout if own is None else self._run_with_timeout(rollout, own)
                )
                set_unchecked(sample, {"trajectory": trajectory})
                self._early.answered = True
                if own is not None:
                    self._check_timeout(own)
        except ConfigError as error:
            # Not caused by the sample: every other rollout would fail as well.
            self._abort(error)
            raise
        except RolloutFailed as failed:
            sample.trajectory = failed.trajectory
            return failed.__cause__ or failed, failed.boundary
        except PreparationFailed as unprepared:
            return unprepared.__cause__ or unprepared, unprepared.boundary
        except TimeoutError as error:
            return error, job.waited_for or _find_slower_boundary(sample.trajectory)
        except Exception as error:
            # In the rollout of a model, the environment is the only other code.
            return error, job.waited_for or Boundary.ENVIRONMENT
        return None

    def _loses_rollout(self, sample: Sample, given: Trajectory | None) -> bool:
        """Whether ending the run would discard a rollout that is not scored yet."""
        ends = self._stop.requested or isinstance(self._fatal, RunStopped | AccessDenied)
        return ends and _has_new_rollout(sample, given)

    def _reuse_rollout(self, job: RolloutJob, kept: KeptRollout) -> None:
        """Use a recorded rollout instead of making another one."""
        sample = job.sample
        # Called for its side effects on the sample, which a scorer may read.
        prepare_messages(self._config, sample)
        set_unchecked(sample, {"trajectory": kept.trajectory})
        restore_failure(sample)
        # Notes that a scorer left before it failed, such as the judgements that were paid for.
        for key, value in kept.metadata.items():
            sample.metadata.setdefault(key, value)
        job.prompt_digest = kept.prompt_digest

    def _start_rollout(self, job: RolloutJob) -> Coroutine[Any, Any, Trajectory] | None:
        """Start the rollout of a sample; None when the sample is scored without one."""
        agent, config, sample = self._agent, self._config, job.sample
        if agent is None:
            return None
        messages = prepare_messages(config, sample)
        job.prompt_digest = digest_messages(messages)
        job.context = context = RunContext(
            messages=messages,
            repeat=job.repeat,
            seed=config.seed_of(sample, job.repeat if job.group is None else job.group),
            sampling_seed=config.sampling_seed_of(sample, job.repeat),
            timeout_s=config.timeout_s,
            limits=config.limits,
        )
        if self._replay is not None and self._client is not None:
            job.replay = self._replay.build_client(job.sample_id, job.repeat, self._client)
            if isinstance(agent, ModelAgent):
                agent = agent.with_client(job.replay)
                return agent.run(sample, context)
        if agent is not config.agent and isinstance(agent, ModelAgent):
            return agent.run(sample, context)
        return self._run_own_agent(agent, job, context)

    async def _run_own_agent(
        self, agent: Agent, job: RolloutJob, context: RunContext
    ) -> Trajectory:
        """Run an agent of the user's own, which never sees the expected answer."""
        sample, config = job.sample, self._config
        job.waited_for = getattr(agent, "boundary", Boundary.AGENT)
        if not isinstance(agent, RolloutFunctionAgent) and not hasattr(agent, "show_sample"):
            prepared = config.prepare_messages is not None or config.session is not None
            sample = hide_expected_answer(sample, context.messages if prepared else None)
        client = job.replay or self._client
        if client is not None:
            context.client = AgentClient(client)
        started = time.perf_counter()
        try:
            answer: object = await agent.run(sample, context)
            if isinstance(agent, RolloutFunctionAgent) and isinstance(answer, Trajectory):
                trajectory = answer
            else:
                trajectory = build_trajectory(answer, context, time.perf_counter() - started)
            if context.client is not None and context.client.stopped is not None:
                raise context.client.stopped
        except SystemExit as error:
            raise AgentFault(f"the agent called sys.exit({error.code!r})") from error
        except (RolloutFailed, PreparationFailed):
            raise
        except (Exception, asyncio.CancelledError) as error:
            if self._config.uses_workspace and context.workspace is None:
                job.waited_for = Boundary.ENVIRONMENT  # the agent waits for its workspace
            if context.client is not None:
                reason = _SAMPLE_TIMEOUT if isinstance(error, asyncio.CancelledError) else "error"
                job.sample.trajectory = paid = context.client.trajectory(reason)
                job.waited_for = context.client.find_boundary(error) or job.waited_for
                if paid is not None and any(call.error is None for call in paid.calls):
                    self._count_cost(paid, job, context)
                stopped = context.client.stopped
                if stopped is not None and stopped is not error and isinstance(error, Exception):
                    raise stopped from error
            raise
        self._count_cost(trajectory, job, context)
        return trajectory

    def _count_cost(self, trajectory: Trajectory, job: RolloutJob, context: RunContext) -> None:
        """Count the calls of a rollout that were not counted when they were answered."""
        paid = trajectory if job.replay is None else job.replay.mark(trajectory)
        if self._spending is not None:
            self._spending.add_reported(paid, has_client=context.client is not None)
        if context.client is not None:
            if context.base_url is None:
                return
            # Those through the client of the run were; those at the gateway were not.
            rest = [call for call in paid.calls if "exchange" not in (call.model_extra or {})]
            if paid.calls and not rest:
                return
            paid = paid.model_copy(update={"calls": rest})
        self._early.answer(Usage(cost_usd=compute_trajectory_cost(paid)))

    async def _run_with_timeout(self, work: Awaitable[_Awaited], own: ActiveTimer) -> _Awaited:
        seconds = self._config.timeout_s
        assert seconds is not None
        try:
            with own:
                async with own.limit_time(seconds, name=_SAMPLE_TIMEOUT) as timer:
                    return await work
        except TimeoutError as error:
            if not timer.expired():
                raise
            raise _build_timeout_error(seconds) from error
        except RolloutFailed as failed:
            if failed.trajectory.termination_reason == _SAMPLE_TIMEOUT:
                raise failed from _build_timeout_error(seconds)
            raise

    def _check_timeout(self, own: ActiveTimer) -> None:
        """Raise `TimeoutError` after the limit: asyncio timeouts fire only at await points."""
        seconds = self._config.timeout_s
        assert seconds is not None
        if own.spent_s > seconds:
            raise _build_timeout_error(seconds)

    def _record_failure(self, sample: Sample, error: BaseException, boundary: Boundary) -> Failure:
        failure = Failure.of(error, boundary, retryable=getattr(error, "retryable", True))
        ending = self._early.fail(error, failure)
        if isinstance(ending, AccessDenied) or (ending and self._early.is_hopeless):
            self._abort(ending)
        elif ending is not None:
            # Let the samples in flight finish: they are paid for already.
            self._fatal = self._fatal or ending
        return _mark_failed(sample, failure)

    def _queue_for_store(self, job: RolloutJob, *, failed: bool) -> None:
        """Hand the sample to the store without waiting for the disk."""
        # Samples that end in one turn of the event loop are encoded together: a batch of equal
        # work is faster than alternating between kinds of work.
        finished = self._finished
        finished.append((job, failed))
        if len(finished) >= _BATCH_SIZE:
            self._submit_finished()
        elif len(finished) == 1:
            asyncio.get_running_loop().call_soon(self._submit_finished)

    def _submit_finished(self) -> None:
        finished, self._finished = self._finished, []
        entries: list[InsertRow] = []
        notes: list[Any] = []
        for job, failed in finished:
            try:
                encoded = self._encode_job(job, failed=failed)
            except Exception as error:
                # A sample that cannot be recorded ends the run: it must never be dropped silently.
                self._abort(error)
            else:
                if encoded is not None:
                    entries.append(encoded[0])
                    notes.append(encoded[1])
        try:
            # Only the notes wait for the disk, so that the samples can be freed.
            self._writer.submit(entries, partial(self._count_recorded, notes))
        except Exception as error:
            self._abort(error)

    def _encode_job(self, job: RolloutJob, *, failed: bool) -> tuple[InsertRow, Any] | None:
        """Return the row of a sample and its note for the progress; None to leave it out."""
        sample, note = job.sample, None
        if (peers := self._early.peers) is not None and job.kept is None:
            peers.own_usd += compute_sample_cost(sample) or 0.0
        try:
            if failed:
                entry = build_failure_row(job.key, sample, job.repeat)
            else:
                note = sample.reward, compute_sample_cost(sample)
                entry = build_result_row(job.key, sample, job.repeat)
        except WireError as error:
            # User code put a value into the sample that cannot be written as JSON.
            job.sample = bare = drop_unwritable_fields(sample)
            in_rollout = bare.trajectory is None and sample.trajectory is not None
            boundary = job.waited_for or Boundary.ENVIRONMENT
            self._record_failure(bare, error, boundary if in_rollout else Boundary.SCORER)
            entry, note = build_failure_row(job.key, bare, job.repeat), None
        entry.prompt_digest = job.prompt_digest
        if peers is not None:
            peers.own_failed += entry.failed
        return entry, note

    def _count_recorded(self, notes: list[Any], outcome: list[bool] | AssayError) -> None:
        if isinstance(outcome, AssayError):
            self._abort(outcome)
            return
        progress, watch = self._progress, self._watch
        try:
            for note, fresh in zip(notes, outcome, strict=True):
                self._count_result(note, fresh)
                if watch is not None:
                    watch(progress)
        except Exception as error:
            self._abort(error)

    def _count_result(self, note: tuple[float | None, float | None] | None, fresh: bool) -> None:
        """Count reward and cost of a recorded sample; None for a failed one."""
        if note is None:
            self._progress.failed += 1
        elif fresh:
            self._progress.add(*note)


_SAMPLE_TIMEOUT = "timeout_s"
_BATCH_SIZE = 50


def _has_new_rollout(sample: Sample, given: Trajectory | None) -> bool:
    """Whether the sample has a rollout that this run made and paid for."""
    return sample.trajectory is not None and sample.trajectory is not given


def _mark_failed(sample: Sample, failure: Failure) -> Failure:
    """Record in the sample why it has no score."""
    sample.status = Status.FAILED
    sample.failure = failure
    score = EvaluateResult(error=f"{failure.kind}: {failure.message}")
    sample.score = add_environment_steps(score, sample.trajectory)
    return failure


def _check_finite_scores(result: EvaluateResult) -> None:
    """Raise `ScorerFault` for NaN and infinite scores."""
    # Recorded, one of them would make the mean of the whole run useless.
    try:
        if result.score is not None:
            check_finite(result.score, "the score")
        for name, metric in result.metrics.items():
            if metric.score is not None:
                check_finite(metric.score, "the metric {!r}", name)
    except ConfigError as error:
        raise ScorerFault(error.message) from None


def _build_timeout_error(seconds: float) -> TimeoutError:
    return TimeoutError(f"the sample was not finished within {seconds} s")


def _find_slower_boundary(trajectory: Trajectory | None) -> Boundary:
    """Attribute the timeout of a finished rollout to where most of its time was spent."""
    if trajectory is None or trajectory.duration is None:
        return Boundary.ENVIRONMENT
    endpoint_s = sum(call.latency_s or 0.0 for call in trajectory.calls)
    return Boundary.ENDPOINT if 2 * endpoint_s > trajectory.duration else Boundary.ENVIRONMENT
