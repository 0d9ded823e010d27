"""`grpo_train`: roll out, score, compare within groups, update; until the last step is done.

A step's rollouts are made by the same engine, environments and score functions as an evaluation,
and are recorded as a run. An interrupted training can be resumed by another process.
"""

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from assay.agents import AgentRef
from assay.datasets import SampleStream, SkippedRows, Source
from assay.environments import EnvironmentLike, accept_environment_alias
from assay.errors import ConfigError, StoreError
from assay.providers import ClientSettings, LocalClient, LocalModel, ModelClient
from assay.runner import (
    EngineRef,
    EvalConfig,
    PrepareMessages,
    find_agent_gateway,
    read_engine,
    refuse_file_store,
    run_blocking,
    use_workspaces,
)
from assay.scorers import ScoreFunction
from assay.store import RunStatus, Store

from .batches import select_trained_rollouts
from .checkpoints import Checkpoints, TrainingProgress, write_folder
from .curve import render_reward_curve
from .deterministic_batches import Lockstep
from .grpo_config import (
    GRPOConfig,
    build_policy_endpoint,
    build_server_endpoint,
    list_server_conflicts,
)
from .grpo_plan import GRPOPlan, begin_run, plan_training
from .held_out import EvalStep, HeldOutEvaluation, find_best, is_exhausted
from .metric_sinks import MetricReport, TrackedTraining, check_metric_sinks
from .output_folder import MetricsFile, OutputFolder, RecordedMetrics
from .packages import check_training_packages
from .policy import Policy, fix_seed
from .preserve_state import ModelSettings, preserve_settings
from .rollout_collector import RolloutCollector, StepInterrupted, StepRollouts
from .rollout_pipeline import RolloutPipeline
from .served_policy import EveryRolloutStale, ServedPolicy
from .step_statistics import StepMetrics, Update, compute_step_metrics
from .trained_weights import choose_load_dtype, warn_if_unchanged
from .training_session import (
    CheckpointSaved,
    EvaluationFinished,
    RolloutFinished,
    StepFinished,
    TrainingEvent,
    TrainingSession,
    TrainingStarted,
)
from .trl_backend import TrlFollower, TrlLeader, TrlListener, TrlStart
from .trl_processes import check_single_process
from .trl_trainer import check_trl

if TYPE_CHECKING:
    from assay.runner import RayCluster


@dataclass(frozen=True)
class GRPOResult:
    """A completed training, or one that was stopped with a checkpoint."""

    run_id: str
    store: str
    """Where the run is kept; without user and password."""

    steps: list[StepMetrics]
    """The metrics of all steps, including those before a resume."""

    model: LocalModel
    """The trained model, in memory."""

    output: Path
    model_path: Path | None
    """The trained model as a Hugging Face folder; None when it was interrupted."""

    curve_path: Path
    skipped: SkippedRows
    """Invalid rows of the prompts that were skipped."""

    evaluations: list[EvalStep] = field(default_factory=list)
    """The evaluations of the held-out dataset, including those before a resume."""

    best_model_path: Path | None = None
    """The model with the highest score of them; None where that is the one before training."""

    stopped_early: bool = False
    """Whether the training ended because its evaluations stopped improving."""

    interrupted: bool = False
    follows: bool = False
    """Whether this process followed another one, which recorded the training."""

    @property
    def rewards(self) -> list[float | None]:
        """The mean reward of each step."""
        return [each.reward for each in self.steps]


