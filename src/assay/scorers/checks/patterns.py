"""Regular expressions in linear time: RE2 never backtracks."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

from pydantic import PlainValidator

from assay.errors import MissingExtra
from assay.types import InvalidValue, quote_value, replace_lone_surrogates

# Bounds the time and the memory that compiling takes.
_MAX_PATTERN_LENGTH = 2000
# RE2's own default: a pattern that needs more is refused.
_MAX_MEMORY_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class PatternMatch:
    """The position and text of a match."""

    start: int
    text: str
    group: str | None = None
    """The text of the first group, where the pattern has one."""


@dataclass(frozen=True)
class Pattern:
    """A compiled pattern and its source."""

    source: str
    _search: Callable[[str], Any] = field(repr=False, compare=False)

    def search(self, text: str) -> PatternMatch | None:
        """Return the first match anywhere in `text`, or None."""
        try:
            match = self._search(text)
        except UnicodeEncodeError:
            # RE2 works on UTF-8, which cannot encode the lone surrogates of some recordings.
            match = self._search(replace_lone_surrogates(text))
        if match is None:
            return None
        group = match.group(1) if match.re.groups else None
        return PatternMatch(match.start(), match.group(), group)


def compile_pattern(source: Any) -> Pattern:
    """Compile a pattern of a check file. Raises `InvalidValue` for one that RE2 rejects."""
    if not isinstance(source, str) or not source:
        raise InvalidValue(f"the value is {quote_value(source)}, not a pattern")
    if find_spec("re2") is None:
        raise MissingExtra.build("checks", by="a pattern in a check", package="google-re2")
    if len(source) > _MAX_PATTERN_LENGTH:
        raise InvalidValue(f"the pattern is longer than {_MAX_PATTERN_LENGTH} characters")
    re2 = import_module("re2")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY_BYTES
    try:
        compiled = re2.compile(source, options)
    except re2.error as error:
        # google-re2 passes on the bytes of the C++ message.
        detail = error.args[0] if error.args else ""
        problem = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        raise InvalidValue(
            f"{quote_value(source)} is not a valid RE2 pattern: {problem}",
            hint="RE2 has no look-around and no backreferences; write \\ before a literal ( or *",
        ) from None
    except UnicodeEncodeError:
        raise InvalidValue("the pattern contains a lone surrogate") from None
    return Pattern(source, compiled.search)


PatternText = Annotated[Pattern, PlainValidator(compile_pattern)]
