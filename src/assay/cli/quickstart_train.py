"""`assay quickstart --train`: train a small model on sums and measure it before and after."""

import json
import textwrap
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import count as counted
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

from assay.runner import EvalReport, Stop
from assay.scorers import import_file
from assay.stats import Comparison, Conclusion, compare, format_interval
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

from .output import (
    format_field,
    format_wrapped,
    is_ascii_only,
    measure_text_width,
    print_message,
    print_report,
)
from .quickstart_task import evaluate_with_display, find_task_file
from .resume import build_next_command
from .signals import exit_interrupted, run_until_stopped
from .store_option import find_store_location
from .train_display import TrainDisplay, stop_after_step
from .train_grpo import format_grpo_step
from .train_sft import format_sft_step

_MAX_LISTED_SUMS = 3
_UNICODE_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII_BLOCKS = "_.-=+*%#"
_MAX_BARS = 50
_STAGES = {
    "demonstrations": "learning from demonstrations",
    "before": "measuring before",
    "rewards": "learning from scores",
    "after": "measuring after",
}


def train_and_compare(args: Namespace) -> int:
    """Exit status 0 whatever the model learned, which is only shown; 130 when interrupted."""
    # Raises for missing packages before anything is printed or written.
    check_training_packages()
    # A new folder each time: the models of earlier trainings are kept.
    names = (args.output / f"training{f'-{n}' if n > 1 else ''}" for n in counted(1))
    folder = next(path for path in names if not path.exists())
    # Imported by its path, like a user's file: in a source tree it is not part of the package.
    task = import_file(find_task_file("train_sums.py"))
    with Store.open(find_store_location(args)) as store:
        report = _QuickstartTraining(task, args, folder, store).run()
    print_report(args, report.lines(ascii_only=is_ascii_only()), report.plain())
    return 0


@dataclass
class _QuickstartTraining:
    """The whole training: SFT, evaluation, GRPO, evaluation again."""

    task: ModuleType
    """`examples/quickstart/train_sums.py`."""

    args: Namespace
    folder: Path
    store: Store
    spent: dict[str, "StageTime"] = field(default_factory=dict)

    def run(self) -> "QuickstartTrainingReport":
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
            Measured(
                *pair,
                compare(
                    *(self.store.run(each.run_id).results() for each in pair),
                    limit=_MAX_LISTED_SUMS,
                ),
            )
            for pair in zip(before, after, strict=True)
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
                "assay train grpo FILE.py: your own model and score (see `assay docs training`)",
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
                print_message("interrupted; start again with: assay quickstart --train")
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


@dataclass(frozen=True)
class StageTime:
    """The CPU and wall-clock time of a stage."""

    cpu_s: float
    wall_s: float

    def __str__(self) -> str:
        return f"{self.cpu_s:.1f} CPU s, {self.wall_s:.1f} s"


@dataclass(frozen=True)
class Measured:
    """The held-out sums before and after training, with one way of sampling."""

    before: EvalReport
    after: EvalReport
    comparison: Comparison

    def lines(self) -> list[str]:
        """Return both means with their intervals, and their comparison."""
        return [
            *format_wrapped("before", format_interval(self.before.summary.score.interval)),
            *format_wrapped("after", format_interval(self.after.summary.score.interval)),
            *self.comparison.lines(width=measure_text_width()),
        ]

    def plain(self) -> dict[str, Any]:
        """Return the same as plain values."""
        runs = {
            when: {"run": each.run_id, "score": json.loads(each.summary.score.model_dump_json())}
            for when, each in (("before", self.before), ("after", self.after))
        }
        return {
            **runs,
            "conclusion": str(self.comparison.conclusion),
            "comparison": json.loads(self.comparison.model_dump_json()),
        }