@accept_environment_alias("environment_cls")
def grpo_train(  # noqa: PLR0913  # the parts of an evaluation, and where it learns
    config: GRPOConfig,
    prompts: Source | SampleStream,
    score_fn: ScoreFunction | None,
    environment: EnvironmentLike | None = None,
    *,
    agent: AgentRef | None = None,
    eval_dataset: Source | SampleStream | None = None,
    prepare_messages: PrepareMessages | None = None,
    model: LocalModel | None = None,
    engine: EngineRef | None = None,
    session: TrainingSession | None = None,
) -> GRPOResult:
    """Train a model on the scores of its own rollouts, and record every one of them.

    `score_fn` is that of an evaluation; None takes the environment's own rewards.
    `environment` creates a new environment for each rollout, as in an evaluation.
    `agent` rolls out in place of the environment, as in an evaluation: a command, a service, a
    function or an `Agent`. It reaches the policy through the gateway, at `OPENAI_BASE_URL` and the
    like, or through `context.client`.
    `eval_dataset` is never trained on: every `config.eval_every` steps it is rolled out and scored
    in the same way, as a run of its own.
    `prepare_messages` is that of an evaluation too; `config` may have it instead.
    `model` is a loaded model, which is trained in place.
    `engine` makes the rollouts on the workers of Ray, which ask the server that `config` names;
    `config` may have it instead.
    Called within a running event loop, this blocks it; await `grpo_train_async` there instead.
    Ctrl-C cancels the training in both, and its checkpoints are kept.
    """
    training = grpo_train_async(
        config,
        prompts,
        score_fn,
        environment,
        agent=agent,
        eval_dataset=eval_dataset,
        prepare_messages=prepare_messages,
        model=model,
        engine=engine,
        session=session,
    )
    return run_blocking(training, thread_name="assay-training")


@accept_environment_alias("environment_cls")
async def grpo_train_async(  # noqa: PLR0913  # as above
    config: GRPOConfig,
    prompts: Source | SampleStream,
    score_fn: ScoreFunction | None,
    environment: EnvironmentLike | None = None,
    *,
    agent: AgentRef | None = None,
    eval_dataset: Source | SampleStream | None = None,
    prepare_messages: PrepareMessages | None = None,
    model: LocalModel | None = None,
    engine: EngineRef | None = None,
    session: TrainingSession | None = None,
) -> GRPOResult:
    """Train like `grpo_train`, without blocking the event loop."""
    session = session or TrainingSession()
    if prepare_messages is not None:
        config = config.model_copy(update={"prepare_messages": prepare_messages})
    if engine is not None:
        config = config.model_copy(update={"engine": read_engine(engine, where="grpo_train()")})
        if unfit := list(list_server_conflicts(config)):
            raise ConfigError("; ".join(unfit), where="grpo_train()")
    if config.engine is not None:
        refuse_file_store(session.store)
    check_training_packages()
    check_metric_sinks(config.report_to)
    if config.backend == "local":
        check_single_process()
    plan = plan_training(
        config, prompts, score_fn, environment, agent=agent, eval_dataset=eval_dataset
    )
    if config.backend == "trl" and not (await asyncio.to_thread(check_trl, config)).is_first:
        return await _follow_leader(plan, model)
    output = OutputFolder(config.output)
    output.check(resume=session.resume)
    done = Checkpoints(output.checkpoints, keep=config.keep_checkpoints).steps()
    if session.resume and done and done[-1] > config.num_steps:
        raise ConfigError(
            f"the training has {done[-1]} steps already, and num_steps is {config.num_steps}",
            where=str(output.folder),
            hint=f"set num_steps to {done[-1]} or more",
        )
    async with AsyncExitStack() as stack:
        stack.enter_context(fix_seed(config.seed))
        if model is None:
            model = await asyncio.to_thread(_load_policy_model, config)
        policy = await asyncio.to_thread(Policy, model, config)
        store = session.store
        if not isinstance(store, Store):
            store = stack.enter_context(Store.open(store))
        stack.enter_context(output.claim(resume=session.resume, take_over=session.take_over))
        cluster = _build_cluster(plan, store)
        # Before the run is recorded: its workers may refuse the configuration.
        if cluster is not None and not await cluster.start(stack, session.stop):
            cluster = None  # a stopped training takes no step
        return await _GRPOTraining(plan, session, output, policy, store, cluster).run()


def _build_cluster(plan: GRPOPlan, store: Store) -> "RayCluster | None":
    """Return the cluster whose workers make the rollouts; None to make them in this process."""
    config = plan.config
    if config.engine is None:
        return None
    from assay.runner import RayCluster  # needs the extra `ray`

    collection = replace(
        plan.evaluation,
        endpoint=build_server_endpoint(config),
        client=ClientSettings(concurrency=config.concurrency),
        engine=config.engine,
    )
    return RayCluster(collection, store, plan.dataset_folder)


