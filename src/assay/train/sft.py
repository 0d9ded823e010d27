"""`sft_train`: supervised fine-tuning on samples, with the same loss masks as GRPO."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from assay.datasets import SampleStream, Source, load_samples
from assay.errors import ConfigError
from assay.providers import LocalModel
from assay.runner import Stop, raise_on_ctrl_c
from assay.types import stable_id

from .checkpoints import Checkpoints, TrainingProgress, digest_weights, write_folder
from .memory_estimate import compute_logits_per_pass
from .metric_sinks import MetricReport, TrackedTraining, check_metric_sinks
from .output_folder import MetricsFile, OutputFolder, TrainingStep
from .packages import check_training_packages
from .policy import fix_seed
from .recomputation import should_recompute
from .sft_config import SFTConfig
from .sft_data import (
    Example,
    Examples,
    compute_summed_loss,
    iterate_batches,
    iterate_epoch_batches,
    pack_examples,
    read_examples,
    read_template,
    replace_template,
)
from .trained_weights import (
    TrainedWeights,
    cast_to_compute_dtype,
    choose_load_dtype,
    set_compute_dtype,
    warn_if_unchanged,
)


class SFTStep(TrainingStep):
    """The metrics of one update. Values that were not measured are None."""

    of: int
    """The number of the last step."""

    epoch: float
    """How many passes over the samples are done, with fractions."""

    loss: float
    """Mean negative logprob of the tokens that counted, before the update."""

    held_out_loss: float | None = None
    """The same over the held-out samples, after the update."""

    grad_norm: float
    """Before clipping."""

    weights_changed: float | None = None
    """Share of the weights with a gradient that the update changed."""

    learning_rate: float
    sequences: int
    trained_tokens: int
    tokens: int
    """Context included."""

    seconds: float


class SFTStart(BaseModel):
    """The inputs of a fine-tuning, which must be the same on a resume."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: dict[str, Any]
    """Every setting that affects the result."""

    data: str
    weights: str
    held_out_loss: float | None = None
    """Before the first step."""


SFTWatch = Callable[[SFTStep], None]
"""Called after each step."""


@dataclass(frozen=True)
class SFTResult:
    """A completed fine-tuning, or one that was stopped with a checkpoint."""

    steps: list[SFTStep]
    """The metrics of all steps, including those before a resume."""

    data: Examples
    """The training and held-out examples, and the counts of excluded samples."""

    model: LocalModel
    """The trained model in memory, in `dtype`; the saved one is float32."""

    output: Path
    model_path: Path | None
    """The trained model as a Hugging Face folder; None when it was interrupted."""

    held_out_before: float | None
    """Loss on the held-out samples before the first step; None where none are held out."""

    held_out_after: float | None
    best_model_path: Path | None = None
    """With `patience`, the model with the lowest loss on them; None where that is the first one."""

    stopped_early: bool = False
    """Whether the training ended because that loss stopped falling."""

    interrupted: bool = False


@raise_on_ctrl_c()
def sft_train(
    config: SFTConfig,
    samples: Source | SampleStream,
    *,
    model: LocalModel | None = None,
    resume: bool = False,
    watch: SFTWatch | None = None,
    stop: Stop | None = None,
) -> SFTResult:
    """Train a model on samples: on their recorded tokens, or on their answers as text.

    Takes samples with tokens, samples with recorded calls, and conversations, from a file, a hub
    dataset or memory. `model` is a loaded model, which is trained in place. `resume` continues
    the training in the output folder from its newest checkpoint.
    """
    # Everything that can be checked without the weights is checked before they are loaded.
    check_training_packages()
    check_metric_sinks(config.report_to)
    stream = samples if isinstance(samples, SampleStream) else load_samples(samples)
    template = read_template(config.chat_template)
    output = OutputFolder(config.output)
    output.check(resume=resume)
    dtype = choose_load_dtype(config.dtype, frozen=config.lora is not None)
    local = model or LocalModel.load(config.model_name, dtype=dtype, device=config.device)
    tokenizer = replace_template(local.tokenizer, template)
    vocabulary = local.model.get_input_embeddings().num_embeddings
    data = read_examples(stream, config, tokenizer, vocabulary=vocabulary)
    with ExitStack() as stack:
        stack.enter_context(fix_seed(config.seed))
        stack.enter_context(local.limit_threads())
        training = _SFTTraining(config, data, local, output, stop or Stop())
        stack.enter_context(output.claim(resume=resume))
        return training.run(resume=resume, watch=watch)


