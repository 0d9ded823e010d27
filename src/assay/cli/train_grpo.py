"""`assay train grpo`: train a model on the scores of its own rollouts, as a file defines."""

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from assay.datasets import SampleStream, Source
from assay.environments import rename_environment
from assay.errors import AssayError, ConfigError
from assay.providers import LocalModel
from assay.runner import RaySettings, Steps, Stop
from assay.scorers import ScoreFunction, format_user_traceback, import_file
from assay.train import (
    CheckpointSaved,
    EvalStep,
    EvaluationFinished,
    EveryRolloutFailed,
    GRPOConfig,
    GRPOResult,
    RolloutFinished,
    ServerUnreachable,
    StepFinished,
    StepMetrics,
    TrainingEvent,
    TrainingSession,
    TrainingStarted,
    check_training_packages,
    find_best,
    grpo_train_async,
)

from .arguments import (
    add_count,
    add_flag,
    add_grace_option,
    add_renamed_option,
    add_report_options,
    add_report_to_option,
    parse_count,
    parse_whole_number,
)
from .eval_file import locate_dataset
from .exit_status import EXIT_INCONCLUSIVE, EXIT_INTERRUPTED, EXIT_PASS, InconclusiveError
from .output import (
    format_field,
    format_fields,
    print_lines,
    print_message,
    print_report,
    redirect_output_to_stderr,
)
from .ray_options import ENGINE_OPTIONS, add_engine_options, find_scripts, read_engine_options
from .resume import build_next_command, format_options, format_resume_hint, join_command
from .show_training import format_reward, format_staleness
from .signals import exit_interrupted, run_until_stopped
from .store_option import add_store_option, find_store_location
from .train_display import TrainDisplay


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "file",
        metavar="FILE.py",
        help="file that defines `config`, a GRPOConfig, `prompts`, and `score_fn` or "
        "`environment`; may define `agent`, `eval_dataset`, `prepare_messages` and `model`",
    )
    parser.add_argument(
        "--agent",
        metavar="AGENT",
        help="train the model behind a command (cmd:...), a function (FILE.py:function), a service "
        "(http://...) or a coding agent (claude-code, codex, opencode, pi), overrides `agent`",
    )
    add_renamed_option(
        parser,
        "--num-steps",
        "--steps",
        type=parse_count,
        metavar="N",
        help="stop after step N, overrides `num_steps`",
    )
    parser.add_argument(
        "--server",
        metavar="SERVER",
        help="sample from an OpenAI-compatible server, by its URL or as a model string, overrides "
        "`server`",
    )
    parser.add_argument(
        "--max-staleness",
        metavar="N",
        type=parse_whole_number,
        help="sample up to N steps ahead of learning, overrides `max_staleness`",
    )
    parser.add_argument(
        "--eval-dataset",
        metavar="DATASET",
        help="held-out samples, which are evaluated and never trained on, overrides `eval_dataset`",
    )
    add_count(parser, "--eval-every", "evaluate them every N steps, overrides `eval_every`")
    add_count(
        parser,
        "--patience",
        "stop after N evaluations without a higher score, overrides `patience`",
    )
    add_report_to_option(parser)
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", type=Path, help="folder to write, overrides `output`"
    )
    add_flag(parser, "--resume", "resume the training in the output folder")
    add_flag(parser, "--take-over", "resume even if another process holds the run")
    add_grace_option(parser, "rollouts")
    add_engine_options(parser)
    add_store_option(parser)
    add_report_options(parser, quiet=True)