def _load_policy_model(config: GRPOConfig) -> LocalModel:
    # With TRL, accelerate moves the model to its device.
    device = "cpu" if config.backend == "trl" else config.device
    dtype = choose_load_dtype(config.dtype, frozen=config.lora is not None)
    return LocalModel.load(config.model_name, dtype=dtype, device=device)


async def _follow_leader(plan: GRPOPlan, model: LocalModel | None) -> GRPOResult:
    # The first of several processes rolls out and records; this one only computes gradients.
    config, output = plan.config, OutputFolder(plan.config.output)
    with fix_seed(config.seed):
        local = await asyncio.to_thread(_load_policy_model, config) if model is None else model
        policy = await asyncio.to_thread(Policy, local, config)
        checkpoints = Checkpoints(output.checkpoints, keep=config.keep_checkpoints)
        start, whole = await TrlFollower(config, policy, checkpoints).run()
    return GRPOResult(
        run_id=start.run_id,
        store=start.store,
        steps=MetricsFile(output.metrics, StepMetrics).read(),
        model=local,
        output=output.folder,
        model_path=output.model if whole else None,
        curve_path=output.curve,
        skipped=plan.skipped,
        evaluations=MetricsFile(output.evaluations, EvalStep).read(),
        best_model_path=output.best if output.best.exists() else None,
        interrupted=not whole,
        follows=True,
    )


