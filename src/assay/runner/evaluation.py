"""`evaluate`: from a dataset and a configuration to a recorded run."""

import asyncio
import re
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from assay.agents import Agent
from assay.datasets import PromptTemplate, SampleStream, Source, load_samples
from assay.errors import AssayError, ConfigError, StoreError
from assay.providers import ModelClient, find_price
from assay.store import (
    SCORER_SETTINGS,
    Run,
    RunSpec,
    RunStatus,
    Store,
    check_resume_spec,
    check_same_config,
)
from assay.types import Sample, compute_file_sha256, reduce_gc_frequency, stable_id

from .agent_gateway import find_agent_gateway
from .engines.in_process import EvalEngine
from .engines.ray_settings import EngineRef, refuse_file_store
from .eval_config import EvalConfig
from .eval_report import EvalReport, ReplayCounts, build_eval_report
from .git_commit import read_git_commit
from .kept_rollouts import KeptRollouts, iterate_reused_runs
from .opening_messages import check_opening
from .peers import Peers
from .replay_source import connect_model, open_replay
from .rollout_job import RolloutJob, build_rollout_jobs
from .run_limits import RunSpending, refuse_shared_limits
from .run_progress import Progress, ProgressCallback, RunControl, Stop
from .saved_sessions import save_sessions
from .sent_messages import PromptCheck, check_each_sample
from .shard import Shard

if TYPE_CHECKING:
    from assay.gateway import Replay

# Evaluations at once that use an agent, by its id: one configuration may be used for several.
_agent_uses = Counter[int]()
_uses_lock = Lock()

# Samples compared between two turns of the event loop, which deliver signals.
_YIELD_EVERY = 1000


@dataclass(frozen=True)
class Resume:
    """Which run to resume, and which differences from its start are accepted."""

    run_id: str = "latest"
    allow_changed_dataset: bool = False
    """Match the samples of a changed dataset by id. False: a changed dataset is an error."""

    take_over: bool = False
    """Resume even if another live process holds the run."""

    rescore: bool = False
    """Start a new run with another scorer instead: recorded rollouts are scored again, and only
    missing ones are executed."""

    check_prompts: bool = True
    """Abort if the prompt of a recorded sample has changed since."""


async def evaluate(  # noqa: PLR0913  # an evaluation, and where it runs
    dataset: Source | SampleStream,
    config: EvalConfig,
    *,
    store: Store | str | Path | None = None,
    engine: EngineRef | None = None,
    resume: Resume | str | None = None,
    watch: ProgressCallback | None = None,
    stop: Stop | None = None,
) -> EvalReport:
    """Roll out and score every sample, recording each durably as it ends.

    `engine` executes the samples in place of that of `config`.

    A failure is data: it is attributed to its boundary and kept with its sample, and the other
    samples continue. Raises errors that affect the whole run: an unreadable dataset, a refused
    key, an unwritable store, and `RunStopped` when nothing succeeds or a limit of the run is
    reached. Samples recorded before the error are kept, and the run can be resumed.
    """
    stop = stop or Stop()
    check_arguments(dataset, config, where="evaluate()")
    if not isinstance(resume, Resume | str | None):
        raise ConfigError(
            f"`resume` cannot be of type `{type(resume).__name__}`",
            where="evaluate()",
            hint='pass the id of a run, "latest" or a Resume',
        )
    if engine is not None:
        config = replace(config, engine=engine)
    given = Resume(resume) if isinstance(resume, str) else resume
    with open_replay(config, store) as (config, replay):
        prepared = prepare_evaluation(dataset, config, replay)
        if config.engine is not None:
            refuse_file_store(store)
        opened = store if isinstance(store, Store) else Store.open(store, create=resume is None)
        try:
            run, _ = await execute_evaluation(prepared, given, store=opened, watch=watch, stop=stop)
            interrupted = stop.requested
            report = build_eval_report(run, opened, reopen=store, interrupted=interrupted)
            counts = None if replay is None else ReplayCounts(replay.replayed, replay.live)
            return replace(report, skipped=prepared.samples.skipped, replay=counts)
        finally:
            if opened is not store:
                opened.close()


