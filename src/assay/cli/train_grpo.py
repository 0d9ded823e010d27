"""`assay train grpo`: train on the scores of the model's own rollouts, as a file says."""

import asyncio
import shlex
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from assay.errors import AssayError, ConfigError
from assay.runner import Stop
from assay.train import (
    CheckpointSaved,
    EveryRolloutFailed,
    GRPOResult,
    RolloutFinished,
    StepFinished,
    StepMetrics,
    TrainingEvent,
    TrainingSession,
    TrainingStarted,
    grpo_train_async,
)

from .eval_file import format_user_traceback
from .eval_overrides import count, parse_seconds
from .exit_status import EXIT_INCONCLUSIVE, EXIT_INTERRUPTED, EXIT_PASS, InconclusiveError
from .progress_bar import SilentDisplay
from .redirect import redirect_output_to_stderr
from .resume import redact_option_value
from .show_training import format_reward
from .signals import exit_interrupted, stop_on_signals
from .store_option import add_store_option, build_next_command, find_store_location
from .terminal import print_json, sanitize_lines
from .train_display import TrainDisplay
from .train_grpo_file import TrainFile, load_train_file


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "file",
        metavar="FILE.py",
        help="defines `config`, a GRPOConfig, `prompts`, and `score_fn` or `environment_cls`; "
        "may define `prepare_messages` and `model`",
    )
    parser.add_argument("--steps", type=count, metavar="N", help="stop after step N")
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", type=Path, help="instead of the file's `output`"
    )
    parser.add_argument("--resume", action="store_true", help="go on in the output folder")
    parser.add_argument(
        "--take-over", action="store_true", help="resume though another process works on the run"
    )
    parser.add_argument(
        "--grace",
        type=parse_seconds,
        default=30.0,
        metavar="SECONDS",
        help="after Ctrl-C, how long rollouts in flight may take to end (default: 30)",
    )
    add_store_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def main(args: Namespace) -> int:
    """Exit status: 0 trained, 3 it broke off or nothing could be judged, 130 interrupted."""
    # Whatever the user's own code prints is no result of this command.
    try:
        with redirect_output_to_stderr():
            file = load_train_file(args.file, num_steps=args.steps, output=args.output)
            with TrainDisplay(quiet=args.quiet) as display:
                result = _TrainingMonitor(file, args, display).run()
    except InconclusiveError as error:
        if isinstance(failed := error.__cause__, EveryRolloutFailed) and not args.json:
            print(f"{'rollouts':<14}{failed.rollouts}, {failed.rollouts} failed")
        raise
    if result.follows:
        return choose_grpo_exit_status(result)  # the process that it followed tells the rest
    ending = _list_grpo_commands(args, result)
    if args.json:
        print_json({**grpo_result_to_dict(result), "next": ending})
    else:
        lines = [*format_grpo_result(result), "next:", *(f"  {command}" for command in ending)]
        print(sanitize_lines("\n".join(lines)))
    if result.interrupted:
        told = (
            f"interrupted; a checkpoint is kept. Go on with:\n  {build_grpo_resume_command(args)}"
        )
        print(sanitize_lines(told), file=sys.stderr)
        exit_interrupted()
    if choose_grpo_exit_status(result) == EXIT_INCONCLUSIVE:
        print("no rollout could be judged: nothing was learned", file=sys.stderr)
    return choose_grpo_exit_status(result)


