"""`export_samples`: write samples as files of another format, and report the rest."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from assay.errors import AssayError, ConfigError, TokenError, WireError
from assay.formats import get_prompt_messages
from assay.types import Sample

from .content_digests import DigestTable, digest_conversation, digest_json
from .corrections import CORRECTED, NO_ANSWER, Correction
from .export_report import ExportReport
from .format_table import FORMATS, ExportRow, Format, find_format
from .groups import AnswerGroup, AnswerGroups, compute_group_key
from .inferred_parquet import InferredColumns
from .output_files import OutputFiles
from .overlap import EvaluationTexts
from .selection import Selection, find_exclusion
from .split import Split, Splitter
from .token_lengths import Lengths

Tokenise = Callable[[Sample], Iterable[Sample]]
"""Yields samples with tokens and a mask. Raises `TokenError` when tokens are unavailable."""

# The samples behind one row: a sample, or the better and the worse one of a pair.
_RowSamples = tuple[Sample, ...]

_GRADER_SOURCE = '''\
def grade(sample, item):
    """1.0 when the answer is the reference answer, else 0.0. Put your own rule here."""
    answer = (sample.get("output_text") or "").strip()
    reference = item.get("reference_answer")
    return 1.0 if reference is not None and answer == str(reference).strip() else 0.0
'''
_GRADER = {"type": "python", "name": "reference_answer", "source": _GRADER_SOURCE}

GRADER_STUB = f"{json.dumps(_GRADER, indent=2)}\n"
"""The JSON of a grader to start from, for OpenAI's reinforcement fine-tuning."""


@dataclass(frozen=True)
class ExportOptions:
    """Further options of an export. None: off."""

    split: Split | None = None
    lengths: Lengths | None = None
    overlap: EvaluationTexts | None = None
    tokenise: Tokenise | None = None
    force: bool = False
    """Overwrite existing files."""


def export_samples(
    samples: Iterable[Sample | Correction],
    target: Path,
    form: str | Format,
    *,
    selection: Selection | None = None,
    options: ExportOptions | None = None,
) -> ExportReport:
    """Write the samples that `selection` accepts to `target` in the format `form`.

    `form` is the name of a format, or a `Format` of your own. Samples are streamed one at a time;
    groups are collected on disk. The file is moved into place when it is complete, and no file is
    written without rows. A correction is written where answers are learned from: as the answer, and
    in pairs as the better one of itself and the recorded one.
    """
    name, found = (form.about, form) if isinstance(form, Format) else (form, find_format(form))
    export = _Export(name, found, target, selection or Selection(), options or ExportOptions())
    return export.run(samples)