def check_arguments(dataset: object, config: object, *, where: str) -> None:
    """Raise `ConfigError` unless a configuration was passed, after the dataset."""
    if isinstance(config, EvalConfig) and not isinstance(dataset, EvalConfig):
        return
    # The values are not shown: rows may be long, and settings may contain a key.
    swapped = isinstance(dataset, EvalConfig)
    raise ConfigError(
        "the configuration was passed as the dataset"
        if swapped
        else f"`config` cannot be of type `{type(config).__name__}`",
        where=where,
        hint=f"write {where.removesuffix('()')}(dataset, config, ...)"
        if swapped
        else "pass an EvalConfig as the second argument, after the dataset",
    )


@dataclass(frozen=True)
class PreparedEvaluation:
    """An evaluation whose configuration and dataset were checked."""

    config: EvalConfig
    client: ModelClient | None
    samples: SampleStream
    spec: RunSpec
    replay: "Replay | None"


def prepare_evaluation(
    dataset: Source | SampleStream,
    config: EvalConfig,
    replay: "Replay | None",
    shard: Shard | None = None,
) -> PreparedEvaluation:
    """Find every mistake in the request before a run is created or anything is paid for."""
    if shard is not None:
        refuse_shared_limits(config.run_limits, where="EvalConfig")
    with reduce_gc_frequency():
        config.check_agent_needs()
        _check_price(config)
        client = connect_model(config, replay)
        samples = _open_sample_stream(dataset, config)
        if shard is not None and shard.total is not None:
            total: int | None = shard.total
        else:
            # Shards that are started by themselves must agree on the number.
            alone = shard is not None and not shard.allows_changed_total
            total = _count_samples(samples, config, must_count=alone)
        spec = _build_run_spec(samples, config, total)
        return PreparedEvaluation(config, client, samples, spec, replay)


def check_dataset(dataset: Source | SampleStream, config: EvalConfig) -> int | None:
    """Check the samples as far as `evaluate` does before its first call. Return their number."""
    with reduce_gc_frequency():
        return _count_samples(_open_sample_stream(dataset, config), config, must_count=False)


async def execute_evaluation(
    prepared: PreparedEvaluation,
    target: Resume | Shard | None,
    *,
    store: Store,
    watch: ProgressCallback | None,
    stop: Stop,
) -> tuple[Run, Progress]:
    """Execute a new run, the rest of one that is resumed, or a shard, without a report."""
    config, samples, spec = prepared.config, prepared.samples, prepared.spec
    folder = _find_dataset_folder(samples)
    async with AsyncExitStack() as stack:
        stack.enter_context(reduce_gc_frequency())
        if isinstance(target, Shard):
            run, read = await _join_shard(store, prepared, target)
            build_engine = await stack.enter_async_context(open_engine(config, store, stop, folder))
            # The total of the run says nothing about the samples of one shard.
            peers = Peers(run, count=target.count, failed_before=target.failed_before)
            control = RunControl(Progress(), watch, stop, replay=prepared.replay, peers=peers)
        else:
            read = samples
            if target is not None:
                read = await _check_resume(store, prepared, target)
                if target.rescore:
                    spec, target = replace(spec, reuses=store.run(target.run_id).id), None
            # Before the run is created: workers of a cluster may refuse its configuration.
            build_engine = await stack.enter_async_context(open_engine(config, store, stop, folder))
            run = start_or_resume(store, spec, target, allow_changed_scorer=config.rolls_out)
            total = None if spec.total is None else spec.total * config.repeats
            control = RunControl(Progress(total=total), watch, stop, replay=prepared.replay)

        def todo(done: Container[str]) -> Iterator[RolloutJob]:
            left = build_rollout_jobs(iter(read), config, run, done)
            is_fresh = run.is_new and run.spec.reuses is None
            reuses = config.rolls_out and not is_fresh
            return KeptRollouts(run, store).fill_kept(left) if reuses else left

        client, build = prepared.client, build_engine(run)
        await execute_jobs(run, todo, config, client=client, control=control, build_engine=build)
        # Of several shards, the last one saves the sessions of all.
        if config.save_sessions and (control.peers is None or run.status == "completed"):
            save_sessions(run, store, config)
        return run, control.progress