class _TrainingMonitor(SilentDisplay):
    """One training, shown while it goes on."""

    def __init__(self, file: TrainFile, args: Namespace, display: TrainDisplay) -> None:
        self._file = file
        self._args = args
        self._display = display
        self._began = False
        self._steps = file.config.num_steps
        self._words = "starting"

    def run(self) -> GRPOResult:
        """Train until it is done or stopped. Raises `InconclusiveError` when a begun one breaks."""
        try:
            return asyncio.run(self._train())
        except Exception as error:
            if not self._began or isinstance(error, ConfigError):
                raise
            go_on = f"checkpoints are kept; go on with:\n  {build_grpo_resume_command(self._args)}"
            if isinstance(error, AssayError):
                raise InconclusiveError(f"{error}\n{go_on}") from error
            shown = format_user_traceback(error, self._file.path)
            if shown is None:
                raise
            raise InconclusiveError(f"it broke off in your code\n{shown}\n{go_on}") from error

    async def _train(self) -> GRPOResult:
        file, stop = self._file, Stop(grace_s=self._args.grace)
        session = TrainingSession(
            store=find_store_location(self._args),
            resume=self._args.resume,
            take_over=self._args.take_over,
            watch=self.tell,
            stop=stop,
        )
        with stop_on_signals(stop, self):
            return await grpo_train_async(
                file.config,
                file.prompts,
                file.score_fn,
                file.environment_cls,
                prepare_messages=file.prepare_messages,
                model=file.model,
                session=session,
            )

    def tell(self, event: TrainingEvent) -> None:
        """Show what happened."""
        if isinstance(event, TrainingStarted):
            self._began = True
            went_on = f", after step {event.step}" if event.step else ""
            self.say(f"run {event.run_id}{went_on}")
            self._display.show(event.step, self._steps, "starting")
        elif isinstance(event, StepFinished):
            self._words = format_grpo_step(event.metrics)
            self._display.show(event.metrics.step, self._steps, self._words)
        elif isinstance(event, RolloutFinished):
            rolling = f"{self._words}; rollout {event.done}/{event.of}"
            self._display.show(event.step - 1, self._steps, rolling)
        elif isinstance(event, CheckpointSaved):
            self.say(f"checkpoint {event.path}")

    def say(self, text: str) -> None:
        self._display.say(text)


def format_grpo_step(step: StepMetrics) -> str:
    """A step in one line."""
    words = ["reward " + ("not judged" if step.reward is None else f"{step.reward:.3f}")]
    for name, value in (("kl", step.kl), ("entropy", step.entropy), ("clip", step.clip_fraction)):
        if value is not None:
            words.append(f"{name} {value:.3g}")
    for name, number in (("failed", sum(step.failed.values())), ("not judged", step.invalid)):
        if number:
            words.append(f"{number} {name}")
    if step.tokens_per_s is not None:
        words.append(f"{step.tokens_per_s:.0f} tokens/s")
    return ", ".join(words)


def format_grpo_result(result: GRPOResult) -> list[str]:
    """What came of a training, in words."""
    steps = result.steps
    lines = [f"{'steps':<14}{len(steps)}"]
    if steps:
        lines.append(f"{'first reward':<14}{_format_grpo_reward(steps[0])}")
        lines.append(f"{'last reward':<14}{_format_grpo_reward(steps[-1])}")
        failed = sum(sum(step.failed.values()) for step in steps)
        invalid = sum(step.invalid for step in steps)
        total = sum(step.rollouts for step in steps)
        lines.append(f"{'rollouts':<14}{total}, {failed} failed, {invalid} not judged")
    if result.skipped:
        lines.append(f"{'prompts':<14}{result.skipped}")
    if result.model_path is not None:
        lines.append(f"{'model':<14}{result.model_path}")
    return [
        *lines,
        f"{'curve':<14}{result.curve_path}",
        f"{'run':<14}{result.run_id}",
        f"{'store':<14}{result.store}",
    ]


def _format_grpo_reward(step: StepMetrics) -> str:
    return format_reward(step.reward, step.reward_low, step.reward_high)


def grpo_result_to_dict(result: GRPOResult) -> dict[str, Any]:
    """The same as plain values, with the metrics of the first and the last step."""
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
        "interrupted": result.interrupted,
        "exit_status": choose_grpo_exit_status(result),
    }


def choose_grpo_exit_status(result: GRPOResult) -> int:
    """What the command exits with after a training."""
    if result.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_PASS if any(step.valid for step in result.steps) else EXIT_INCONCLUSIVE


def _list_grpo_commands(args: Namespace, result: GRPOResult) -> list[str]:
    return [build_next_command(args, "show", result.run_id)]


def build_grpo_resume_command(args: Namespace) -> str:
    """The command that goes on, in a form that may be shown."""
    words = ["assay", "train", "grpo", args.file]
    if args.steps is not None:
        words += ["--steps", str(args.steps)]
    if args.output is not None:
        words += ["--output", str(args.output)]
    if args.store is not None:
        words += ["--store", redact_option_value(args.store)]
    return shlex.join([*words, "--resume"])
