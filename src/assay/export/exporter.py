"""`export_samples`: from samples to a file of another format, with an account of the rest."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from assay.errors import AssayError, ConfigError, TokenError, WireError
from assay.formats import asked_of
from assay.types import Sample

from .content_digests import Seen, conversation_digest, digest_of
from .export_report import ExportReport
from .format_table import Format, Row, format_named
from .grader import grader_stub
from .groups import Group, Groups, group_key
from .inferred_parquet import Inferred
from .output_files import Files
from .overlap import EvaluationTexts
from .selection import Selection, refusal
from .split import Split, Splitter
from .token_lengths import Lengths

Tokenise = Callable[[Sample], Iterable[Sample]]
"""Gives samples with tokens and a mask. Raises `TokenError` where there are none to be had."""

_Chosen = tuple[Sample, ...]
"""What one row is made of: a sample, or the better and the worse one of a pair."""


@dataclass(frozen=True)
class ExportOptions:
    """What else an export can be told. None: not asked for."""

    split: Split | None = None
    lengths: Lengths | None = None
    overlap: EvaluationTexts | None = None
    tokenise: Tokenise | None = None
    force: bool = False
    """Overwrite files that are there."""


def export_samples(
    samples: Iterable[Sample],
    target: Path,
    form: str,
    *,
    selection: Selection | None = None,
    options: ExportOptions | None = None,
) -> ExportReport:
    """Write the samples that `selection` asks for to `target` in format `form`.

    Streams: samples are read one at a time, and brought together on disk where groups are needed.
    The file appears whole when all is written; nothing appears when there is nothing to write.
    """
    export = _Export(form, target, selection or Selection(), options or ExportOptions())
    return export.run(samples)


@dataclass
class _Export:
    name: str
    target: Path
    selection: Selection
    options: ExportOptions
    report: ExportReport = field(init=False)
    form: Format = field(init=False)

    def __post_init__(self) -> None:
        self.form = format_named(self.name)
        self.form.check_target(self.target, self.name)
        self.report = ExportReport(self.name)
        _check(self.selection, self.form, self.name)

    def run(self, samples: Iterable[Sample]) -> ExportReport:
        split = self.options.split
        parts = {"": self.target} if split is None else split.files(self.target)
        stub = self.target.with_name(f"{self.target.stem}.grader.json")
        graded = self.name == "openai-rft"
        targets = [*parts.values(), *([stub] if graded else [])]
        with ExitStack() as stack:
            files = stack.enter_context(
                Files(targets, columns=self.form.columns, force=self.options.force)
            )
            splitter = None if split is None else Splitter(split)
            for chosen, rows in self._rows(self._chosen(self._kept(samples), stack)):
                part = "" if splitter is None else splitter.part_of(chosen[0])
                self._put(files, parts[part], chosen, rows)
                if self._full() and not self._grouped:
                    self.report.notes.append(f"ended after {self.report.rows} rows, as asked for")
                    break
            if graded and self.report.rows:
                files.add_text(stub, grader_stub())
            files.commit()
            self._report_changes(files)
        self._remark(parts, stub if graded else None)
        return self.report

    def _report_changes(self, files: Files) -> None:
        changes = files.count_changes()
        self.report.lost += changes
        if changes and isinstance(self.form.columns, Inferred):
            self.report.notes.append(self.form.columns.hint)

    def _full(self) -> bool:
        return self.report.rows == self.selection.limit

    @property
    def _grouped(self) -> bool:
        """Whether all samples are read before the first row is written."""
        return self.form.takes == "pairs" or self.selection.best_of_group

    def _put(self, files: Files, target: Path, chosen: _Chosen, rows: list[Row]) -> None:
        report = self.report
        if self._full():
            for sample in chosen:
                report.leave_out(sample.id, "beyond the limit")
            return
        for row in rows:
            if self._full():
                break
            try:
                files.write(target, row.value)
            except WireError as error:
                for sample in chosen:
                    report.leave_out(sample.id, *_reason(error))
                return
            report.rows += 1
            report.files[str(target)] = report.files.get(str(target), 0) + 1
            report.lose(row.lost)
        report.used += len(chosen)

    def _kept(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """The samples that nothing speaks against, each looked at on its own."""
        seen = Seen()
        for sample in samples:
            self.report.read += 1
            try:
                reason = self._refusal(sample, seen)
            except WireError as error:
                reason = _reason(error)
            if reason is None:
                yield sample
            else:
                self.report.leave_out(sample.id, *reason)

    def _refusal(self, sample: Sample, seen: Seen) -> tuple[str, str] | None:
        if reason := refusal(sample, self.selection, self.form.takes):
            return reason, ""
        prompts = self.form.takes == "prompts"
        if self.options.lengths is not None:
            reason = self.options.lengths.refusal(sample, prompt_only=prompts)
            if reason is not None:
                return reason, ""
        overlap = self.options.overlap
        if overlap is not None and (found := overlap.found_in(sample)) is not None:
            return f"overlaps the evaluation set: {found.kind}", str(found)
        if prompts:
            key = digest_of([conversation_digest(asked_of(sample)).hex(), sample.ground_truth])
            return None if seen.is_new(key) else ("the same prompt again", "")
        if self.selection.dedupe and not seen.is_new(conversation_digest(sample.messages)):
            return "the same conversation again", ""
        return None

    def _chosen(self, samples: Iterator[Sample], stack: ExitStack) -> Iterator[_Chosen]:
        if not self._grouped:
            yield from ((sample,) for sample in samples)
            return
        pairs = self.form.takes == "pairs"
        groups = stack.enter_context(Groups())
        for sample in samples:
            try:
                groups.add(group_key(sample, same_context=pairs), sample)
            except WireError as error:
                self.report.leave_out(sample.id, *_reason(error))
        yield from self._pairs(groups) if pairs else self._best(groups)

    def _best(self, groups: Groups) -> Iterator[_Chosen]:
        for group in groups:
            worst = () if group.worst is None else (group.worst.id,)
            for name in (*group.others, *worst):
                self.report.leave_out(name, "not the best of its group")
            yield (group.best,)

    def _pairs(self, groups: Groups) -> Iterator[_Chosen]:
        for group in groups:
            problem = _unpaired(group, self.selection)
            for name in group.others:
                self.report.leave_out(name, problem or "neither best nor worst of its group")
            if problem is None and group.worst is not None:
                yield (group.best, group.worst)
                continue
            for sample in (group.best, group.worst):
                if sample is not None:
                    self.report.leave_out(sample.id, problem or "")

    def _rows(self, chosen: Iterable[_Chosen]) -> Iterator[tuple[_Chosen, list[Row]]]:
        for each in chosen:
            try:
                yield each, self._converted(each)
            except (WireError, TokenError) as error:
                for sample in each:
                    self.report.leave_out(sample.id, *_reason(error))

    def _converted(self, chosen: _Chosen) -> list[Row]:
        first = chosen[0]
        if self.form.takes == "pairs":
            return [self.form.write(*chosen)]
        if self.form.takes == "labels":
            good = (first.reward or 0.0) >= (self.selection.min_score or 0.0)
            return [self.form.write(first, good=good)]
        if self.form.takes == "tokens":
            tokenise = self.options.tokenise
            made = [first] if first.tokens or tokenise is None else tokenise(first)
            return [self.form.write(each) for each in made]
        return [self.form.write(first)]

    def _remark(self, parts: dict[str, Path], stub: Path | None) -> None:
        report = self.report
        if report.rows and stub is not None:
            report.notes.append(f"{stub} is a grader to start from: edit it before it is used")
        empty = [name for name, path in parts.items() if name and str(path) not in report.files]
        if report.rows and empty:
            report.notes.append(f"no file for {', '.join(empty)}: no sample fell into it")
        if 0 < report.rows < self.form.least:
            report.notes.append(f"{self.name} takes no fewer than {self.form.least} rows")
        if report.rows and self.form.note is not None:
            report.notes.append(self.form.note)
        if self.options.lengths is not None:
            report.notes.append(f"lengths are {self.options.lengths.source}")


def _check(selection: Selection, form: Format, name: str) -> None:
    if form.takes == "labels" and selection.min_score is None:
        raise ConfigError(
            f"{name} needs a score from which an answer is good", hint="add --min-score"
        )
    if selection.best_of_group and form.takes in ("pairs", "labels", "prompts"):
        raise ConfigError(f"{name} has no use for the best of each group alone")
    if selection.margin and form.takes != "pairs":
        raise ConfigError(f"{name} is no format of pairs, so there is no margin between two")


def _unpaired(group: Group, selection: Selection) -> str | None:
    """Why a group gives no pair; None when it does."""
    if group.worst is None and not group.others:
        return "the only answer to its input"
    if group.worst is None:
        return "no answer of its group is better than another"
    best, worst = group.best.reward or 0.0, group.worst.reward or 0.0
    if best - worst < selection.margin:
        return "no answer of its group is better by the margin"
    too_low = selection.min_score is not None and best < selection.min_score
    return "no answer of its group scores enough" if too_low else None


def _reason(error: AssayError) -> tuple[str, str]:
    """What is wrong, the same for every sample that it is wrong with; and where in the sample."""
    inside = error.where is not None and not error.where.startswith("sample ")
    return error.message, f"{error.where}: {error.message}" if inside else ""