async def _join_shard(
    store: Store, prepared: PreparedEvaluation, shard: Shard
) -> tuple[Run, Iterable[Sample]]:
    """Join the run of a shard, or start it. Return the run and the shard's samples."""
    if prepared.config.engine is not None:
        raise ConfigError(
            "a shard is executed by one process, not by an engine",
            where="EvalConfig",
            hint="leave out `engine`, or evaluate the whole run with it",
        )
    changed = shard.allow_changed_dataset
    spec = replace(prepared.spec, id=shard.run_id)
    run = store.join_run(
        spec,
        shard=str(shard),
        allow_changed_dataset=changed,
        allow_changed_total=shard.allows_changed_total,
    )
    read: Iterable[Sample] = prepared.samples
    if not run.is_new:
        try:
            resume = Resume(run.id, allow_changed_dataset=changed)
            read = await _check_resume(store, prepared, resume)
        except BaseException:
            run.finish("interrupted")
            raise
    return run, shard.select(read, run)


def _build_run_spec(samples: SampleStream, config: EvalConfig, total: int | None) -> RunSpec:
    description = config.describe()
    commit = read_git_commit(Path.cwd())
    return RunSpec(
        id=create_run_id(config.name),
        name=config.name,
        config=description if commit is None else {**description, "commit": commit},
        config_fingerprint=stable_id(description),
        dataset=samples.name,
        dataset_fingerprint=None if samples.file is None else compute_file_sha256(samples.file),
        total=total,
        repeats=config.repeats,
    )


@asynccontextmanager
async def open_engine(
    config: EvalConfig, store: Store, stop: Stop, dataset_folder: Path | None = None
) -> AsyncIterator[Callable[[Run], Callable[..., EvalEngine]]]:
    """Start what executes the samples. Yield a function that returns how to build a run's engine.

    A stop request ends the wait for the workers of a cluster. Raises `ConfigError` if they cannot
    execute the configuration.
    """

    def build_engine(wired: EvalConfig, *given: Any) -> EvalEngine:
        # Of the agent itself: a gateway around it has no such attribute.
        if config.uses_workspace:
            wired = use_workspaces(wired, dataset_folder)
        return EvalEngine(wired, *given)

    if config.engine is None:
        yield lambda run: build_engine
        return
    from .engines.ray_cluster import RayCluster

    async with AsyncExitStack() as stack:
        cluster = RayCluster(config, store, dataset_folder)
        is_ready = await cluster.start(stack, stop)
        # The engine of this process starts no sample of a stopped run.
        yield cluster.build_engine if is_ready else lambda run: build_engine


async def execute_jobs(
    run: Run,
    todo: Callable[[Container[str]], Iterator[RolloutJob]],
    config: EvalConfig,
    *,
    client: ModelClient | None,
    control: RunControl,
    build_engine: Callable[..., EvalEngine] = EvalEngine,
) -> None:
    """Execute the jobs that are not recorded yet, and store how the run ended."""
    # A lookup in an empty frozenset is cheaper than one in `DoneKeys`, and happens per sample.
    done = frozenset[str]() if run.is_new else run.read_done_keys() or frozenset[str]()
    status: RunStatus | None = "interrupted"
    config = _limit_concurrency(config)
    try:
        if not run.is_new:
            if control.peers is None:
                # The results of other shards are not progress of this one.
                control.progress.resume_from(len(done), run.totals)
            spent_usd = _read_resumed_cost(run, config)
            control = replace(control, spent_usd=spent_usd, is_resumed=len(done) > 0)
        async with AsyncExitStack() as stack:
            if client is not None:
                stack.push_async_callback(client.close)
            if config.agent is not None:
                await stack.enter_async_context(_close_after_use(config.agent))
            if config.run_limits is not None:
                control = replace(control, spending=RunSpending(config.run_limits))
            # The workers of a cluster have a gateway each.
            gateway = None
            if config.engine is None:
                gateway = find_agent_gateway(config, client, control.spending)
            if gateway is not None:
                config = replace(config, agent=await stack.enter_async_context(gateway))
            writer = await stack.enter_async_context(run.writer())
            await build_engine(config, client, writer, control).run(todo(done))
        if not control.stop.requested:
            status = "completed"
    except Exception as error:
        if isinstance(error, AssayError):
            error.run_id = run.id
        # Do not write to a store that just failed: a locked one would block for another timeout.
        status = None if isinstance(error, StoreError) else "failed"
        raise
    finally:
        if status is not None:
            # An error is already propagating, and matters more than a failing store.
            with suppress(StoreError):
                run.finish(status)


