"""`assay quickstart --train`: train a small model on sums and measure it before and after."""

import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count as counted
from pathlib import Path
from types import ModuleType
from typing import Any

from assay.runner import EvalReport, Stop
from assay.scorers import import_file
from assay.stats import Comparison, compare
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

from .output import is_ascii_only, print_report
from .quickstart_task import evaluate_with_display, find_task_file
from .quickstart_training_report import Measured, QuickstartTrainingReport, StageTime
from .signals import exit_interrupted, run_until_stopped
from .store_option import build_next_command, find_store_location
from .train_display import TrainDisplay, stop_after_step
from .train_grpo import format_grpo_step
from .train_sft import format_sft_step

_MAX_LISTED_SUMS = 3


def train_and_compare(args: Namespace) -> int:
    """Exit status 0 whatever the model learned, which is only shown; 130 when interrupted."""
    # Raises for missing packages before anything is printed or written.
    check_training_packages()
    # A new folder each time: the models of earlier trainings are kept.
    names = (args.output / f"training{f'-{n}' if n > 1 else ''}" for n in counted(1))
    folder = next(path for path in names if not path.exists())
    task = import_file(find_task_file("sums.py"))
    with Store.open(find_store_location(args)) as store:
        report = _QuickstartTraining(task, args, folder, store).run()
    print_report(args, report.lines(ascii_only=is_ascii_only()), report.plain())
    return 0


@dataclass
class _QuickstartTraining:
    """The whole training: SFT, evaluation, GRPO, evaluation again."""

    task: ModuleType
    """`examples/quickstart/sums.py`."""

    args: Namespace
    folder: Path
    store: Store
    spent: dict[str, StageTime] = field(default_factory=dict)

    def run(self) -> QuickstartTrainingReport:
        """Train and return the report; an interruption ends the process with status 130."""
        sums = self.task.Sums(self.args.seed or 0)
        demonstrations = sums.build_demonstrations()
        with self._time_stage("demonstrations"):
            sft = self._train_on_demonstrations(demonstrations, sums)
        before = self._measure_model(sft.model_path, "before", sums)
        with self._time_stage("rewards"):
            grpo = self._train_on_rewards(sft.model_path, sums)
        after = self._measure_model(grpo.model_path, "after", sums)
        sampled, greedy = (
            Measured(old, new, self._compare(old, new))
            for old, new in zip(before, after, strict=True)
        )
        return QuickstartTrainingReport(
            parameters=sum(weight.numel() for weight in grpo.model.model.parameters()),
            demonstrations=len(demonstrations),
            wrong=sum(not row["right"] for row in demonstrations),
            repeats=self.task.REPEATS,
            sft=sft,
            grpo=grpo,
            sampled=sampled,
            greedy=greedy,
            spent=self.spent,
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
        self.spent[name] = StageTime(time.process_time() - cpu, time.perf_counter() - wall)

    def _train_on_demonstrations(self, rows: list[dict[str, Any]], sums: Any) -> SFTResult:
        stop, steps = Stop(), self.args.steps or self.task.SFT_STEPS
        config = self.task.build_sft_config(self.folder / "sft", steps=steps, seed=sums.seed)
        with TrainDisplay(quiet=self.args.quiet) as display, stop_after_step(stop, display):
            display.print_line("1/4  SFT on demonstrations, some of them wrong on purpose:")

            def watch(step: SFTStep) -> None:
                display.show(step.step, step.of, format_sft_step(step))

            model = sums.build_model()
            result = sft_train(config, rows, model=model, watch=watch, stop=stop)
        self._exit_if_interrupted(result)
        return result

    def _train_on_rewards(self, model: Path | None, sums: Any) -> GRPOResult:
        stop, steps = Stop(grace_s=5.0), self.args.steps or self.task.GRPO_STEPS
        output = self.folder / "grpo"
        config = self.task.build_grpo_config(str(model), output, steps=steps, seed=sums.seed)
        with TrainDisplay(quiet=self.args.quiet) as display:
            display.print_line("3/4  GRPO on the scores of its own answers:")

            def watch(event: TrainingEvent) -> None:
                if isinstance(event, StepFinished):
                    display.show(event.metrics.step, steps, format_grpo_step(event.metrics))

            session = TrainingSession(store=self.store, watch=watch, stop=stop)
            result = run_until_stopped(
                lambda: grpo_train_async(
                    config, sums.training, self.task.score_fn, session=session
                ),
                stop,
                display,
            )
        self._exit_if_interrupted(result)
        return result

    def _exit_if_interrupted(self, result: SFTResult | GRPOResult) -> None:
        if result.interrupted:
            if not self.args.quiet:
                print("interrupted; start again with: assay quickstart --train", file=sys.stderr)
            exit_interrupted()

    def _measure_model(self, model: Path | None, when: str, sums: Any) -> list[EvalReport]:
        """Evaluate with sampled answers, then with greedy ones."""
        reports = []
        with self._time_stage(when):
            for sampled in (True, False):
                config = self.task.build_eval_config(
                    str(model), when, sampled=sampled, seed=sums.seed
                )
                number = "2/4" if when == "before" else "4/4"
                how = "sampled" if sampled else "greedy"
                report = evaluate_with_display(
                    sums.held_out,
                    replace(config, max_samples=self.args.max_samples),
                    args=self.args,
                    store=self.store,
                    words=f"{number}  Held-out sums, {how} answers:",
                )
                reports.append(report)
        return reports

    def _compare(self, old: EvalReport, new: EvalReport) -> Comparison:
        results = (self.store.run(each.run_id).results() for each in (old, new))
        return compare(*results, limit=_MAX_LISTED_SUMS)
