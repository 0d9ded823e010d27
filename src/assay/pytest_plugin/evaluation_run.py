"""One evaluation test: from its samples to its runs."""

import asyncio
import functools
import inspect
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.agents import Limits, is_model_ref, resolve_agent
from assay.datasets import SampleStream, load_samples
from assay.errors import RunStopped
from assay.providers import to_endpoint
from assay.runner import (
    EvalConfig,
    EvalReport,
    RescoreOptions,
    Resume,
    Stop,
    build_eval_report,
    evaluate,
    rescore,
)
from assay.scorers import ScoreFunction
from assay.store import Store
from assay.types import Endpoint, EvaluateResult, Sample, compute_file_sha256

from .assertions import FailedAssertions
from .batch import (
    GroupMember,
    GroupResults,
    group_members,
    iterate_members,
    judge_groups,
    judge_groups_in_loop,
)
from .collection import name_endpoints
from .decorator import ENDPOINT_ARGUMENT, EvalOptions, TranslatedOptions
from .environment_servers import build_token_redactor, describe_environment, open_environment
from .evaluation_record import read_minimum
from .sample_progress import watch_samples
from .scorer_call import UserFunction, bind_user_function
from .session_report import Evaluations
from .summary_file import digest_rows

if TYPE_CHECKING:
    import pytest

_SCORER_SIGNATURE = inspect.Signature(
    [inspect.Parameter("sample", inspect.Parameter.POSITIONAL_ONLY)]
)


@dataclass
class TestRun:
    """The run of a test with one endpoint, or without any."""

    __test__ = False

    endpoint: str | None
    """The name of the endpoint, where one test has several."""

    report: EvalReport
    skipped: str
    """A description of the skipped rows; "" for none."""

    config: dict[str, Any]
    """The configuration of the rollouts; rescoring puts the results into another run."""

    assertions: FailedAssertions