def main(args: Namespace) -> int:
    """Exit status: 0 trained, 3 aborted or no rollout was judged, 130 interrupted."""
    # User code may print; stdout is for the report.
    try:
        with redirect_output_to_stderr():
            loaded = frozenset(sys.modules)
            file = load_train_file(
                args.file,
                agent=args.agent,
                eval_dataset=args.eval_dataset,
                num_steps=args.num_steps,
                server=args.server,
                max_staleness=args.max_staleness,
                output=args.output,
                eval_every=args.eval_every,
                patience=args.patience,
                report_to=args.report_to,
            )
            scripts = [file.path, *find_scripts([] if args.agent is None else [args.agent])]
            datasets = (file.prompts, file.eval_dataset)
            engine = read_engine_options(args, scripts, loaded, datasets=datasets)
            with TrainDisplay(quiet=args.quiet) as display:
                result = _TrainingMonitor(file, args, display, engine).run()
    except InconclusiveError as error:
        # The run recorded nothing else, so this line is the whole report.
        if isinstance(failed := error.__cause__, EveryRolloutFailed) and not args.json:
            text = f"{failed.rollouts}, {failed.rollouts} failed"
            print_lines([format_field("rollouts", text)])
        raise
    if result.follows:
        # A worker of a distributed training: the main process prints the report.
        return choose_grpo_exit_status(result)
    command = build_next_command(args, "show", result.run_id)
    lines = [*format_grpo_result(result), "next:", f"  {command}"]
    print_report(args, lines, {**grpo_result_to_dict(result), "next": [command]})
    if result.interrupted:
        print_message(f"interrupted; {_format_grpo_hint(args)}")
        exit_interrupted()
    if choose_grpo_exit_status(result) == EXIT_INCONCLUSIVE:
        print_message("no rollout was judged; the model is unchanged")
    return choose_grpo_exit_status(result)


@dataclass(frozen=True)
class TrainFile:
    """The definitions of a training file."""

    path: Path
    config: GRPOConfig
    prompts: Source | SampleStream
    score_fn: ScoreFunction | None
    environment: Any
    agent: Any
    """An agent, or what names one; None: the model itself answers."""

    eval_dataset: Source | SampleStream | None
    """The held-out samples; None: the training is not evaluated."""

    prepare_messages: Any
    model: LocalModel | None
    """A model that the file builds itself; None for the folder that `config` names."""


def load_train_file(
    target: str, *, agent: str | None = None, eval_dataset: str | None = None, **changes: object
) -> TrainFile:
    """Import `FILE.py` and check its definitions; `changes` override its configuration."""
    path, hint = Path(target), "define `config`, `prompts`, and `score_fn` or `environment`"
    if path.suffix != ".py":
        raise ConfigError("the training is not a Python file", where=target, hint=hint)
    if not path.is_file():
        raise ConfigError("the file does not exist", where=target)
    # Before the file, which may import torch itself: its traceback would not say what to install.
    check_training_packages()
    defined = dict(vars(import_file(path)))
    for name in ("config", "prompts"):
        if name not in defined:
            raise ConfigError(f"the file does not define `{name}`", where=target, hint=hint)
    config = defined["config"]
    if not isinstance(config, GRPOConfig):
        raise ConfigError(f"`config` is a {type(config).__name__}, not a GRPOConfig", where=target)
    given = {name: change for name, change in changes.items() if change is not None}
    try:
        # Validated anew: an override may contradict another setting.
        config = GRPOConfig.model_validate({**dict(config), **given})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        field = ".".join(map(str, problem["loc"])) or "config"
        raise ConfigError(f"{field}: {problem['msg']}", where=target) from None
    rename_environment(defined, "environment_cls", where=target)
    score_fn, environment = defined.get("score_fn"), defined["environment"]
    if score_fn is None and environment is None:
        raise ConfigError("the file defines neither `score_fn` nor `environment`", where=target)
    # A dataset in the file is relative to it; one on the command line to the current folder.
    held_out = defined.get("eval_dataset")
    held_out = None if held_out is None else locate_dataset(held_out, path.parent)
    held_out = held_out if eval_dataset is None else eval_dataset
    # A function builds the model only when the file is trained, not when it is imported.
    model = defined.get("model")
    model = model() if callable(model) else model
    if model is not None and not isinstance(model, LocalModel):
        raise ConfigError(f"`model` is a {type(model).__name__}, not a LocalModel", where=target)
    return TrainFile(
        path=path,
        config=config,
        prompts=locate_dataset(defined["prompts"], path.parent),
        score_fn=score_fn,
        environment=environment,
        agent=defined.get("agent") if agent is None else agent,
        eval_dataset=held_out,
        prepare_messages=defined.get("prepare_messages"),
        model=model,
    )


