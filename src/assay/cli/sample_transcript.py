"""A sample as a readable transcript. All of its text is untrusted."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from assay.runner import build_session_label
from assay.types import DataBlock, Message, Sample

from .output import sanitize_text, sanitize_to_line

if TYPE_CHECKING:
    from rich.text import Text

# About a screen for each message; --full shows everything.
_MAX_TEXT_CHARS = 2000
_MAX_TEXT_LINES = 40
_MAX_SHOWN_STEPS = 50
_ROLE_STYLES = {"user": "cyan", "assistant": "green", "tool": "magenta", "system": "yellow"}


@dataclass(frozen=True)
class Transcript:
    """Renders one sample; long texts are truncated with a note unless `full`."""

    sample: Sample
    repeat: int
    repeats: int
    full: bool = False

    def parts(self) -> Iterator["Text"]:
        """Yield the parts in chronological order, each of them whole lines."""
        for label, text in self._list_fields():
            style = "bold" if label == "sample" else ""
            yield _style_field(label, sanitize_to_line(text), style=style)
        if self.sample.ground_truth is not None:
            yield _style_field("expected", self._shorten(str(self.sample.ground_truth)))
        for number, message in enumerate(self.sample.messages):
            yield from self._render_message(number, message)
        yield from self._render_result()
        yield from self._render_failure()

    def _list_fields(self) -> Iterator[tuple[str, str]]:
        sample, trajectory = self.sample, self.sample.trajectory
        yield "sample", sample.id
        if self.repeats > 1:
            yield "repeat", f"{self.repeat} of {self.repeats}; --repeat N shows another"
        if (session := build_session_label(sample)) is not None:
            if session.title is not None:
                yield "title", session.title
            if session.created is not None:
                yield "date", f"{session.date} UTC"
            if session.place:
                yield "project", session.place
            origin = sample.metadata.get("forked_from")
            if isinstance(origin, Mapping):
                count = origin.get("inherited_messages")
                yield "fork of", f"{origin.get('session_id')}: {count} messages are from it"
        yield "status", str(sample.status)
        if trajectory is not None:
            yield "ended by", trajectory.termination_reason or "unknown"
            steps = "unknown" if trajectory.steps is None else str(trajectory.steps)
            took = "" if trajectory.duration is None else f", {trajectory.duration:.3f} s"
            cost = "" if trajectory.cost_usd is None else f", ${trajectory.cost_usd:.4f}"
            yield "steps", f"{steps}{took}, {len(trajectory.calls)} model calls{cost}"

    def _render_message(self, number: int, message: Message) -> Iterator["Text"]:
        title = sanitize_to_line(message.role)
        title += f" {sanitize_to_line(message.name)}" if message.name else ""
        # The outcome of a background task is a message of its own that names its call.
        answers = message.tool_call_id or message.metadata.get("tool_call_id")
        title += f" (answers {sanitize_to_line(answers)})" if answers else ""
        yield _style_text(f"\n--- {number} {title}", style=_ROLE_STYLES.get(message.role, "blue"))
        if message.reasoning:
            yield _style_text(self._shorten(message.reasoning), style="dim italic")
        if message.text:
            yield _style_text(self._shorten(message.text))
        if not isinstance(message.content, str):
            for block in message.content or ():
                if isinstance(block, DataBlock):
                    yield _style_text(f"[{sanitize_to_line(block.type)}: not shown]", style="dim")
        for call in message.tool_calls:
            name = sanitize_to_line(f"{call.name} [{call.id}]" if call.id else call.name)
            note = " (not a JSON object)" if call.malformed else ""
            arguments = self._shorten(call.arguments_text)
            yield _style_text(f"-> {name}{note}: {arguments}", style="magenta")

    def _render_result(self) -> Iterator["Text"]:
        result = self.sample.score
        yield _style_text("\n--- result", style="bold")
        if result is None:
            yield _style_field("score", "not judged")
            return
        outputs = result.step_outputs or ()
        shown = outputs if self.full else outputs[:_MAX_SHOWN_STEPS]
        for step in shown:
            reward = "unknown" if step.base_reward is None else f"{step.base_reward:g}"
            words = f"{sanitize_to_line(str(step.step_index))}: reward {reward}"
            words += ", terminated" if step.terminated else ""
            words += f": {self._shorten(step.reason)}" if step.reason else ""
            yield _style_field("step", words)
        if len(shown) < len(outputs):
            yield _style_field("", f"and {len(outputs) - len(shown)} more steps; --full shows all")
        score = "not judged" if result.score is None else f"{result.score:g}"
        if result.score is not None and not result.is_score_valid:
            score += " (not valid: not judged)"
        yield _style_field("score", score)
        if result.reason:
            yield _style_field("reason", self._shorten(result.reason))
        if result.error:
            yield _style_field("error", self._shorten(result.error))
        for name, metric in result.metrics.items():
            value = "not measured" if metric.score is None else f"{metric.score:g}"
            value += "" if metric.is_score_valid or metric.score is None else " (not valid)"
            value += "" if metric.weight is None else f", weight {metric.weight:g}"
            value += f": {self._shorten(metric.reason)}" if metric.reason else ""
            yield _style_field("metric", f"{sanitize_to_line(name)} {value}")

    def _render_failure(self) -> Iterator["Text"]:
        failure = self.sample.failure
        if failure is None:
            return
        yield _style_text(f"\n--- failed: {failure.boundary}", style="red")
        again = "retryable" if failure.retryable else "not retryable"
        yield _style_text(
            f"{sanitize_to_line(failure.kind)}: {self._shorten(failure.message)} ({again})"
        )
        if failure.traceback:
            yield _style_text(self._shorten(failure.traceback, end=True), style="dim")

    def _shorten(self, text: str, *, end: bool = False) -> str:
        # The end of a traceback names the error; of other texts the beginning is shown.
        lines = text.rstrip().splitlines()
        kept = lines[-_MAX_TEXT_LINES:] if end else lines[:_MAX_TEXT_LINES]
        short = "\n".join(kept)
        short = short[-_MAX_TEXT_CHARS:] if end else short[:_MAX_TEXT_CHARS]
        missing = len("\n".join(lines)) - len(short)
        if self.full or missing <= 0:
            return sanitize_text(text.rstrip())
        note = f"[{missing} more characters; --full shows them]"
        shown = sanitize_text(short)
        return f"{note}\n{shown}" if end else f"{shown}\n{note}"


def _style_text(text: str, *, style: str = "") -> "Text":
    # `Text`, not `str`: rich reads square brackets in a string as markup.
    return Text(text, style=style, overflow="fold")


def _style_field(label: str, text: str, *, style: str = "") -> "Text":
    return _style_text(f"{label:<10}{text}", style=style)
