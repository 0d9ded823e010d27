"""A failed `assert` in an evaluation's function: a verdict on the sample, not a fault."""

import re
import threading
import traceback
from dataclasses import dataclass, field

from assay.types import EvaluateResult, redact

from .source_lines import find_place

_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_MAX_ASSERTION_CHARS = 1000
_MAX_FAILED_ASSERTIONS = 20


def read_assertion(error: AssertionError) -> EvaluateResult:
    """Return the result of a failed assertion: score 0.0, with the text of pytest as reason."""
    # In a terminal, pytest colours the diff of its message.
    text = redact(_COLOUR.sub("", str(error))).strip()
    if not text:
        # pytest rewrites assertions in test files only; elsewhere the message is empty.
        frames = traceback.extract_tb(error.__traceback__)
        line = (frames[-1].line or f"line {frames[-1].lineno}") if frames else "assert"
        text = f"assertion failed: {line}"
    if len(text) > _MAX_ASSERTION_CHARS:
        text = f"{text[: _MAX_ASSERTION_CHARS - 1]}…"
    return EvaluateResult(score=0.0, reason=text)


@dataclass(frozen=True, order=True)
class FailedAssertion:
    """One call of a test's function that failed an assertion."""

    judged: str
    """The name of the sample, or a description of the group, that the call judged."""

    reason: str
    place: str | None = None
    """File and line of the assertion."""

    is_sample: bool = True
    """Whether one sample was judged, and `judged` is its name."""


@dataclass
class FailedAssertions:
    """How many calls of a test's function failed an assertion, and the first of them."""

    count: int = 0
    first: list[FailedAssertion] = field(default_factory=list)
    keep_error: bool = False
    """Whether the first exception of any kind is kept with its frames, for a debugger."""

    error: BaseException | None = None

    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def note(self, error: BaseException) -> None:
        """Keep the first exception of the function, for a debugger."""
        if self.keep_error and self.error is None:
            self.error = error

    def add(self, judged: str, error: AssertionError, *, is_sample: bool = True) -> EvaluateResult:
        """Count a failed assertion, and return its result."""
        result = read_assertion(error)
        self.note(error)
        # Scorers run in several threads at once.
        with self._lock:
            self.count += 1
            if len(self.first) < _MAX_FAILED_ASSERTIONS:
                place = find_place("".join(traceback.format_exception(error)))
                reason = result.reason or ""
                self.first.append(FailedAssertion(judged, reason, place, is_sample))
        return result
