"""`assay quickstart`: a first result, from samples that ship with assay. Calls no model."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from assay.models import Sample
from assay.report import mean_interval
from assay.scoring import exact_answer
from assay.sources import load_samples

from .terminal import ascii_only, plain, print_json, render

DATASET = Path(__file__).with_name("quickstart.jsonl")
NEXT = (
    "assay quickstart --json: the reason for each score",
    "assay eval FILE.py: ask a model, record and score (docs/commands.md)",
    "@evaluation_test in a pytest file: the same in CI (docs/pytest.md)",
)
_ANSWER_WIDTH = 18


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def main(args: Namespace) -> int:
    """Score the shipped samples and print what came of it. Exit status 0."""
    samples = score_samples(DATASET)
    if args.json:
        print_json(summary(samples))
    else:
        print_table(samples)
    return 0


def score_samples(dataset: Path) -> list[Sample]:
    """The samples of a dataset whose answers are recorded, each with its result."""
    scorer = exact_answer()
    samples = list(load_samples(dataset))
    for sample in samples:
        sample.score = scorer(sample)
    return samples


def summary(samples: list[Sample]) -> dict[str, Any]:
    """What the table says, as plain values, with the reasons that it has no room for."""
    rewards = [sample.reward for sample in samples if sample.reward is not None]
    interval = mean_interval(rewards)
    return {
        "samples": [
            {
                "id": sample.id,
                "question": question(sample),
                "answer": sample.response,
                "expected": sample.ground_truth,
                "score": sample.reward,
                "reason": sample.score.reason if sample.score is not None else None,
            }
            for sample in samples
        ],
        "mean": interval.mean,
        "interval": None if interval.low is None else [interval.low, interval.high],
        "judged": len(rewards),
        "not_judged": len(samples) - len(rewards),
        "next": list(NEXT),
    }


def question(sample: Sample) -> str:
    """What the user asked last."""
    asked = [message.text for message in sample.messages if message.role == "user"]
    return asked[-1] if asked else ""


def print_table(samples: list[Sample]) -> None:
    """Print one line for each sample, then the mean and what it leaves out."""
    from rich import box
    from rich.table import Table

    said = summary(samples)
    table = Table(
        box=box.ASCII2 if ascii_only() else box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        expand=True,
    )
    table.add_column("sample", no_wrap=True, max_width=12)
    table.add_column("question", ratio=1, no_wrap=True)
    table.add_column("answer", no_wrap=True, width=_ANSWER_WIDTH)
    table.add_column("expected", no_wrap=True, max_width=11)
    table.add_column("score", no_wrap=True, justify="right", min_width=len("not judged"))
    for each in said["samples"]:
        table.add_row(*_cells(each))
    render(table)
    mean = "none" if said["mean"] is None else f"{said['mean']:.2f}"
    if said["interval"] is not None:
        mean += " [{:.2f}, {:.2f}]".format(*said["interval"])
    print(
        f"mean score {mean} over {said['judged']} judged samples; {said['not_judged']} not judged"
    )
    print("next:", *NEXT, sep="\n  ")


def _cells(each: dict[str, Any]) -> list[Any]:
    from rich.text import Text

    expected = each["expected"]
    if isinstance(expected, list):
        expected = " or ".join(map(str, expected))
    score, style = ("not judged", "yellow")
    if each["score"] is not None:
        score, style = f"{each['score']:.1f}", "green" if each["score"] >= 1 else "red"
    texts = (
        plain(each["id"]),
        plain(each["question"]),
        _ending(plain(each["answer"])),
        "-" if expected is None else plain(str(expected)),
    )
    # `Text`, not `str`: rich reads square brackets in a string as markup.
    return [*map(Text, texts), Text(score, style=style)]


def _ending(answer: str) -> str:
    """The end of a long answer, where what it comes to usually stands."""
    from rich.cells import cell_len

    if cell_len(answer) <= _ANSWER_WIDTH:
        return answer
    end = answer[-(_ANSWER_WIDTH - 1) :]
    while cell_len(end) > _ANSWER_WIDTH - 1:
        end = end[1:]
    return f"…{end}"
