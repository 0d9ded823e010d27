"""`evaluate`: from a dataset and a configuration to a recorded run."""

import asyncio
import hashlib
import re
import secrets
from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from assay.datasets import SampleStream, Source, load_samples
from assay.errors import ConfigError, RunStopped, StoreError
from assay.providers import ModelClient, connect, find_price
from assay.store import (
    SCORER_SETTINGS,
    Run,
    RunSpec,
    RunStatus,
    Store,
    check_resume_spec,
    check_same_config,
)
from assay.types import Sample, stable_id

from .engine import EvalEngine
from .eval_config import EvalConfig
from .eval_report import EvalReport, build_eval_report
from .gc_tuning import reduce_gc_frequency
from .kept_rollouts import KeptRollouts, iterate_reused_runs
from .opening_messages import check_opening
from .rollout_job import RolloutJob, build_rollout_jobs
from .run_progress import Progress, ProgressCallback, RunControl, Stop
from .saved_sessions import save_sessions
from .sent_messages import PromptCheck, check_each_sample

_YIELD_EVERY = 1000


@dataclass(frozen=True)
class Resume:
    """Which run to go on with, and what may differ from when it was started."""

    run_id: str = "latest"
    allow_changed_dataset: bool = False
    """Match the samples of a changed dataset by id; otherwise it is refused."""

    take_over: bool = False
    """Go on although another live process works on the run."""

    rescore: bool = False
    """Start a new run instead, with another scorer: rollouts of the run that are recorded are
    scored again, and only those that are missing are made."""

    check_prompts: bool = True
    """Refuse when a recorded sample was asked with other messages than it would be now."""


async def evaluate(
    dataset: Source | SampleStream,
    config: EvalConfig,
    *,
    store: Store | str | Path | None = None,
    resume: Resume | str | None = None,
    watch: ProgressCallback | None = None,
    stop: Stop | None = None,
) -> EvalReport:
    """Roll out and score every sample, recording each durably as it ends.

    A failure is data: it is attributed to its boundary, kept with its sample, and the others go
    on. Raises errors that concern the whole run: a dataset that cannot be read, a refused key, a
    store that cannot be written, and `RunStopped` when nothing succeeds or a limit of the run is
    reached. What was recorded before that is kept, and the run can be resumed.
    """
    with reduce_gc_frequency():
        # Everything that can be wrong with the request is found here, before a run begins.
        _check_price(config)
        client = None if config.endpoint is None else connect(config.endpoint, config.client)
        samples = _open_sample_stream(dataset, config)
        total = _count_samples(samples, config)
        spec = _build_eval_spec(samples, config, total)
        expected = Progress(total=None if total is None else total * config.repeats)
        control = RunControl(expected, watch, stop or Stop())
        create = resume is None
        opened = store if isinstance(store, Store) else Store.open(store, create=create)
        try:
            given = Resume(resume) if isinstance(resume, str) else resume
            checks = [] if given is None else _build_prompt_checks(opened, spec, given, config)
            read = await _check_prompts(checks, samples, config) if checks else samples
            del checks  # 16 bytes for each recorded sample
            run = _start_eval_run(opened, spec, given, config)

            def todo(done: Container[str]) -> Iterator[RolloutJob]:
                left = build_rollout_jobs(iter(read), config, run, done)
                is_fresh = run.is_new and run.spec.reuses is None
                reuses = config.rolls_out and not is_fresh
                return KeptRollouts(run, opened).fill_kept(left) if reuses else left

            await execute_jobs(run, todo, config, client=client, control=control)
            if config.save_sessions:
                save_sessions(run, opened, config)
            interrupted = control.stop.requested
            report = build_eval_report(run, opened, reopen=store, interrupted=interrupted)
            return replace(report, skipped=samples.skipped)
        finally:
            if opened is not store:
                opened.close()


async def execute_jobs(
    run: Run,
    todo: Callable[[Container[str]], Iterator[RolloutJob]],
    config: EvalConfig,
    *,
    client: ModelClient | None,
    control: RunControl,
) -> None:
    """Do what is not done yet, and say in the store how the run ended."""
    # Asking a set in C whether it holds nothing is cheaper.
    done = frozenset[str]() if run.is_new else run.done() or frozenset[str]()
    status: RunStatus | None = "interrupted"
    try:
        if not run.is_new:
            control.progress.resume_from(len(done), run.totals)
            control = replace(control, spent_usd=_read_resumed_cost(run, config))
        async with _close_client_after(client), run.writer() as writer:
            await EvalEngine(config, client, writer, control).run(todo(done))
        if not control.stop.requested:
            status = "completed"
    except Exception as error:
        if isinstance(error, RunStopped):
            error.run_id = run.id
        # A store that just broke is not told: one that is locked would be waited for once more.
        status = None if isinstance(error, StoreError) else "failed"
        raise
    finally:
        if status is not None:
            # Why the run ended is on its way, and worth more than that the store broke as well.
            with suppress(StoreError):
                run.finish(status)