@dataclass
class Evaluation:
    """One execution of an evaluation test."""

    item: "pytest.Function"
    options: EvalOptions
    evaluations: Evaluations
    runs: list[TestRun] = field(default_factory=list)
    """The runs so far, also those of an interrupted test."""

    function: UserFunction | None = None
    """The test's function; None until it is bound."""

    def __post_init__(self) -> None:
        # Kept as long as the evaluation: redaction ends when the redactor is collected.
        self._redactor = build_token_redactor(self.options)
        self._settings = self.evaluations.settings

    def run(self) -> None:
        """Evaluate every sample with every endpoint of this test. Fills `runs`."""
        self.function = function = bind_user_function(self.item, self.options)
        asyncio.run(self._roll_out(function))
        if self.options.takes_lists and not self.interrupted:
            # Not in a loop: a synchronous function may start one of its own.
            groups, concurrency = self._build_groups(), self.options.concurrency
            asyncio.run(self._rescore(judge_groups(function, groups, concurrency=concurrency)))

    async def run_in_loop(self) -> None:
        """Run the evaluation of an async function in the loop of the test."""
        self.function = function = bind_user_function(self.item, self.options)
        await self._roll_out(function)
        if self.options.takes_lists and not self.interrupted:
            groups, concurrency = self._build_groups(), self.options.concurrency
            results = await judge_groups_in_loop(function, groups, concurrency=concurrency)
            await self._rescore(results)

    @functools.cached_property
    def dataset_fingerprint(self) -> str | None:
        """The SHA-256 of the file or list of rows; None for any other source."""
        file, rows = self._load_samples().file, self.options.samples
        if file is not None:
            return compute_file_sha256(file)
        in_memory = isinstance(rows, list | tuple) and self._settings.rows is None
        return digest_rows(rows) if in_memory else None

    @property
    def interrupted(self) -> bool:
        return any(run.report.interrupted for run in self.runs)

    async def _roll_out(self, function: UserFunction) -> None:
        endpoints, assertions = self._list_endpoints(), function.assertions
        # A parameter that the first sample does not have raises before the first model call.
        first = next(iter(self._load_samples(most=1)), None)
        if first is not None:
            function.takes.of(first)
        asks = any(endpoint is not None for _, endpoint in endpoints)
        options = self.options
        rolled_out = asks or options.rollout_fn is not None or options.agent is not None
        async with open_environment(self.options, rolled_out=rolled_out) as environment:
            for name, endpoint in endpoints:
                config = self._build_config(function, environment, endpoint)
                try:
                    report, skipped = await self._evaluate_endpoint(config, name)
                except RunStopped as stopped:
                    # A run that hit its limit still has results: they belong in the summary.
                    if stopped.run_id is not None:
                        where = self._settings.store
                        with Store.open(where, create=False) as store:
                            run = store.run(stopped.run_id)
                            report = build_eval_report(run, store, reopen=where, interrupted=False)
                        self.runs.append(TestRun(name, report, "", report.spec.config, assertions))
                    raise
                self.runs.append(TestRun(name, report, skipped, report.spec.config, assertions))
                if self.interrupted:
                    return

    def _build_config(
        self, function: UserFunction, environment: Any, endpoint: Endpoint | None
    ) -> EvalConfig:
        options = self.options
        score = _defer_score if options.takes_lists else function.score_sample
        return EvalConfig(
            agent=None if is_model_ref(options.agent) else options.agent,
            endpoint=endpoint,
            workspace=options.workspace,
            setup=options.setup,
            check=options.check,
            score_fn=_wrap_as_user_function(score, options),
            prepare_messages=options.prepare_messages,
            rollout_fn=options.rollout_fn,
            environment=environment,
            name=self.item.name,
            limits=Limits(max_turns=options.max_turns),
            repeats=options.repeats,
            concurrency=options.concurrency,
            timeout_s=options.timeout_s,
            seed=options.seed,
            bounds=options.bounds,
            replay=self._find_recording(),
            replay_missing="live" if options.replay_missing == "live" else "fail",
            **{
                "fail_on_error": options.fail_on_error,
                "max_cost_usd": options.max_cost_usd,
                **self._settings.limits(),
            },
        )

    def _find_recording(self) -> Any:
        """Return the recording to replay, that of the command line first; None for none."""
        given = self._settings.replay
        if given is None:
            return _locate_samples(self.options.replay, self.item.path)
        # A folder has one recording for each test, under the name that its runs have.
        return given / f"{self.item.name}.jsonl" if given.is_dir() else given

    async def _evaluate_endpoint(
        self, config: EvalConfig, name: str | None
    ) -> tuple[EvalReport, str]:
        """Return the report of a run, and a description of the skipped rows."""
        store, stop = self._settings.store, Stop()
        with _stop_on_ctrl_c(stop), watch_samples(self.item.config, self.item.name) as watch:
            metadata = self._build_metadata(config, name)
            samples = self._load_samples().with_metadata(metadata)
            report = await evaluate(samples, config, store=store, watch=watch, stop=stop)
            for _ in range(self.options.retries):
                if not report.summary.failed or report.interrupted:
                    break
                # Within one session only random prompts can differ, and they may: do not compare.
                resume = Resume(report.run_id, allow_changed_dataset=True, check_prompts=False)
                samples = self._load_samples().with_metadata(metadata)
                report = await evaluate(
                    samples, config, store=store, resume=resume, watch=watch, stop=stop
                )
        return report, str(samples.skipped) if samples.skipped else ""

    def _build_metadata(self, config: EvalConfig, name: str | None) -> dict[str, Any]:
        options, endpoint, samples = self.options, config.endpoint, self._load_samples()
        model = None if endpoint is None else f"{endpoint.provider}:{endpoint.model}"
        threshold, rollout = read_minimum(options.threshold), options.rollout_fn
        agent = None if config.agent is None else config.agent.name
        if agent is None and rollout is not None:
            agent = str(getattr(rollout, "__qualname__", type(rollout).__qualname__))
        extra: dict[str, Any] = {}
        # eval-protocol writes these into the metadata of every row, where tests read them.
        if isinstance(options, TranslatedOptions) and options.completion_params:
            if self._settings.model:
                extra["completion_params"] = {"model": self._settings.model}
            else:
                endpoints = options.endpoints or (endpoint,)
                pairs = zip(endpoints, options.completion_params, strict=True)
                extra["completion_params"] = next(p for one, p in pairs if one is endpoint)
        return {
            "dataset": samples.name,
            "dataset_fingerprint": self.dataset_fingerprint,
            "test": self.item.nodeid,
            "endpoint": name or model,
            "agent": agent,
            "environment": describe_environment(options),
            "threshold": threshold,
            "repeats": options.repeats,
            "seed": options.seed,
            "tags": list(options.tags),
            **extra,
        }

    def _load_samples(self, most: int | None = None) -> SampleStream:
        limits = [self.options.max_samples, self._settings.max_samples, most]
        known = [limit for limit in limits if limit is not None]
        if self._settings.rows is not None:
            # A summary has one record for each endpoint that a groupwise test judges together.
            nodeid, endpoints = self.item.nodeid, self.options.endpoints
            names = {f"{nodeid}[{name}]" for name in name_endpoints(endpoints)} | {nodeid}
            rows = BundledRows(self._settings.rows, frozenset(names))
            return load_samples(rows, min(known) if known else None)
        return load_samples(
            _locate_samples(self.options.samples, self.item.path),
            min(known) if known else None,
            on_bad_row="skip" if self.options.on_bad_row == "skip" else "fail",
            adapter=self.options.adapter,
        ).with_prompt(self.options.prepare_messages)

    def _list_endpoints(self) -> list[tuple[str | None, Endpoint | None]]:
        options, model = self.options, self._settings.model
        names: list[str | None] = [None]
        # pytest passes a test one of its `endpoints`, unless it judges all of them together.
        given: list[Any] = [model or self.item.funcargs.get(ENDPOINT_ARGUMENT, options.endpoint)]
        if options.groupwise and options.endpoints and not model:
            names, given = [*name_endpoints(options.endpoints)], [*options.endpoints]
        where = "@evaluation_test"
        if given == [None] and is_model_ref(options.agent):
            given = [resolve_agent(options.agent, where=where)]
        parsed = [None if each is None else to_endpoint(each, where=where) for each in given]
        return list(zip(names, parsed, strict=True))

    def _build_groups(self) -> list[list[GroupMember]]:
        # One call for each group: all results, or all results of one sample.
        found = [
            member
            for run in self.runs
            for member in iterate_members(run.endpoint, run.report.samples)
        ]
        groups = [found]
        if self.options.groupwise:
            groups = group_members(found, lambda member: member.sample.id)
        # eval-protocol calls such a function once for each repeat.
        if isinstance(self.options, TranslatedOptions):
            groups = [
                part
                for group in groups
                for part in group_members(group, lambda member: member.repeat)
            ]
        return [group for group in groups if group]

    async def _rescore(self, results: GroupResults) -> None:
        for run in self.runs:
            if not run.report.summary.results:
                continue
            score = functools.partial(results.of, run.endpoint)
            run.report = await rescore(
                run.report.run_id,
                _wrap_as_user_function(score, self.options),
                store=self._settings.store,
                options=RescoreOptions(
                    name=self.item.name,
                    keep_failed=True,
                    bounds=self.options.bounds,
                    stops_early=False,  # every result exists already; stopping would save nothing
                ),
            )