class _TrainingMonitor:
    """Runs one training and shows its progress."""

    def __init__(
        self, file: TrainFile, args: Namespace, display: TrainDisplay, engine: RaySettings | None
    ) -> None:
        self._file = file
        self._engine = engine
        self._args = args
        self._display = display
        self._started = False
        self._steps = file.config.num_steps
        self._words = "starting"
        self._learned = 0

    def run(self) -> GRPOResult:
        """Train to the end or until stopped. Raises `InconclusiveError` when aborted midway."""
        try:
            file, stop = self._file, Stop(grace_s=self._args.grace_s)
            session = TrainingSession(
                store=find_store_location(self._args),
                resume=self._args.resume,
                take_over=self._args.take_over,
                watch=self.show_event,
                stop=stop,
            )
            return run_until_stopped(
                lambda: grpo_train_async(
                    file.config,
                    file.prompts,
                    file.score_fn,
                    file.environment,
                    agent=file.agent,
                    eval_dataset=file.eval_dataset,
                    prepare_messages=file.prepare_messages,
                    model=file.model,
                    engine=self._engine,
                    session=session,
                ),
                stop,
                self._display,
            )
        except Exception as error:
            if not self._started or isinstance(error, ConfigError):
                raise
            hint = _format_grpo_hint(self._args)
            if isinstance(error, AssayError):
                raise InconclusiveError(f"{error}\n{hint}") from error
            shown = format_user_traceback(error, self._file.path)
            if shown is None:
                raise
            text = f"the training was aborted in your code\n{shown}\n{hint}"
            raise InconclusiveError(text) from error

    def show_event(self, event: TrainingEvent) -> None:
        """Show an event of the training."""
        if isinstance(event, TrainingStarted):
            self._started, self._learned = True, event.step
            resumed = f", resumed after step {event.step}" if event.step else ""
            self._display.print_line(f"run {event.run_id}{resumed}")
            self._display.show(event.step, self._steps, "starting")
        elif isinstance(event, StepFinished):
            self._words, self._learned = format_grpo_step(event.metrics), event.metrics.step
            self._display.show(self._learned, self._steps, self._words)
        elif isinstance(event, RolloutFinished):
            if event.is_evaluation:
                words = f"evaluation, rollout {event.done}/{event.of}"
                self._display.show(event.step, self._steps, words, is_end=False)
                return
            rolling = f"{self._words}; rollout {event.done}/{event.of}"
            # Not the step of the rollout: a server may be asked ahead.
            self._display.show(self._learned, self._steps, rolling)
        elif isinstance(event, CheckpointSaved):
            self._display.print_line(f"checkpoint {event.path}")
        elif isinstance(event, ServerUnreachable):
            tries = f"the next try is in {event.retry_s:.0f} s"
            self._display.print_line(f"{event.where}: {event.reason}; {tries}")
        elif isinstance(event, EvaluationFinished):
            best = ", the best so far" if event.is_best and event.evaluation.step else ""
            self._display.print_line(f"evaluation {format_evaluation(event.evaluation)}{best}")


def format_grpo_step(step: StepMetrics) -> str:
    """Format a step in one line."""
    words = ["reward " + ("not judged" if step.reward is None else f"{step.reward:.3f}")]
    measured = {
        "kl": step.kl,
        "entropy": step.entropy,
        "clip": step.clip_fraction,
        "staleness": step.staleness,
    }
    words += [f"{name} {value:.3g}" for name, value in measured.items() if value is not None]
    counted = {
        "failed": sum(step.failed.values()),
        "not judged": step.invalid,
        "stale": step.stale,
    }
    for name, number in counted.items():
        if number:
            words.append(f"{number} {name}")
    if step.tokens_per_s is not None:
        words.append(f"{step.tokens_per_s:.0f} tokens/s")
    return ", ".join(words)


