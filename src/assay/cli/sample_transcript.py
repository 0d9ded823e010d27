"""A sample as a readable transcript. Everything in it was written by somebody else."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.types import DataBlock, EvaluateResult, Message, Sample, ToolCall

from .labels import session_label
from .terminal import plain, plain_text

if TYPE_CHECKING:
    from rich.text import Text

_MOST_CHARACTERS = 2000
_MOST_LINES = 40
_MOST_STEPS = 50
_STYLES = {"user": "cyan", "assistant": "green", "tool": "magenta", "system": "yellow"}


@dataclass(frozen=True)
class Transcript:
    """One sample, ready to be shown; long texts are cut with a note unless `full`."""

    sample: Sample
    repeat: int
    repeats: int
    full: bool = False

    def parts(self) -> Iterator["Text"]:
        """The pieces in the order in which things happened, each ending its line."""
        yield from self._head()
        for number, message in enumerate(self.sample.messages):
            yield from self._message(number, message)
        yield from self._result()
        yield from self._failure()

    def _head(self) -> Iterator["Text"]:
        sample, trajectory = self.sample, self.sample.trajectory
        yield _line("sample", plain(sample.id), style="bold")
        if self.repeats > 1:
            yield _line("repeat", f"{self.repeat} of {self.repeats}; --repeat N shows another")
        yield from self._session()
        yield _line("status", str(sample.status))
        if trajectory is not None:
            yield _line("ended by", plain(trajectory.termination_reason or "unknown"))
            steps = "unknown" if trajectory.steps is None else str(trajectory.steps)
            took = "" if trajectory.duration is None else f", {trajectory.duration:.3f} s"
            cost = "" if trajectory.cost_usd is None else f", ${trajectory.cost_usd:.4f}"
            yield _line("steps", f"{steps}{took}, {len(trajectory.calls)} model calls{cost}")
        if sample.ground_truth is not None:
            yield _line("expected", self._cut(str(sample.ground_truth)))

    def _session(self) -> Iterator["Text"]:
        """Which recorded session this is, where it is one."""
        if (session := session_label(self.sample)) is None:
            return
        if session.title is not None:
            yield _line("title", plain(session.title))
        if session.created is not None:
            yield _line("date", plain(f"{session.date} UTC"))
        if session.place:
            yield _line("project", plain(session.place))
        origin = self.sample.metadata.get("forked_from")
        if isinstance(origin, Mapping):
            count = origin.get("inherited_messages")
            yield _line(
                "fork of", plain(f"{origin.get('session_id')}: {count} messages are from it")
            )

    def _message(self, number: int, message: Message) -> Iterator["Text"]:
        title = plain(message.role)
        title += f" {plain(message.name)}" if message.name else ""
        # The outcome of a task in the background is a message of its own that names its call.
        answers = message.tool_call_id or message.metadata.get("tool_call_id")
        title += f" (answers {plain(answers)})" if answers else ""
        yield _text(f"\n--- {number} {title}", style=_STYLES.get(message.role, "blue"))
        if message.reasoning:
            yield _text(self._cut(message.reasoning), style="dim italic")
        if message.text:
            yield _text(self._cut(message.text))
        if not isinstance(message.content, str):
            for block in message.content or ():
                if isinstance(block, DataBlock):
                    yield _text(f"[{plain(block.type)}: not shown]", style="dim")
        for call in message.tool_calls:
            yield self._call(call)

    def _call(self, call: ToolCall) -> "Text":
        name = plain(call.name) + (f" [{plain(call.id)}]" if call.id else "")
        note = " (not a JSON object)" if call.malformed else ""
        return _text(f"-> {name}{note}: {self._cut(call.arguments_text)}", style="magenta")

    def _result(self) -> Iterator["Text"]:
        result = self.sample.score
        yield _text("\n--- result", style="bold")
        if result is None:
            yield _line("score", "not judged")
            return
        yield from self._steps(result)
        yield _line("score", _score(result))
        if result.reason:
            yield _line("reason", self._cut(result.reason))
        if result.error:
            yield _line("error", self._cut(result.error))
        for name, metric in result.metrics.items():
            value = "not measured" if metric.score is None else f"{metric.score:g}"
            value += "" if metric.is_score_valid or metric.score is None else " (not valid)"
            value += "" if metric.weight is None else f", weight {metric.weight:g}"
            value += f": {self._cut(metric.reason)}" if metric.reason else ""
            yield _line("metric", f"{plain(name)} {value}")

    def _steps(self, result: EvaluateResult) -> Iterator["Text"]:
        outputs = result.step_outputs or ()
        shown = outputs if self.full else outputs[:_MOST_STEPS]
        for step in shown:
            reward = "unknown" if step.base_reward is None else f"{step.base_reward:g}"
            words = f"{plain(str(step.step_index))}: reward {reward}"
            words += ", terminated" if step.terminated else ""
            words += f": {self._cut(step.reason)}" if step.reason else ""
            yield _line("step", words)
        if len(shown) < len(outputs):
            yield _line("", f"and {len(outputs) - len(shown)} more steps; --full shows all")

    def _failure(self) -> Iterator["Text"]:
        failure = self.sample.failure
        if failure is None:
            return
        yield _text(f"\n--- failed: {failure.boundary}", style="red")
        again = "can be tried again" if failure.retryable else "trying again cannot help"
        yield _text(f"{plain(failure.kind)}: {self._cut(failure.message)} ({again})")
        if failure.traceback:
            yield _text(self._cut(failure.traceback, end=True), style="dim")

    def _cut(self, text: str, *, end: bool = False) -> str:
        """`text` made plain; of a long one the beginning, or with `end` the end, and a note."""
        lines = text.rstrip().splitlines()
        kept = lines[-_MOST_LINES:] if end else lines[:_MOST_LINES]
        short = "\n".join(kept)
        short = short[-_MOST_CHARACTERS:] if end else short[:_MOST_CHARACTERS]
        missing = len("\n".join(lines)) - len(short)
        if self.full or missing <= 0:
            return plain_text(text.rstrip())
        note = f"[{missing} more characters; --full shows them]"
        shown = plain_text(short)
        return f"{note}\n{shown}" if end else f"{shown}\n{note}"


def _score(result: EvaluateResult) -> str:
    if result.score is None:
        return "not judged"
    return f"{result.score:g}" + ("" if result.is_score_valid else " (not valid: not judged)")


def _text(text: str, *, style: str = "") -> "Text":
    from rich.text import Text

    # `Text`, not `str`: rich reads square brackets in a string as markup.
    return Text(text, style=style, overflow="fold")


def _line(label: str, text: str, *, style: str = "") -> "Text":
    return _text(f"{label:<10}{text}", style=style)
