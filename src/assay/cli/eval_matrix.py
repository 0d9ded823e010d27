"""Several agents or prompts in one `assay eval`: their runs and one comparison of them."""

import json
import os
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.errors import AssayError, ConfigError
from assay.runner import EvalConfig, Resume
from assay.stats import (
    AdjustedComparison,
    Conclusion,
    Interval,
    Total,
    compare_runs,
    format_interval,
    format_plural,
)
from assay.store import Store

from .eval_invocation import EvalInvocation
from .eval_variants import EvalVariant
from .exit_status import EXIT_INTERRUPTED, choose_exit_status
from .output import (
    cut,
    format_field,
    format_row,
    measure_line_width,
    pad,
    print_message,
    print_report,
    wrap_beside,
)
from .progress_bar import choose_display
from .resume import build_next_command, build_resume_command
from .run_summary import EvalCommandReport
from .run_tracking import RunTrackingStore
from .signals import exit_interrupted
from .store_option import find_store_location

# Short enough for a column.
_CONCLUSION_WORDS = {
    Conclusion.BETTER: "better",
    Conclusion.WORSE: "worse",
    Conclusion.NO_DIFFERENCE_SHOWN: "not shown",
    Conclusion.TOO_FEW: "too few",
}
_MIN_LABEL_WIDTH = 16
_MAX_NOTE_LINES = 3


@dataclass(frozen=True)
class MatrixEntry:
    """The outcome of one agent with one prompt."""

    variant: EvalVariant
    ending: EvalCommandReport | None = None
    error: AssayError | None = None
    run_id: str | None = None
    """The run, also of an evaluation that was aborted."""

    @property
    def exit_status(self) -> int:
        if self.ending is not None:
            return self.ending.exit_status
        # Not started: an earlier evaluation was interrupted.
        return EXIT_INTERRUPTED if self.error is None else choose_exit_status(self.error)

    @property
    def problem(self) -> str | None:
        """Why the evaluation is incomplete; None for a complete one."""
        if self.ending is not None:
            return self.ending.problem
        return "not started" if self.error is None else str(self.error)

    def plain(self) -> dict[str, Any]:
        """Return the outcome as plain values."""
        named = {"agent": self.variant.agent, "prompt": self.variant.prompt}
        if self.ending is not None:
            return {**named, **self.ending.plain()}
        return {
            **named,
            "run": self.run_id,
            "exit_status": self.exit_status,
            "problem": self.problem,
            "summary": None,
        }


@dataclass(frozen=True)
class MatrixReport:
    """The outcomes of all agents and prompts, and each run compared with the first."""

    store: str
    entries: tuple[MatrixEntry, ...]
    comparisons: dict[str, AdjustedComparison]
    """By run id. Empty if the first run is incomplete."""

    resume: str
    next: tuple[str, ...]

    @property
    def exit_status(self) -> int:
        return max(entry.exit_status for entry in self.entries)

    def print_all(self, args: Namespace) -> int:
        """Print the report and the problems of runs. Return the exit status."""
        print_report(args, self.lines(), self.plain())
        for entry in self.entries:
            if entry.problem is not None:
                print_message(f"{entry.variant.label}: {entry.problem}")
        if self.exit_status == EXIT_INTERRUPTED:
            exit_interrupted()
        return self.exit_status

    def lines(self) -> list[str]:
        """Return the table, then the runs and the commands that inspect them."""
        width = max((len(entry.variant.label) for entry in self.entries), default=0)
        runs = [
            f"  {entry.variant.label:<{width}}  {entry.run_id}"
            for entry in self.entries
            if entry.run_id is not None
        ]
        return [
            *self._format_table(measure_line_width()),
            *self._format_notes(),
            "runs",
            *runs,
            format_field("store", self.store),
            *(["next:", *(f"  {command}" for command in self.next)] if self.next else []),
        ]

    def plain(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "store": self.store,
            "exit_status": self.exit_status,
            "runs": [entry.plain() for entry in self.entries],
            "comparisons": {
                run_id: {
                    "baseline": self.entries[0].run_id,
                    "conclusion": str(found.conclusion),
                    "adjusted_p": found.adjusted_p,
                    **json.loads(found.comparison.model_dump_json()),
                }
                for run_id, found in self.comparisons.items()
            },
            "resume": self.resume,
            "next": list(self.next),
        }

    def _format_table(self, width: int) -> list[str]:
        rows = [self._format_cells(entry) for entry in self.entries]
        head = ["", "score", "failed", "cost", "difference", "p", "conclusion"]
        widths = [max(len(row[place]) for row in [head, *rows]) for place in range(len(head))]
        # In a narrow terminal the scores have to do without their differences, costs and failures.
        for name in ("difference", "cost", "failed"):
            needed = min(widths[0], _MIN_LABEL_WIDTH) + sum(widths[1:]) + 2 * len(widths)
            if needed > width:
                place = head.index(name)
                head, *rows = ([*row[:place], *row[place + 1 :]] for row in [head, *rows])
                widths.pop(place)
        others = sum(widths[1:]) + 2 * (len(widths) - 1)
        widths[0] = min(widths[0], max(width - others, _MIN_LABEL_WIDTH))
        for cells in rows:
            cells[0] = _shorten_label(cells[0], widths[0])
        lines = [format_row(head, [each + 1 for each in widths])]
        for entry, cells in zip(self.entries, rows, strict=True):
            if entry.ending is None:
                first_line = (entry.problem or "").splitlines()[0]
                state = first_line if entry.error is None else f"stopped: {first_line}"
                label = pad(cells[0], widths[0])
                lines.append(f"{label}  {cut(state, width - widths[0] - 2)}")
            else:
                lines.append(format_row(cells, [each + 1 for each in widths]))
        return lines

    def _format_cells(self, entry: MatrixEntry) -> list[str]:
        label, ending = entry.variant.label, entry.ending
        if ending is None:
            return [label, *[""] * 6]
        summary = ending.report.summary
        cells = [
            label,
            _format_mean(summary.score.interval),
            f"{ending.failed} of {summary.results}",
            _format_cost(summary.cost_usd),
        ]
        found = self.comparisons.get(ending.report.run_id)
        if found is None:
            state = "first" if self.comparisons else ""
            return [*cells, "", "", "interrupted" if ending.report.interrupted else state]
        return [
            *cells,
            _format_mean(found.comparison.difference, signed=True),
            _format_adjusted_p(found.adjusted_p),
            _CONCLUSION_WORDS[found.conclusion],
        ]

    def _format_notes(self) -> list[str]:
        notes = []
        if self.comparisons:
            tests = format_plural(len(self.comparisons), "test")
            note = f"against the first run, paired by sample, adjusted for {tests} (Holm)"
            notes += wrap_beside("p: ", note, max_lines=_MAX_NOTE_LINES)
        if any(found.comparison.direction == "min" for found in self.comparisons.values()):
            notes.append("score: low is good")
        for entry in self.entries:
            summary = None if entry.ending is None else entry.ending.report.summary
            if summary is not None and summary.invalid:
                results = format_plural(summary.invalid, "result")
                notes.append(f"{entry.variant.label}: {results} without a valid score")
        return notes


