"""The report of `assay quickstart --train`: what changed, its significance and its cost."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from assay.runner import EvalReport
from assay.stats import WIDTH, Comparison, Conclusion, format_interval, format_labelled
from assay.train import GRPOResult, SFTResult

from .output import format_field

_UNICODE_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII_BLOCKS = "_.-=+*%#"
_MAX_BARS = 50
_STAGES = {
    "demonstrations": "learning from demonstrations",
    "before": "measuring before",
    "rewards": "learning from scores",
    "after": "measuring after",
}


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
            *format_labelled("before", format_interval(self.before.summary.score.interval)),
            *format_labelled("after", format_interval(self.after.summary.score.interval)),
            *self.comparison.lines(),
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
            *format_labelled(
                "learned from",
                f"{self.demonstrations} answered sums, {self.wrong} of them with a wrong answer "
                "on purpose, so that there is something left to learn",
            ),
            *format_labelled("steps", str(len(sft.steps))),
            *format_labelled("loss", losses),
            format_field("model", sft.model_path),
            "",
            "2. GRPO: it learns from the scores of its own answers",
            "",
            *format_labelled(
                "scored by", "the scorer of the evaluations, on sums that are not held out"
            ),
            *format_labelled("steps", f"{len(grpo.steps)}, {rollouts} answers"),
            *format_labelled(
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
                explain_comparisons(self.sampled.comparison, self.greedy.comparison), WIDTH
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