@dataclass(frozen=True)
class BundledRows:
    """The rows of some tests in a bundle, each once: endpoints of one test share its rows."""

    file: Path
    tests: frozenset[str]

    def __iter__(self) -> Iterator[Sample]:
        seen: set[str] = set()
        for sample in load_samples(self.file, adapter=Sample.model_validate).with_repeats():
            extra = sample.__pydantic_extra__ or {}
            # `test` marks results of the old session; new results get a mark of their own.
            if extra.pop("test", None) in self.tests and sample.id not in seen:
                seen.add(sample.id)
                yield sample


def _defer_score(sample: Sample) -> object:
    # Functions that take lists score after all rollouts; until then results are placeholders.
    return EvaluateResult(is_score_valid=False, reason="judged together with the others")


def _wrap_as_user_function(
    score: Callable[[Sample], object], options: EvalOptions
) -> ScoreFunction:
    # The name and source of the user's function are part of the run's fingerprint.
    @functools.wraps(options.function)
    def scorer(sample: Sample) -> object:
        return score(sample)

    # Otherwise inspect would look through to the parameters of the user's function.
    scorer.__signature__ = _SCORER_SIGNATURE  # type: ignore[attr-defined]  # read by inspect
    return scorer


@contextmanager
def _stop_on_ctrl_c(stop: Stop) -> Iterator[None]:
    """Stop the run on the first Ctrl-C and keep its results; the next one interrupts pytest."""
    loop = asyncio.get_running_loop()
    usual = signal.getsignal(signal.SIGINT)

    def stop_now() -> None:
        signal.signal(signal.SIGINT, usual)
        # The second request aborts samples in progress instead of waiting for them.
        stop.request()
        stop.request()

    def raise_next_time(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    try:
        # Wakes the loop, also for a signal that another thread receives.
        loop.add_signal_handler(signal.SIGINT, stop_now)
    except (NotImplementedError, RuntimeError, ValueError):
        # Not the main thread, or a system without signals: Ctrl-C cancels the task instead.
        yield
        return
    # Where a function of the user blocks the loop, the next Ctrl-C must raise there.
    signal.signal(signal.SIGINT, raise_next_time)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, usual)


def _locate_samples(samples: Any, test_file: Path) -> Any:
    # Relative paths refer to the working directory first, then to the folder of the test file.
    if isinstance(samples, str | Path) and not Path(samples).exists():
        beside = test_file.parent / samples
        if beside.exists():
            return beside
    return samples