@asynccontextmanager
async def _close_after_use(agent: Agent) -> AsyncIterator[None]:
    """Close an agent at the end, unless another evaluation still uses it."""
    # By object: agents need not be hashable, and no other one has the id while this one is used.
    with _uses_lock:
        _agent_uses[id(agent)] += 1
    try:
        yield
    finally:
        with _uses_lock:
            _agent_uses[id(agent)] -= 1
            is_last = not _agent_uses[id(agent)]
            if is_last:
                del _agent_uses[id(agent)]
        close = getattr(agent, "close", None)
        if is_last and close is not None:
            await close()


def use_workspaces(config: EvalConfig, dataset_folder: Path | None) -> EvalConfig:
    """Wrap the agent, and the gateway around it: work up to a limit of the gateway is checked."""
    from .workspace_agent import WorkspaceAgent  # loads what starts processes

    assert config.agent is not None
    agent = WorkspaceAgent(config.agent, config, dataset_folder=dataset_folder)
    return replace(config, agent=agent)


def _limit_concurrency(config: EvalConfig) -> EvalConfig:
    """Run fewer samples at once if the agent is heavy and the run sets no number itself."""
    usual = getattr(config.agent, "usual_concurrency", None)
    if usual is None or config.concurrency != EvalConfig.concurrency:
        return config
    return replace(config, concurrency=usual)


def _read_resumed_cost(run: Run, config: EvalConfig) -> float:
    """Return the cost of a run so far. Raises `ConfigError` for a limit on unknown costs."""
    if config.max_cost_usd is None:
        return 0.0
    totals = run.totals
    if config.rolls_out and totals.cost_known < totals.recorded:
        raise ConfigError(
            f"max_cost_usd={config.max_cost_usd:g} cannot be enforced: the cost of "
            f"{totals.recorded - totals.cost_known} recorded samples is unknown",
            where=f"run {run.id!r}",
            hint="resume the run without the limit",
        )
    return (totals.cost_usd or 0.0) + run.attempts_cost_usd()


def _check_price(config: EvalConfig) -> None:
    """Raise `ConfigError` for a cost limit when the price of the model is unknown."""
    endpoint, limit = config.endpoint, config.max_cost_usd
    if limit is None and config.run_limits is not None:
        limit = config.run_limits.max_cost_usd
    if limit is None or endpoint is None:
        return
    if find_price(endpoint, config.client.prices) is None:
        model = f"{endpoint.provider}:{endpoint.model}"
        raise ConfigError(
            f"max_cost_usd={limit:g} cannot be enforced: the price of {model!r} is unknown",
            where="EvalConfig",
            hint="add the price to a price table, ClientSettings(prices=...): "
            f'{{"models": {{"{model}": '
            '{"input": 0.1, "output": 0.4}}}, in US dollars for a million tokens',
        )


def _open_sample_stream(dataset: Source | SampleStream, config: EvalConfig) -> SampleStream:
    if not isinstance(dataset, SampleStream):
        dataset = load_samples(dataset, config.max_samples)
    elif config.max_samples is not None:
        dataset = dataset.with_limit(config.max_samples)
    return dataset.with_prompt(config.prepare_messages)


