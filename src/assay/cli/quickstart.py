"""`assay quickstart`: evaluate a small real model, gate it, improve it, compare and export."""

import json
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.errors import ConfigError
from assay.export import ExportOptions, ExportReport, Selection, export_samples
from assay.providers import connect
from assay.runner import EvalReport
from assay.stats import Comparison, GateRule, Verdict, compare, judge_gate
from assay.store import Store
from assay.types import make_private_folder

from .arguments import add_count, add_flag, add_report_options
from .eval_file import load_eval_file
from .output import measure_text_width, print_report
from .quickstart_task import evaluate_with_display, find_task_file
from .resume import build_next_command
from .store_option import add_store_option, find_store_location

FOLDER = Path("assay-quickstart")

# The configurations of the evaluation file, in the order in which they are run.
_STAGE_TITLES = {
    "plain": "The model answers without tools",
    "with_tool": "With four examples, its output is restricted to calculator calls",
}
# Between the two scores: the tour shows a gate that fails, and one that passes.
_GATE_THRESHOLD = 0.7
_MAX_LISTED_SAMPLES = 5


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add_flag(
        parser,
        "--train",
        "train a model of a million parameters instead, and compare before and after",
    )
    add_count(parser, "--max-samples", "run N of the tasks only")
    add_count(parser, "--steps", "with --train: run N steps of each training")
    parser.add_argument(
        "--seed", type=int, metavar="N", help="with --train: seed of the weights and of the sums"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=FOLDER,
        metavar="FOLDER",
        help=f"write files here (default: {FOLDER}/)",
    )
    add_store_option(parser)
    add_report_options(parser, quiet=True)


def main(args: Namespace) -> int:
    """Exit status 0 whatever the gate's verdict, which is only shown; 130 when interrupted."""
    if args.train:
        # Imported here: the tour without a training needs no torch.
        from .quickstart_train import train_and_compare

        return train_and_compare(args)
    for option in ("steps", "seed"):
        if getattr(args, option) is not None:
            raise ConfigError(f"--{option} has no effect without --train", where="assay quickstart")
    path = find_task_file("arithmetic.py")
    files = {title: load_eval_file(f"{path}:{name}") for name, title in _STAGE_TITLES.items()}
    for file in files.values():
        # Raises for a missing package before anything is printed or written.
        if file.config.endpoint is not None:
            connect(file.config.endpoint)
    try:
        make_private_folder(args.output)
    except OSError as error:
        raise ConfigError(f"-o {args.output} cannot be made: {error.strerror}") from None
    with Store.open(find_store_location(args)) as store:
        stages = []
        for title, file in files.items():
            words = f"SmolLM2-135M in this process, on one thread. {title}:"
            config = replace(file.config, max_samples=args.max_samples)
            report = evaluate_with_display(
                file.dataset, config, args=args, store=store, words=words
            )
            stages.append(Stage(title, report))
        tour = _compare_and_export(stages, args, store)
    print_report(args, tour.lines(), tour.plain())
    return 0


def _compare_and_export(stages: "list[Stage]", args: Namespace, store: Store) -> "QuickstartReport":
    first, last = (store.run(stage.report.run_id) for stage in stages)
    return QuickstartReport(
        stages=stages,
        comparison=compare(first.results(), last.results(), limit=_MAX_LISTED_SAMPLES),
        exported=export_samples(
            last.samples(),
            args.output / "sft.jsonl",
            "trl-sft",
            selection=Selection(min_score=1.0),
            # The folder is our own, and the tour may be repeated.
            options=ExportOptions(force=True),
        ),
        next=(
            build_next_command(args, "show", last.id),
            build_next_command(args, "compare", first.id, last.id),
            "assay quickstart --train",
            "assay eval FILE.py: your own model and score (see `assay docs evaluate`)",
        ),
    )


@dataclass(frozen=True)
class Stage:
    """One evaluation of the tour, and its gate verdict."""

    title: str
    report: EvalReport

    @property
    def verdict(self) -> Verdict:
        return judge_gate(self.report.summary, GateRule(minimum=_GATE_THRESHOLD))


@dataclass(frozen=True)
class QuickstartReport:
    """The whole report of the command."""

    stages: list[Stage]
    comparison: Comparison
    exported: ExportReport
    next: tuple[str, ...]

    def lines(self) -> list[str]:
        """Return the report as text."""
        lines: list[str] = []
        width = measure_text_width()
        for number, stage in enumerate(self.stages, start=1):
            lines += [f"{number}. {stage.title}", ""]
            lines += stage.report.summary.lines(width=width)
            lines += [*stage.verdict.lines(width=width), ""]
        lines += [f"{len(self.stages) + 1}. Is it better?", ""]
        lines += [*self.comparison.lines(width=width), ""]
        lines += [f"{len(self.stages) + 2}. Right answers, as data for fine-tuning", ""]
        lines += [f"{file}, {rows} samples" for file, rows in self.exported.files.items()]
        lines += [] if self.exported.files else ["no file: no sample was right"]
        return [*lines, "", "next:", *(f"  {command}" for command in self.next)]

    def plain(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "stages": [
                {
                    "title": stage.title,
                    "run": stage.report.run_id,
                    "summary": json.loads(stage.report.summary.model_dump_json()),
                    "gate": json.loads(stage.verdict.model_dump_json()),
                }
                for stage in self.stages
            ],
            "comparison": {
                "conclusion": str(self.comparison.conclusion),
                **json.loads(self.comparison.model_dump_json()),
            },
            "exported": self.exported.json(),
            "next": list(self.next),
        }
