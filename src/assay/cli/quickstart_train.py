"""`assay quickstart --train`: train a small model on sums and measure it before and after."""

import asyncio
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count as counted
from pathlib import Path
from typing import Any, NoReturn

from assay.runner import EvalReport, Stop
from assay.stats import compare
from assay.store import Store
from assay.train import (
    GRPOResult,
    SFTResult,
    SFTStep,
    StepFinished,
    TrainingEvent,
    TrainingSession,
    check_training_packages,
    grpo_train_async,
    sft_train,
)

from .progress_bar import SilentDisplay
from .quickstart_evaluation import evaluate_with_display
from .quickstart_sums import (
    GRPO_STEPS,
    SFT_STEPS,
    Sums,
    build_grpo_config,
    build_sft_config,
    build_sums_eval_config,
    score_fn,
)
from .quickstart_training_report import Measured, QuickstartTrainingReport, StageTime
from .signals import exit_interrupted, stop_on_signals
from .store_option import build_next_command, find_store_location
from .terminal import is_ascii_only, print_json, sanitize_lines
from .train_display import TrainDisplay, stop_after_step
from .train_grpo import format_grpo_step as grpo_words
from .train_sft import format_sft_step as sft_words

_MAX_LISTED_SUMS = 3


def train_and_compare(args: Namespace) -> int:
    """Exit status 0 whatever the model learned, which is only shown; 130 when interrupted."""
    # Raises for missing packages before anything is printed or written.
    check_training_packages()
    # A new folder each time: the models of earlier trainings are kept.
    names = (args.output / f"training{f'-{n}' if n > 1 else ''}" for n in counted(1))
    folder = next(path for path in names if not path.exists())
    training = _QuickstartTraining(args, Sums(args.seed or 0), folder)
    with Store.open(find_store_location(args)) as store:
        report = training.run(store)
    if args.json:
        print_json(report.plain())
    else:
        print(sanitize_lines("\n".join(report.lines(ascii_only=is_ascii_only()))))
    return 0


@dataclass
class _QuickstartTraining:
    """The whole training: SFT, evaluation, GRPO, evaluation again."""

    args: Namespace
    sums: Sums
    folder: Path
    _spent: dict[str, StageTime] = field(default_factory=dict)

    def run(self, store: Store) -> QuickstartTrainingReport:
        """Train and return the report; an interruption ends the process with status 130."""
        demonstrations = self.sums.demonstrations()
        with self._time_stage("demonstrations"):
            sft = self._train_on_demonstrations(demonstrations)
        assert sft.model_path is not None
        before = self._measure_model(store, sft.model_path, "before")
        with self._time_stage("rewards"):
            grpo = self._train_on_rewards(store, sft.model_path)
        assert grpo.model_path is not None
        after = self._measure_model(store, grpo.model_path, "after")
        sampled, greedy = (
            Measured(
                a,
                b,
                compare(
                    store.run(a.run_id).results(),
                    store.run(b.run_id).results(),
                    limit=_MAX_LISTED_SUMS,
                ),
            )
            for a, b in zip(before, after, strict=True)
        )
        return QuickstartTrainingReport(
            parameters=sum(weight.numel() for weight in grpo.model.model.parameters()),
            demonstrations=len(demonstrations),
            wrong=sum(not row["right"] for row in demonstrations),
            sft=sft,
            grpo=grpo,
            sampled=sampled,
            greedy=greedy,
            spent=self._spent,
            next=(
                build_next_command(
                    self.args, "compare", sampled.before.run_id, sampled.after.run_id
                ),
                build_next_command(self.args, "show", grpo.run_id),
                "assay train grpo FILE.py: your own model and score (docs/training.md)",
            ),
        )

    @contextmanager
    def _time_stage(self, name: str) -> Iterator[None]:
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        self._spent[name] = StageTime(time.process_time() - cpu, time.perf_counter() - wall)

    def _train_on_demonstrations(self, demonstrations: list[dict[str, Any]]) -> SFTResult:
        stop, steps = Stop(), self.args.steps or SFT_STEPS
        config = build_sft_config(self.folder / "sft", steps=steps, seed=self.sums.seed)
        with TrainDisplay(quiet=self.args.quiet) as display:
            display.print_line("1/4  SFT on demonstrations, some of them wrong on purpose:")

            def watch(step: SFTStep) -> None:
                display.show(step.step, step.of, sft_words(step))

            with stop_after_step(stop, display):
                model = self.sums.model()
                result = sft_train(config, demonstrations, model=model, watch=watch, stop=stop)
        if result.interrupted:
            _print_restart_and_exit(self.args)
        return result

    def _train_on_rewards(self, store: Store, model: Path) -> GRPOResult:
        steps = self.args.steps or GRPO_STEPS
        config = build_grpo_config(model, self.folder / "grpo", steps=steps, seed=self.sums.seed)
        with TrainDisplay(quiet=self.args.quiet) as display:
            display.print_line("3/4  GRPO on the scores of its own answers:")

            def watch(event: TrainingEvent) -> None:
                if isinstance(event, StepFinished):
                    display.show(event.metrics.step, steps, grpo_words(event.metrics))

            async def train() -> GRPOResult:
                stop = Stop(grace_s=5.0)
                session = TrainingSession(store=store, watch=watch, stop=stop)
                with stop_on_signals(stop, _TrainDisplayAdapter(display)):
                    return await grpo_train_async(
                        config, self.sums.learned(), score_fn, session=session
                    )

            result = asyncio.run(train())
        if result.interrupted:
            _print_restart_and_exit(self.args)
        return result

    def _measure_model(self, store: Store, model: Path, when: str) -> tuple[EvalReport, EvalReport]:
        number = "2/4" if when == "before" else "4/4"
        with self._time_stage(when):
            sampled, greedy = (
                evaluate_with_display(
                    self.sums.held_out(),
                    replace(
                        build_sums_eval_config(model, when, sampled=drawn, seed=self.sums.seed),
                        max_samples=self.args.limit,
                    ),
                    args=self.args,
                    store=store,
                    words=f"{number}  Held-out sums, {words}:",
                )
                for drawn, words in ((True, "sampled answers"), (False, "greedy answers"))
            )
        return sampled, greedy


class _TrainDisplayAdapter(SilentDisplay):
    """Prints the messages of the signal listener through a training's display."""

    def __init__(self, display: TrainDisplay) -> None:
        self._display = display

    def print_line(self, text: str) -> None:
        self._display.print_line(text)


def _print_restart_and_exit(args: Namespace) -> NoReturn:
    if not args.quiet:
        print("interrupted; start again with: assay quickstart --train", file=sys.stderr)
    exit_interrupted()