def _count_samples(samples: SampleStream, config: EvalConfig, *, must_count: bool) -> int | None:
    """Count the samples, if that is possible up front. Raises `ConfigError` for a wrong prompt.

    With `must_count`, they are counted unless that takes a download or the only pass.
    """
    prepare = config.prepare_messages
    template = prepare if isinstance(prepare, PromptTemplate) else None
    checked = samples if template is None else template.check_samples(samples)
    if config.uses_workspace:
        checked = _check_workspace_rows(checked, _find_dataset_folder(samples))
    # Reading the whole file first finds a bad row before any model call is paid for.
    is_mock = config.endpoint is not None and config.endpoint.provider == "mock"
    pays = config.rolls_out and not is_mock
    in_memory = (must_count or config.uses_workspace) and samples.total is not None
    must_count = must_count or pays or template is not None or config.uses_workspace
    if in_memory or (samples.file is not None and must_count):
        return sum(1 for _ in checked)
    if template is not None and not samples.reads_once:
        # A dataset of a hub is not downloaded twice: its rows have the same fields.
        for _ in checked if samples.total is not None else islice(checked, 1):
            pass
    return samples.total


def _find_dataset_folder(samples: SampleStream) -> Path | None:
    return None if samples.file is None else Path(samples.file).parent


def _check_workspace_rows(samples: Iterable[Sample], folder: Path | None) -> Iterator[Sample]:
    from assay.agents import check_workspace_row  # loads what copies folders

    for sample in samples:
        check_workspace_row(sample, dataset_folder=folder)
        yield sample


def create_run_id(name: str) -> str:
    """Return a unique run id made of the name, the time and random digits."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "eval"
    return f"{slug}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def _build_prompt_checks(
    store: Store, spec: RunSpec, resume: Resume, config: EvalConfig
) -> list[PromptCheck]:
    """Build the prompt checks of a resumed run. Raises `ConfigError` for another configuration."""
    # Checked before the run is claimed, so that a refusal changes nothing in the store.
    run = store.run(resume.run_id)
    if resume.rescore:
        if not config.rolls_out:
            raise ConfigError(
                "a configuration without an endpoint has no rollouts to reuse",
                where="Resume(rescore=True)",
                hint="start a new run",
            )
        check_same_config(run.spec, spec, ignore=SCORER_SETTINGS)
    else:
        check_resume_spec(
            run.spec,
            spec,
            allow_changed_dataset=resume.allow_changed_dataset,
            allow_changed_scorer=config.rolls_out and not run.totals.recorded,
        )
    # Without `prepare_messages` a prompt is a row of the dataset, which is allowed to change.
    only_rows = config.prepare_messages is None and resume.allow_changed_dataset
    if not config.rolls_out or not resume.check_prompts or only_rows:
        return []
    return [PromptCheck(each, config) for each in iterate_reused_runs(run, store)]


async def _check_resume(
    store: Store, prepared: PreparedEvaluation, resume: Resume
) -> Iterable[Sample]:
    """Return the samples to run. Raises `ConfigError` for a changed configuration or prompt."""
    config, samples = prepared.config, prepared.samples
    checks = _build_prompt_checks(store, prepared.spec, resume, config)
    if not checks:
        return samples
    checked = check_each_sample(samples, checks)
    if samples.reads_once:
        return checked  # the run checks it while reading: the stream cannot be read twice
    for number, _ in enumerate(checked):
        if number % _YIELD_EVERY == 0:
            await asyncio.sleep(0)  # let a signal handler run
    await check_opening(checks[0], config)
    return samples


def start_or_resume(
    store: Store, spec: RunSpec, resume: Resume | str | None, *, allow_changed_scorer: bool
) -> Run:
    """Start a new run, or claim the one to resume.

    With `allow_changed_scorer` a run without results may be resumed with another scorer.
    """
    if resume is None:
        return store.start_run(spec)
    if isinstance(resume, str):
        resume = Resume(resume)
    return store.resume_run(
        resume.run_id,
        spec,
        allow_changed_dataset=resume.allow_changed_dataset,
        allow_changed_scorer=allow_changed_scorer,
        take_over=resume.take_over,
    )