def format_evaluation(evaluation: EvalStep) -> str:
    """Format an evaluation in one line."""
    when = f"after step {evaluation.step}" if evaluation.step else "before step 1"
    low, high = evaluation.score_low, evaluation.score_high
    words = [f"{when}: {format_reward(evaluation.score, low, high)}"]
    failed = sum(evaluation.failed.values())
    words += [f"{failed} failed"] * bool(failed)
    words += [f"{evaluation.invalid} not judged"] * bool(evaluation.invalid)
    return ", ".join(words)


def _format_evaluations(result: GRPOResult) -> dict[str, object]:
    if not result.evaluations:
        return {}
    best = find_best(result.evaluations)
    shown = dict.fromkeys((result.evaluations[0].step, result.evaluations[-1].step))
    lines = [format_evaluation(each) for each in result.evaluations if each.step in shown]
    if best is not None:
        lines.append(f"the best is {format_evaluation(best)}")
    fields: dict[str, object] = {"evaluations": lines, "best model": result.best_model_path}
    if result.stopped_early:
        fields["stopped"] = "early: the evaluations after the best one have no higher score"
    return fields


def format_grpo_result(result: GRPOResult) -> list[str]:
    """Return the report of a training as text."""
    steps = result.steps
    fields: dict[str, object] = {"steps": len(steps)}
    if steps:
        for label, step in (("first reward", steps[0]), ("last reward", steps[-1])):
            fields[label] = format_reward(step.reward, step.reward_low, step.reward_high)
        failed = sum(sum(step.failed.values()) for step in steps)
        invalid = sum(step.invalid for step in steps)
        total = sum(step.rollouts for step in steps)
        fields["rollouts"] = f"{total}, {failed} failed, {invalid} not judged"
        taken = Steps(1, len(steps), metrics=[step.model_dump() for step in steps])
        fields["staleness"] = format_staleness(taken)
    fields |= _format_evaluations(result)
    fields |= {
        "prompts": result.skipped or None,
        "model": result.model_path,
        "curve": result.curve_path,
        "run": result.run_id,
        "store": result.store,
    }
    return format_fields(fields)


def grpo_result_to_dict(result: GRPOResult) -> dict[str, Any]:
    """Return the report as plain values, with the metrics of the first and the last step."""
    steps = result.steps
    return {
        "run": result.run_id,
        "store": result.store,
        "steps": len(steps),
        "prompts_skipped": result.skipped.count,
        "first": steps[0].model_dump() if steps else None,
        "last": steps[-1].model_dump() if steps else None,
        "output": str(result.output),
        "model": None if result.model_path is None else str(result.model_path),
        "curve": str(result.curve_path),
        "evaluations": [each.model_dump() for each in result.evaluations],
        "best_model": None if result.best_model_path is None else str(result.best_model_path),
        "stopped_early": result.stopped_early,
        "interrupted": result.interrupted,
        "exit_status": choose_grpo_exit_status(result),
    }


def choose_grpo_exit_status(result: GRPOResult) -> int:
    """Return the exit status of the command after a training."""
    if result.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_PASS if any(step.valid for step in result.steps) else EXIT_INCONCLUSIVE


def _format_grpo_hint(args: Namespace) -> str:
    names = (
        "agent",
        "num_steps",
        "server",
        "max_staleness",
        "eval_dataset",
        "eval_every",
        "patience",
        "report_to",
        "output",
        "store",
        *ENGINE_OPTIONS,
    )
    options = format_options(args, names)
    command = join_command(["assay", "train", "grpo", args.file, *options, "--resume"])
    return format_resume_hint(command, kept="checkpoints")