def _read_resumed_cost(run: Run, config: EvalConfig) -> float:
    """What a resumed run has cost. Raises `ConfigError` if there is a limit and it is unknown."""
    if config.max_cost_usd is None:
        return 0.0
    totals = run.totals
    if config.endpoint is not None and totals.cost_known < totals.recorded:
        raise ConfigError(
            f"max_cost_usd={config.max_cost_usd:g} cannot be kept: the cost of "
            f"{totals.recorded - totals.cost_known} recorded samples is unknown",
            where=f"run {run.id!r}",
            hint="resume the run without the limit",
        )
    return (totals.cost_usd or 0.0) + run.attempts_cost_usd()


def _check_price(config: EvalConfig) -> None:
    """Raise `ConfigError` for a limit on costs that are not known."""
    endpoint = config.endpoint
    if config.max_cost_usd is None or endpoint is None:
        return
    if find_price(endpoint, config.client.prices) is None:
        model = f"{endpoint.provider}:{endpoint.model}"
        raise ConfigError(
            f"max_cost_usd={config.max_cost_usd:g} cannot be kept: the price of {model!r} is "
            "unknown",
            where="EvalConfig",
            hint=f'give it in a price table, ClientSettings(prices=...): {{"models": {{"{model}": '
            '{"input": 0.1, "output": 0.4}}}, in US dollars for a million tokens',
        )


@asynccontextmanager
async def _close_client_after(client: ModelClient | None) -> AsyncIterator[None]:
    try:
        yield
    finally:
        if client is not None:
            await client.close()


def _open_sample_stream(dataset: Source | SampleStream, config: EvalConfig) -> SampleStream:
    if not isinstance(dataset, SampleStream):
        return load_samples(dataset, config.max_samples)
    if config.max_samples is not None:
        raise ConfigError(
            "`max_samples` is set, but the dataset is a stream already",
            where="evaluate()",
            hint="give it to load_samples()",
        )
    return dataset


def _count_samples(samples: SampleStream, config: EvalConfig) -> int | None:
    """How many samples there are. Reads all of a file before anything is paid for."""
    pays = config.endpoint is not None and config.endpoint.provider != "mock"
    if samples.file is not None and pays:
        return sum(1 for _ in samples)
    return samples.total


def _build_eval_spec(samples: SampleStream, config: EvalConfig, total: int | None) -> RunSpec:
    description = config.describe()
    return RunSpec(
        id=create_run_id(config.name),
        name=config.name,
        config=description,
        config_fingerprint=stable_id(description),
        dataset=samples.name,
        dataset_fingerprint=None if samples.file is None else _digest_dataset_file(samples.file),
        total=total,
        repeats=config.repeats,
    )


def create_run_id(name: str) -> str:
    """A name that tells what and when, and that no other run has."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "eval"
    return f"{slug}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def _digest_dataset_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _build_prompt_checks(
    store: Store, spec: RunSpec, resume: Resume, config: EvalConfig
) -> list[PromptCheck]:
    """What compares the prompts of a run with today's. Raises `ConfigError` for another run.

    Before the run is claimed: what is refused here changes nothing in the store.
    """
    run = store.run(resume.run_id)
    if resume.rescore:
        _check_same_rollouts(run.spec, spec, config)
    else:
        check_resume_spec(
            run.spec,
            spec,
            allow_changed_dataset=resume.allow_changed_dataset,
            allow_changed_scorer=config.rolls_out and not run.totals.recorded,
        )
    # Then messages are rows, and other rows are allowed.
    only_rows = config.prepare_messages is None and resume.allow_changed_dataset
    if not config.rolls_out or not resume.check_prompts or only_rows:
        return []
    return [PromptCheck(each, config) for each in iterate_reused_runs(run, store)]


async def _check_prompts(
    checks: list[PromptCheck], samples: SampleStream, config: EvalConfig
) -> Iterable[Sample]:
    """The samples to run. Raises `ConfigError` for a prompt that changed.

    A stream that can be read only once is checked while the run reads it.
    """
    checked = check_each_sample(samples, checks)
    if samples.reads_once:
        return checked
    for number, _ in enumerate(checked):
        if number % _YIELD_EVERY == 0:
            await asyncio.sleep(0)  # a signal may ask to stop
    await check_opening(checks[0], config)
    return samples


def _check_same_rollouts(stored: RunSpec, given: RunSpec, config: EvalConfig) -> None:
    if not config.rolls_out:
        raise ConfigError(
            "nothing is rolled out without an endpoint, and nothing can be reused",
            where="Resume(rescore=True)",
            hint="start a new run",
        )
    check_same_config(stored, given, ignore=SCORER_SETTINGS)


def _start_eval_run(store: Store, spec: RunSpec, resume: Resume | None, config: EvalConfig) -> Run:
    if resume is not None and resume.rescore:
        return store.start_run(replace(spec, reuses=store.run(resume.run_id).id))
    return start_or_resume(store, spec, resume, allow_changed_scorer=config.rolls_out)


def start_or_resume(
    store: Store, spec: RunSpec, resume: Resume | str | None, *, allow_changed_scorer: bool
) -> Run:
    """A new run, or the one to resume.

    `allow_changed_scorer`: a run without a single result may be resumed with another scorer.
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