@dataclass
class _Export:
    name: str
    form: Format
    target: Path
    selection: Selection
    options: ExportOptions
    report: ExportReport = field(init=False)

    def __post_init__(self) -> None:
        self.form.check_target(self.target, self.name)
        self.report = ExportReport(self.name)
        selection, takes = self.selection, self.form.takes
        if takes == "labels" and selection.min_score is None:
            raise ConfigError(
                f"{self.name} needs a minimum score for desirable answers", hint="pass --min-score"
            )
        if selection.best_of_group and takes in ("pairs", "labels", "prompts"):
            raise ConfigError(
                f"{self.name} cannot be combined with the best answer of each group only"
            )
        if selection.margin and takes != "pairs":
            raise ConfigError(f"{self.name} does not write pairs, so a margin has no effect")

    def run(self, samples: Iterable[Sample | Correction]) -> ExportReport:
        split = self.options.split
        parts = {"": self.target} if split is None else split.files(self.target)
        stub = self.target.with_name(f"{self.target.stem}.grader.json")
        graded = self.form is FORMATS["openai-rft"]
        targets = [*parts.values(), *([stub] if graded else [])]
        with ExitStack() as stack:
            files = stack.enter_context(
                OutputFiles(targets, columns=self.form.columns, force=self.options.force)
            )
            splitter = None if split is None else Splitter(split)
            corrected: list[_RowSamples] = []
            plain = self._resolve_corrections(samples, corrected)
            for chosen in self._choose(self._filter_samples(plain), corrected, stack):
                try:
                    rows = self._convert(chosen)
                except (WireError, TokenError) as error:
                    for sample in _list_read(chosen):
                        self.report.leave_out(sample.id, *_explain_exclusion(error))
                    continue
                part = "" if splitter is None else splitter.part_of(chosen[0])
                self._write_rows(files, parts[part], chosen, rows)
                # With groups all samples are read already, and the rest is counted as excluded.
                if self._is_full() and not self._needs_groups:
                    self.report.notes.append(f"stopped at the limit of {self.report.rows} rows")
                    break
            if graded and self.report.rows:
                files.add_text(stub, GRADER_STUB)
            files.commit()
            # After the commit: inferred columns are known only when all rows are written.
            changes = files.count_changes()
            self.report.lost += changes
            if changes and isinstance(self.form.columns, InferredColumns):
                self.report.notes.append(self.form.columns.hint)
        self._add_notes(parts, stub if graded else None)
        return self.report

    def _is_full(self) -> bool:
        return self.report.rows == self.selection.limit

    @property
    def _needs_groups(self) -> bool:
        """Whether all samples must be read before the first row is written."""
        return self.form.takes == "pairs" or self.selection.best_of_group

    def _write_rows(
        self, files: OutputFiles, target: Path, chosen: _RowSamples, rows: list[ExportRow]
    ) -> None:
        report = self.report
        if self._is_full():
            for sample in _list_read(chosen):
                report.leave_out(sample.id, "beyond the limit")
            return
        for row in rows:
            if self._is_full():
                break
            try:
                files.write(target, row.value)
            except WireError as error:
                for sample in _list_read(chosen):
                    report.leave_out(sample.id, *_explain_exclusion(error))
                return
            report.rows += 1
            report.files[str(target)] = report.files.get(str(target), 0) + 1
            report.count_dropped(row.dropped)
        report.used += len(_list_read(chosen))

    def _resolve_corrections(
        self, samples: Iterable[Sample | Correction], pairs: list[_RowSamples]
    ) -> Iterator[Sample]:
        """Yield recorded samples and corrected ones; collect the pairs of both."""
        for given in samples:
            self.report.read += 1
            if not isinstance(given, Correction):
                yield given
            elif self.form.takes in ("answers", "tokens"):
                self.report.corrected += 1
                yield given.build_corrected()
            elif self.form.takes == "pairs":
                self._add_corrected_pair(given, pairs)
            else:
                # Other formats are about what happened, or about prompts.
                yield given.recorded

    def _add_corrected_pair(self, given: Correction, pairs: list[_RowSamples]) -> None:
        chosen, rejected = given.build_corrected(), given.build_rejected()
        reason = (NO_ANSWER, "") if rejected is None else None
        if rejected is not None and rejected.response == chosen.response:
            reason = ("the corrected answer is the recorded one", "")
        reason = reason or self._find_exclusion(chosen, DigestTable())
        if reason is not None or rejected is None:
            self.report.leave_out(given.recorded.id, *(reason or (NO_ANSWER, "")))
            return
        self.report.corrected += 1
        pairs.append((chosen, rejected))

    def _filter_samples(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """Yield the samples that pass all filters, and count the others."""
        seen = DigestTable()
        for sample in samples:
            try:
                reason = self._find_exclusion(sample, seen)
            except WireError as error:
                reason = _explain_exclusion(error)
            if reason is None:
                yield sample
            else:
                self.report.leave_out(sample.id, *reason)

    def _find_exclusion(self, sample: Sample, seen: DigestTable) -> tuple[str, str] | None:
        # Duplicates last: a sample that is excluded for another reason must not make a later
        # copy of it a duplicate.
        if reason := find_exclusion(sample, self.selection, self.form.takes):
            return reason, ""
        prompts = self.form.takes == "prompts"
        if self.options.lengths is not None:
            reason = self.options.lengths.find_length_problem(sample, prompt_only=prompts)
            if reason is not None:
                return reason, ""
        overlap = self.options.overlap
        if overlap is not None and (found := overlap.find_overlap(sample)) is not None:
            return f"overlaps the evaluation set: {found.kind}", str(found)
        if prompts:
            key = digest_json(
                [digest_conversation(get_prompt_messages(sample)).hex(), sample.ground_truth]
            )
            return None if seen.is_new(key) else ("the same prompt again", "")
        if self.selection.dedupe and not seen.is_new(digest_conversation(sample.messages)):
            return "the same conversation again", ""
        return None

    def _choose(
        self, samples: Iterator[Sample], corrected: list[_RowSamples], stack: ExitStack
    ) -> Iterator[_RowSamples]:
        if not self._needs_groups:
            yield from ((sample,) for sample in samples)
            return
        pairs = self.form.takes == "pairs"
        groups = stack.enter_context(AnswerGroups())
        for sample in samples:
            try:
                groups.add(compute_group_key(sample, same_context=pairs), sample)
            except WireError as error:
                self.report.leave_out(sample.id, *_explain_exclusion(error))
        # People wrote these one by one, so that they fit into memory. All are known by now.
        yield from corrected
        for group in groups:
            problem = _find_pair_problem(group, self.selection) if pairs else None
            chosen: _RowSamples = (group.best,)
            left_out = group.others
            if pairs and problem is None and group.worst is not None:
                chosen = (group.best, group.worst)
            elif group.worst is not None:
                left_out = (*left_out, group.worst.id)
            reason = "neither best nor worst of its group" if pairs else "not the best of its group"
            for name in left_out if problem is None else (*left_out, group.best.id):
                self.report.leave_out(name, problem or reason)
            if problem is None:
                yield chosen

    def _convert(self, chosen: _RowSamples) -> list[ExportRow]:
        first = chosen[0]
        if self.form.takes == "pairs":
            return [self.form.write(*chosen)]
        if self.form.takes == "labels":
            good = self.selection.accepts_score(first.reward or 0.0)
            return [self.form.write(first, good=good)]
        if self.form.takes == "tokens":
            tokenise = self.options.tokenise
            # Recorded tokens are exact; tokenising the text again may give others.
            made = [first] if first.tokens or tokenise is None else tokenise(first)
            return [self.form.write(each) for each in made]
        return [self.form.write(first)]

    def _add_notes(self, parts: dict[str, Path], stub: Path | None) -> None:
        report = self.report
        if report.rows and stub is not None:
            report.notes.append(f"{stub} is a grader template; edit it before you use it")
        empty = [name for name, path in parts.items() if name and str(path) not in report.files]
        if report.rows and empty:
            report.notes.append(f"no file was written for {', '.join(empty)}: it has no samples")
        if 0 < report.rows < self.form.least:
            report.notes.append(f"{self.name} requires at least {self.form.least} rows")
        if report.rows and self.form.note is not None:
            report.notes.append(self.form.note)
        if report.corrected:
            report.notes.append(f"answers corrected by people were used: {report.corrected}")
        if self.options.lengths is not None:
            report.notes.append(f"lengths are {self.options.lengths.source}")


def _list_read(chosen: _RowSamples) -> _RowSamples:
    """Return the samples that were read: the two answers of a corrected pair are one."""
    trajectory = chosen[0].trajectory
    is_corrected = trajectory is not None and trajectory.termination_reason == CORRECTED
    return chosen[:1] if is_corrected else chosen


def _find_pair_problem(group: AnswerGroup, selection: Selection) -> str | None:
    """Return the reason why a group gives no pair, or None."""
    if group.worst is None and not group.others:
        return "the only answer to its input"
    if group.worst is None:
        return "no answer of its group is better than another"
    best, worst = group.best.reward or 0.0, group.worst.reward or 0.0
    if best - worst < selection.margin:
        return "no answer of its group is better by the margin"
    return None if selection.accepts_score(best) else "no answer of its group scores enough"


def _explain_exclusion(error: AssayError) -> tuple[str, str]:
    """Return the reason, which is equal for all samples with the problem, and the detail."""
    inside = error.where is not None and not error.where.startswith("sample ")
    return error.message, f"{error.where}: {error.message}" if inside else ""