@dataclass(frozen=True)
class QuickstartTrainingReport:
    """The whole report of the command."""

    parameters: int
    demonstrations: int
    wrong: int
    repeats: int
    sft: SFTResult
    grpo: GRPOResult
    sampled: Measured
    greedy: Measured
    spent: Mapping[str, StageTime]
    next: tuple[str, ...]

    def lines(self, *, ascii_only: bool = False) -> list[str]:
        """Return the report as text."""
        sft, grpo = self.sft, self.grpo
        losses = f"{sft.steps[0].loss:.3f} at first, {sft.steps[-1].loss:.3f} at last"
        rollouts = sum(step.rollouts for step in grpo.steps)
        blocks = _ASCII_BLOCKS if ascii_only else _UNICODE_BLOCKS
        known = [reward for reward in grpo.rewards if reward is not None]
        spent = self.spent.values()
        whole = StageTime(sum(each.cpu_s for each in spent), sum(each.wall_s for each in spent))
        return [
            f"1. SFT: a model of {self.parameters:,} random weights learns from demonstrations",
            "",
            *format_wrapped(
                "learned from",
                f"{self.demonstrations} answered sums, {self.wrong} of them with a wrong answer "
                "on purpose, so that there is something left to learn",
            ),
            *format_wrapped("steps", str(len(sft.steps))),
            *format_wrapped("loss", losses),
            format_field("model", sft.model_path),
            "",
            "2. GRPO: it learns from the scores of its own answers",
            "",
            *format_wrapped(
                "scored by", "the scorer of the evaluations, on sums that are not held out"
            ),
            *format_wrapped("steps", f"{len(grpo.steps)}, {rollouts} answers"),
            *format_wrapped(
                "reward", format_reward_curve(known, blocks) if known else "none was judged"
            ),
            format_field("picture", grpo.curve_path),
            format_field("model", grpo.model_path),
            "",
            f"3. Sampled answers (temperature 1, {self.repeats} to each held-out sum)",
            "",
            *self.sampled.lines(),
            "",
            "4. The control: greedy answers (temperature 0)",
            "",
            *self.greedy.lines(),
            "",
            "5. Conclusion",
            "",
            *textwrap.wrap(
                explain_comparisons(self.sampled.comparison, self.greedy.comparison),
                measure_text_width(),
            ),
            "",
            *(f"{_STAGES[name]:<30}{spent}" for name, spent in self.spent.items()),
            f"{'in all':<30}{whole}",
            "",
            "next:",
            *(f"  {command}" for command in self.next),
        ]

    def plain(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "parameters": self.parameters,
            "demonstrations": {"count": self.demonstrations, "wrong": self.wrong},
            "sft": {
                "steps": len(self.sft.steps),
                "first_loss": self.sft.steps[0].loss,
                "last_loss": self.sft.steps[-1].loss,
                "model": str(self.sft.model_path),
            },
            "grpo": {
                "run": self.grpo.run_id,
                "rewards": self.grpo.rewards,
                "picture": str(self.grpo.curve_path),
                "model": str(self.grpo.model_path),
            },
            "sampled": self.sampled.plain(),
            "greedy": self.greedy.plain(),
            "shown": explain_comparisons(self.sampled.comparison, self.greedy.comparison),
            "spent": {name: asdict(each) for name, each in self.spent.items()},
            "store": self.grpo.store,
            "next": list(self.next),
        }


def format_reward_curve(rewards: Sequence[float], blocks: str) -> str:
    """Format rewards from 0 to 1 as blocks, each the mean of some steps, and both ends."""
    bars = min(len(rewards), _MAX_BARS)
    edges = [len(rewards) * bar // bars for bar in range(bars + 1)]
    means = [fmean(rewards[start:end]) for start, end in pairwise(edges)]
    levels = (min(int(mean * len(blocks)), len(blocks) - 1) for mean in means)
    return f"{''.join(blocks[level] for level in levels)} {means[0]:.2f} to {means[-1]:.2f}"


def explain_comparisons(sampled: Comparison, greedy: Comparison) -> str:
    """Conclude from both comparisons whether the model learned, or only sharpened.

    Sharpening makes sampled answers better without changing greedy ones.
    """
    known = {Conclusion.BETTER: "right more often", Conclusion.WORSE: "right less often"}
    drawn, likeliest = (
        known.get(each.conclusion, "not shown to be right more or less often")
        for each in (sampled, greedy)
    )
    first = f"Sampled answers are {drawn}; greedy ones are {likeliest}. "
    if greedy.conclusion is Conclusion.BETTER:
        return (
            f"{first}A model that only becomes more confident in its answers (sharpening) would "
            "keep its greedy ones. This model learned, as unseen sums show."
        )
    if sampled.conclusion is Conclusion.BETTER:
        return (
            f"{first}This shows sharpening: the model became more confident in answers that it "
            "already preferred. It does not show that the model learned."
        )
    return f"{first}This does not show that the model learned."