class _SFTTraining:
    def __init__(
        self,
        config: SFTConfig,
        data: Examples,
        local: LocalModel,
        output: OutputFolder,
        stop: Stop,
    ) -> None:
        self._config = config
        self._data = data
        self._local = local
        self._output = output
        self._metrics = MetricsFile(output.metrics, SFTStep)
        self._stop = stop
        self._begun = SFTStart(
            config=config.describe(),
            data=data.fingerprint(),
            weights=digest_weights(dict(local.model.named_parameters())),
        )
        self._weights = TrainedWeights(local, lora=config.lora, weight_decay=config.weight_decay)
        set_compute_dtype(local, config.dtype)
        vocabulary = local.model.get_input_embeddings().num_embeddings
        # Nearly every token of a demonstration may need logits, so they bound a pass as well.
        self._most_tokens = min(
            config.micro_batch_tokens, compute_logits_per_pass(config.micro_batch_bytes, vocabulary)
        )
        self._recomputes = should_recompute(local, config.gradient_checkpointing)
        if self._recomputes:
            local.model.gradient_checkpointing_enable({"use_reentrant": False})
        self._warned = False
        self._checkpoints = Checkpoints(output.checkpoints, keep=config.keep_checkpoints)
        # Counted, since the order of an epoch decides how many examples fit into each batch.
        orders = (
            iterate_epoch_batches(
                data.train, seed=config.seed, epoch=epoch, tokens=config.batch_tokens
            )
            for epoch in range(config.epochs)
        )
        self._last = config.num_steps or sum(len(list(order)) for order in orders)
        # Where `num_steps` is given, the configuration has refused this.
        if config.warmup_steps >= self._last:
            raise ConfigError(
                f"{config.warmup_steps} warm-up steps leave none of {self._last} steps to train in",
                where="sft_train()",
                hint="lower warmup_steps, or train for more epochs",
            )

    def run(self, *, resume: bool, watch: SFTWatch | None) -> SFTResult:
        saved, steps = self._checkpoints.steps(), list[SFTStep]()
        if resume:
            self._begun = check_same_start(self._output, self._begun)
            if saved:
                _, tensors = self._checkpoints.load(saved[-1], device=self._local.device)
                self._weights.restore(tensors)
            # Metrics after the checkpoint are dropped: those steps are about to be repeated.
            steps = self._metrics.keep_until(saved[-1] if saved else 0)
        else:
            loss = self._measure_held_out_loss()
            self._begun = self._begun.model_copy(update={"held_out_loss": loss})
            self._output.begin(self._begun)
        with closing(self._open_report()) as report:
            report.catch_up(steps, ())
            done = self._take_steps(steps, saved[-1] if resume and saved else 0, report, watch)
        self._save(done)
        whole = done >= self._last or self._is_exhausted(steps)
        return self._build_result(steps, whole=whole, stopped_early=whole and done < self._last)

    def _take_steps(
        self, steps: list[SFTStep], done: int, report: MetricReport, watch: SFTWatch | None
    ) -> int:
        config, examples, used = self._config, self._data.train, 0
        order = iterate_batches(examples, seed=config.seed, tokens=config.batch_tokens)
        for number, batch in enumerate(islice(order, self._last), start=1):
            used += len(batch)
            if number <= done:
                continue
            if self._stop.requested or self._is_exhausted(steps):
                break
            # Each epoch has its own number of batches, but always all examples.
            step = self._learn(batch, number, epoch=used / len(examples))
            done = number
            if config.patience and find_lowest_loss([self._begun, *steps, step]) is step:
                write_folder(self._output.best, self._weights.save_model)
            self._metrics.append(step)
            report.report("train", step)
            steps.append(step)
            if not self._warned:
                self._warned = warn_if_unchanged(done, step.weights_changed, step.learning_rate)
            if watch is not None:
                watch(step)
            if done % config.checkpoint_every == 0:
                self._save(done)
        return done

    def _open_report(self) -> MetricReport:
        folder, settings = self._output.folder, self._begun.config
        # Of the start, which is the same after a resume: a fine-tuning is not a recorded run.
        start = stable_id([settings, self._begun.data, self._begun.weights])
        training = TrackedTraining(f"{folder.name}-{start[:8]}", "sft", folder, settings)
        return MetricReport(self._config.report_to, training, self._output)

    def _is_exhausted(self, steps: Sequence[SFTStep]) -> bool:
        # First: what follows takes a time that grows with the number of steps.
        if (patience := self._config.patience) is None:
            return False
        if (lowest := find_lowest_loss([self._begun, *steps])) is None:
            return False
        after = 0 if isinstance(lowest, SFTStart) else lowest.step
        later = [each for each in steps if each.step > after]
        return sum(each.held_out_loss is not None for each in later) >= patience

    def _learn(self, batch: Sequence[Example], number: int, *, epoch: float) -> SFTStep:
        started, config = time.perf_counter(), self._config
        trained = sum(example.trained for example in batch)
        # Dropout is on for the passes of the update only: held-out losses are measured without.
        self._local.model.train()
        self._weights.zero_grad()
        loss = 0.0
        for some in pack_examples(batch, self._most_tokens):
            # Divided by the tokens of the whole update, so that the split into passes is neutral.
            with self._local.autocast():
                part = compute_summed_loss(self._local.model, some, self._local.device) / trained
            part.backward()
            loss += float(part.detach())
        rate = config.learning_rate_at(number, of=self._last)
        norm = self._weights.update(learning_rate=rate, max_grad_norm=config.max_grad_norm)
        self._local.model.eval()
        measured = number % config.eval_every == 0 or number == self._last
        return SFTStep(
            step=number,
            of=self._last,
            epoch=epoch,
            loss=loss,
            held_out_loss=self._measure_held_out_loss() if measured else None,
            grad_norm=norm,
            weights_changed=self._weights.changed,
            learning_rate=rate,
            sequences=len(batch),
            trained_tokens=trained,
            tokens=sum(len(example.tokens) for example in batch),
            seconds=time.perf_counter() - started,
        )

    def _measure_held_out_loss(self) -> float | None:
        import torch

        held = self._data.held_out
        if not held:
            return None
        self._local.model.eval()
        with torch.no_grad(), self._local.autocast():
            losses = [
                float(compute_summed_loss(self._local.model, some, self._local.device))
                for some in pack_examples(held, self._most_tokens)
            ]
        return sum(losses) / sum(example.trained for example in held)

    def _save(self, step: int) -> None:
        if step and step not in self._checkpoints.steps():
            self._checkpoints.save(TrainingProgress(step=step), self._weights.state())

    def _build_result(self, steps: list[SFTStep], *, whole: bool, stopped_early: bool) -> SFTResult:
        if whole:
            write_folder(self._output.model, self._weights.save_model)
        cast_to_compute_dtype(self._local)
        if self._recomputes:
            self._local.model.gradient_checkpointing_disable()
        return SFTResult(
            steps=steps,
            data=self._data,
            model=self._local,
            output=self._output.folder,
            model_path=self._output.model if whole else None,
            held_out_before=self._begun.held_out_loss,
            held_out_after=steps[-1].held_out_loss if steps else None,
            best_model_path=self._output.best if self._output.best.exists() else None,
            stopped_early=stopped_early,
            interrupted=not whole,
        )


def find_lowest_loss(measured: Sequence[SFTStart | SFTStep]) -> SFTStart | SFTStep | None:
    """Return the first with the lowest loss on the held-out samples; None if none was measured."""
    known = [(each.held_out_loss, each) for each in measured if each.held_out_loss is not None]
    return min(known, key=lambda pair: pair[0], default=(None, None))[1]


def check_same_start(output: OutputFolder, begun: SFTStart) -> SFTStart:
    """Return the recorded start of the training. Raises `ConfigError` if `begun` differs."""
    before = output.read_start(SFTStart)
    problems = []
    if before.data != begun.data:
        problems.append("the samples are not those that training began with")
    if before.weights != begun.weights:
        problems.append("the model is not the one that training began with")
    old, new = before.config, begun.config
    # A key in only one of them belongs to another schedule or another version of assay.
    names = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    if names:
        changes = ", ".join(f"{name} {old.get(name)!r} -> {new.get(name)!r}" for name in names)
        problem = "the configuration is not the one that training began with: "
        problems.append(problem + changes)
    if problems:
        raise ConfigError(
            "; ".join(problems),
            where=str(output.folder),
            hint="resume with the same model, samples and settings, or use another output folder",
        )
    return before