class _GRPOTraining:
    def __init__(
        self,
        plan: GRPOPlan,
        session: TrainingSession,
        output: OutputFolder,
        policy: Policy,
        store: Store,
        cluster: "RayCluster | None",
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._config = plan.config
        self._session = session
        self._output = output
        self._policy = policy
        self._store = store
        self._checkpoints = Checkpoints(output.checkpoints, keep=plan.config.keep_checkpoints)
        self._evaluation_file = MetricsFile(output.evaluations, EvalStep)
        self._progressed = TrainingProgress()
        self._steps: list[StepMetrics] = []
        self._evaluations: list[EvalStep] = []
        self._held_out: HeldOutEvaluation | None = None
        self._settings = ModelSettings(policy.local)
        self._warned = False
        self._trl: TrlLeader | None = None
        self._served: ServedPolicy | None = None
        if plan.config.server is not None:
            self._served = ServedPolicy(plan.config, policy, session)
        if plan.config.backend == "trl":
            self._trl = TrlLeader(plan.config, policy, self._checkpoints, stop=session.stop)

    async def run(self) -> GRPOResult:
        if self._served is not None and not self._session.resume:
            # Before the run is recorded: an unfit server leaves the output folder unused.
            await self._served.start(0)
        run = begin_run(
            self._output, self._plan, self._policy, store=self._store, session=self._session
        )
        self._metrics = RecordedMetrics(MetricsFile(self._output.metrics, StepMetrics), run)
        status: RunStatus = "failed"
        local = self._policy.local
        client: ModelClient = LocalClient(local, build_policy_endpoint(self._config))
        if self._served is not None:
            client = self._served.client
        batches = local.batches
        try:
            await asyncio.to_thread(self._restore)
            if self._served is not None and self._session.resume:
                await self._served.start(self._progressed.step)
            self._notify(TrainingStarted(run.id, self._progressed.step, self._config.num_steps))
            async with AsyncExitStack() as stack:
                self._report = await asyncio.to_thread(self._open_report, run.id)
                stack.push_async_callback(asyncio.to_thread, self._report.close)
                await self._send_weight_version()
                evaluation = await self._open_agent(stack, client)
                collector = self._build_collector(client, evaluation)
                self._held_out = HeldOutEvaluation.build(
                    self._plan,
                    run.id,
                    store=self._store,
                    collector=collector,
                    watch=self._report_evaluation_progress,
                )
                resumed = self._session.resume
                await stack.enter_async_context(collector.record_in(run, resumed=resumed))
                if self._trl is None:
                    whole = await self._take_all_steps(collector)
                else:
                    start = TrlStart(run.id, self._store.where, self._progressed.step)
                    listener = TrlListener(
                        self._evaluate_if_due, self._record_step, self._report_saved
                    )
                    whole = await self._trl.run(start, collector, listener)
                await self._save()
                whole = await self._end_evaluations(whole)
            status = "completed" if whole else "interrupted"
        except asyncio.CancelledError:
            status = "interrupted"
            raise
        finally:
            # The model may outlive the training: its calls must not wait for other rollouts.
            local.batches = batches
            await client.close()
            # A broken store cannot record the status; its own error is already being raised.
            with suppress(StoreError):
                run.finish(status)
        result = await asyncio.to_thread(self._build_result, run.id, whole)
        if self._trl is not None:
            await self._trl.release_followers(whole)
        return result

    def _open_report(self, run_id: str) -> MetricReport:
        config, folder = self._config, self._output.folder
        training = TrackedTraining(run_id, config.name, folder, config.describe())
        report = MetricReport(config.report_to, training, self._output)
        report.catch_up(self._steps, self._evaluations)
        return report

    async def _open_agent(self, stack: AsyncExitStack, client: ModelClient) -> EvalConfig:
        """Return the evaluation, with its agent behind a gateway that all steps share."""
        evaluation = self._plan.evaluation
        if self._cluster is not None:
            return evaluation  # each worker has a gateway
        if (close := getattr(evaluation.agent, "close", None)) is not None:
            stack.push_async_callback(close)
        if (gateway := find_agent_gateway(evaluation, client)) is None:
            return evaluation
        wired = replace(evaluation, agent=await stack.enter_async_context(gateway))
        # Of the agent itself: a gateway around it has no such attribute.
        if evaluation.uses_workspace:
            wired = use_workspaces(wired, self._plan.dataset_folder)
        return wired

    async def _send_weight_version(self) -> None:
        if self._served is not None and self._cluster is not None:
            assert self._served.client.version is not None  # the server was started
            await self._cluster.set_weight_version(self._served.client.version)

    def _build_collector(self, client: ModelClient, evaluation: EvalConfig) -> RolloutCollector:
        plan, stop = self._plan, self._session.stop
        lockstep = None
        if plan.config.lockstep and self._served is None:
            lockstep = self._policy.local.batches = Lockstep()
            stop.listen(lockstep.release)
        return RolloutCollector(
            config=plan.config,
            evaluation=evaluation,
            order=plan.order,
            client=client,
            stop=stop,
            cluster=self._cluster,
            lockstep=lockstep,
            watch=lambda step, done, of: self._notify(RolloutFinished(step, done, of)),
        )

    def _restore(self) -> None:
        # Metrics after the checkpoint are dropped: those steps are about to be repeated.
        steps = self._checkpoints.steps() if self._session.resume else []
        if steps and self._trl is not None:
            # TRL restores the weights itself, and its steps never resample prompts.
            position = steps[-1] * self._config.prompts_per_step
            self._progressed = TrainingProgress(step=steps[-1], position=position)
        elif steps:
            self._progressed, tensors = self._checkpoints.load(
                steps[-1], device=self._policy.local.device
            )
            self._policy.weights.restore(tensors)
        self._steps = self._metrics.keep_until(self._progressed.step)
        if self._plan.held_out is not None:
            self._evaluations = self._evaluation_file.keep_until(self._progressed.step)
        self._policy.local.weight_version = f"step-{self._progressed.step}"

    async def _take_all_steps(self, collector: RolloutCollector) -> bool:
        config, stop = self._config, self._session.stop
        async with RolloutPipeline(
            collector, ahead=config.max_staleness, last=config.num_steps, stop=stop
        ) as pipeline:
            try:
                while self._progressed.step < config.num_steps:
                    if stop.requested:
                        return False
                    step = self._progressed.step + 1
                    await self._evaluate_if_due()
                    collected = await pipeline.collect(step, self._progressed.position)
                    if self._served is not None:
                        collected = await self._drop_stale(self._served, collected, step)
                    metrics = await asyncio.to_thread(self._learn, step, collected)
                    await self._record_step(metrics, collected.position)
                    if self._served is not None:
                        await self._served.push(step)
                        await self._send_weight_version()
                    if config.saves_after(step):
                        await self._save()
            except StepInterrupted:
                return False
        return True

    async def _drop_stale(
        self, served: ServedPolicy, collected: StepRollouts, step: int
    ) -> StepRollouts:
        try:
            return served.drop_stale(collected, step)
        except EveryRolloutStale:
            # A resume begins after them: recorded rollouts would be as stale again.
            await self._save()
            raise

    async def _evaluate_if_due(self) -> None:
        """Evaluate the weights after the last step, unless that is done.

        Raises `StepInterrupted` if the training is to end. Called before the next step, so that a
        resumed training first catches up on an evaluation that was interrupted.
        """
        step = self._progressed.step
        done = any(each.step == step for each in self._evaluations)
        if self._held_out is not None and self._config.evaluates_after(step) and not done:
            evaluation = await self._held_out.evaluate(step)
            is_best = find_best([*self._evaluations, evaluation]) is evaluation
            if is_best and step:
                # Before the line of the evaluation: a killed process repeats both, or none.
                await asyncio.to_thread(write_folder, self._output.best, self._save_best)
            await asyncio.to_thread(self._evaluation_file.append, evaluation)
            await asyncio.to_thread(self._report.report, "eval", evaluation)
            self._evaluations.append(evaluation)
            self._notify(EvaluationFinished(evaluation, is_best))
        if self._stopped_early:
            raise StepInterrupted

    def _save_best(self, folder: Path) -> None:
        # With TRL this is in the middle of its training, for which it changes settings.
        with preserve_settings(self._policy.local):
            self._settings.restore()
            self._policy.weights.save_model(folder)

    async def _end_evaluations(self, whole: bool) -> bool:
        """Evaluate the weights after the last step. Return whether the training is complete."""
        if whole:
            try:
                await self._evaluate_if_due()
            except StepInterrupted:
                whole = False
        return whole or self._stopped_early

    @property
    def _stopped_early(self) -> bool:
        return is_exhausted(self._evaluations, self._config.patience)

    def _report_evaluation_progress(self, step: int, done: int, of: int) -> None:
        self._notify(RolloutFinished(step, done, of, is_evaluation=True))

    async def _record_step(self, metrics: StepMetrics, position: int) -> None:
        self._progressed = TrainingProgress(step=metrics.step, position=position)
        self._policy.local.weight_version = f"step-{metrics.step}"
        await asyncio.to_thread(self._metrics.append, metrics)
        await asyncio.to_thread(self._report.report, "train", metrics)
        self._steps.append(metrics)
        if not self._warned:
            self._warned = warn_if_unchanged(
                metrics.step, metrics.weights_changed, metrics.learning_rate
            )
        self._notify(StepFinished(metrics))

    def _learn(self, step: int, collected: StepRollouts) -> StepMetrics:
        started = time.perf_counter()
        rate = self._config.learning_rate_at(step)
        rollouts = select_trained_rollouts(collected.groups, self._config)
        # Without advantages the gradient is zero, and Adam would still follow its old momentum.
        teaches = any(rollout.advantage for rollout in rollouts) or self._config.beta > 0
        stats = self._policy.update(rollouts, learning_rate=rate) if rollouts and teaches else None
        update = Update(rollouts, stats, rate, time.perf_counter() - started)
        return compute_step_metrics(step, collected, update)

    async def _save(self) -> None:
        step = self._progressed.step
        if step and step not in self._checkpoints.steps():
            state = self._policy.weights.state()
            path = await asyncio.to_thread(self._checkpoints.save, self._progressed, state)
            await self._report_saved(step, path)

    async def _report_saved(self, step: int, path: Path) -> None:
        self._notify(CheckpointSaved(step, path))

    def _notify(self, event: TrainingEvent) -> None:
        if self._session.watch is not None:
            self._session.watch(event)

    def _build_result(self, run_id: str, whole: bool) -> GRPOResult:
        output = self._output
        if whole:
            write_folder(output.model, self._policy.weights.save_model)
        title = f"{self._config.name}: reward by step"
        output.curve.write_text(render_reward_curve(self._steps, title=title), "utf-8")
        return GRPOResult(
            run_id=run_id,
            store=self._store.where,
            steps=self._steps,
            model=self._policy.local,
            output=output.folder,
            model_path=output.model if whole else None,
            curve_path=output.curve,
            skipped=self._plan.skipped,
            evaluations=self._evaluations,
            best_model_path=output.best if output.best.exists() else None,
            stopped_early=self._stopped_early and len(self._steps) < self._config.num_steps,
            interrupted=not whole,
        )