def run_matrix(
    variants: Sequence[EvalVariant], args: Namespace, resume: Resume | None
) -> MatrixReport:
    """Run the evaluations one after the other; one that is aborted does not end the others."""
    if resume is not None and resume.run_id != "latest":
        raise ConfigError(
            "--resume names one run, but the command has several",
            hint="pass --resume alone: the run of each agent and prompt is found by itself",
        )
    entries: list[MatrixEntry] = []
    previous: str | None = None
    with (
        RunTrackingStore.open(find_store_location(args), create=resume is None) as store,
        choose_display(quiet=args.quiet) as display,
    ):
        for number, variant in enumerate(variants, start=1):
            if entries and entries[-1].exit_status == EXIT_INTERRUPTED:
                entries.append(MatrixEntry(variant))
                continue
            display.print_line(f"{number} of {len(variants)}: {variant.label}")
            config = variant.file.config
            own = None
            if resume is not None:
                own = _find_run(store, variant.file.dataset, config, resume, previous)
                previous = previous if own is None else own.run_id
            invocation = EvalInvocation(
                variant.file, config, args, own, is_one_of_many=True, variant=number - 1
            )
            baseline = next((each.run_id for each in entries if each.run_id), None)
            try:
                ending = invocation.run(store, display, baseline)
            except AssayError as error:
                run_id = None if store.started is None else store.started.id
                entries.append(MatrixEntry(variant, error=error, run_id=run_id))
            else:
                entries.append(MatrixEntry(variant, ending, run_id=ending.report.run_id))
        return _build_report(entries, store, args)


def _find_run(
    store: Store, dataset: object, config: EvalConfig, resume: Resume, previous: str | None
) -> Resume | None:
    """Return how to resume the newest run of the same evaluation; None to start one.

    Runs before `previous`, which the evaluation before resumes, belong to an earlier command.
    """
    fingerprint = config.fingerprint()
    name = os.fspath(dataset) if isinstance(dataset, str | os.PathLike) else None
    for row in store.runs():
        spec = row.spec
        if spec.id == previous:
            return None
        if (
            spec.config_fingerprint == fingerprint
            and spec.repeats == config.repeats
            and name in (None, spec.dataset)
        ):
            return replace(resume, run_id=spec.id)
    return None


def _build_report(entries: list[MatrixEntry], store: Store, args: Namespace) -> MatrixReport:
    compared = [
        entry.ending.report.run_id
        for entry in entries
        if entry.ending is not None and not entry.ending.report.interrupted
    ]
    comparisons: dict[str, AdjustedComparison] = {}
    # Against a first run that stopped early, the others would be compared on a few samples.
    if len(compared) > 1 and compared[0] == entries[0].run_id:
        runs = [store.run(run_id) for run_id in compared]
        comparisons = dict(zip(compared[1:], compare_runs(runs), strict=True))
    commands = [build_next_command(args, "show", run_id) for run_id in compared[:1]]
    commands += [build_next_command(args, "compare", *compared[:2])] if len(compared) > 1 else []
    return MatrixReport(
        store=store.where,
        entries=tuple(entries),
        comparisons=comparisons,
        resume=build_resume_command(args, None),
        next=tuple(commands),
    )


def _shorten_label(label: str, width: int) -> str:
    # Variants differ in their agent, which comes first, or in their prompt, which comes last.
    if len(label) <= width:
        return label
    end = (width - 1) // 2
    return f"{label[: width - 1 - end]}…{label[-end:]}"


def _format_mean(interval: Interval, *, signed: bool = False) -> str:
    # The reason why there is no mean would take most of the line.
    return "none" if interval.mean is None else format_interval(interval, brief=True, signed=signed)


def _format_cost(total: Total) -> str:
    if total.value is not None:
        return f"${total.value:.4f}"
    return f">${total.at_least:.4f}" if total.at_least else "unknown"


def _format_adjusted_p(p_value: float | None) -> str:
    if p_value is None:
        return "unknown"
    return "<0.0001" if p_value < 0.0001 else f"{p_value:.4f}"
