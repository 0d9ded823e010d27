"""Tool calls and reasoning as local models write them: inside the text. Never raises for text.

One table of formats. A chat template is recognised by marks in its text.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal, get_args

from assay.types import ToolSpec

from .argument_types import ArgumentTypes
from .rendered_turn import ParsedTurn
from .tool_call_json import read_deepseek, read_hermes, read_llama, read_mistral
from .tool_call_literals import read_gemma, read_python_calls
from .tool_call_tags import read_glm_tags, read_qwen_tags
from .turn_channels import read_harmony, read_muse

CallStyle = Literal[
    "hermes",
    "llama",
    "mistral",
    "deepseek",
    "qwen3.5",
    "glm4",
    "lfm2",
    "lfm2.5",
    "gemma4",
    "gpt-oss",
    "muse",
]
"""The formats by name: what `extra_params["tool_format"]` takes."""

STYLES: tuple[CallStyle, ...] = get_args(CallStyle)

_ReadCalls = Callable[[str, ArgumentTypes], ParsedTurn | None]
_ReadTurn = Callable[[str, ArgumentTypes | None], ParsedTurn]


@dataclass(frozen=True)
class _Format:
    """How a family writes a turn."""

    marks: re.Pattern[str]
    """Found in the chat templates of the family."""

    calls: _ReadCalls | None = None
    """Reads the calls in what follows the reasoning. None where `turn` reads all of it."""

    turn: _ReadTurn | None = None
    thought: tuple[str, str] = ("<think>", "</think>")
    """The marks around reasoning."""


def _ignore_types(read: Callable[[str], ParsedTurn | None]) -> _ReadCalls:
    """A reader of calls that carry their own types."""
    return lambda text, types: read(text)


_ESCAPES = r"replace\(\"\\\\\", \"\\\\\\\\\"\)"
# The first whose marks are found: marks of the later ones stand in templates of earlier ones.
_CALL_FORMATS: dict[CallStyle, _Format] = {
    "mistral": _Format(re.compile(r"\[TOOL_CALLS\]"), _ignore_types(read_mistral)),
    "gpt-oss": _Format(re.compile(r"<\|channel\|>commentary"), turn=read_harmony),
    "muse": _Format(re.compile("<atem:invoke"), turn=read_muse),
    "gemma4": _Format(
        re.compile(r"<\|tool_call>call:"),
        _ignore_types(read_gemma),
        thought=("<|channel>thought", "<channel|>"),
    ),
    "deepseek": _Format(re.compile("<｜tool▁calls▁begin｜>"), _ignore_types(read_deepseek)),
    "lfm2": _Format(
        re.compile(rf"(?s:<\|tool_list_start\|>|{_ESCAPES}.*<\|tool_call_start\|>)"),
        _ignore_types(partial(read_python_calls, escapes=True)),
    ),
    "lfm2.5": _Format(
        re.compile(r"<\|tool_call_start\|>"),
        _ignore_types(partial(read_python_calls, escapes=False)),
    ),
    "glm4": _Format(re.compile("<arg_key>"), read_glm_tags),
    "qwen3.5": _Format(re.compile("<function="), read_qwen_tags),
    "hermes": _Format(re.compile("<tool_call>"), _ignore_types(read_hermes)),
    "llama": _Format(re.compile(r"""["']parameters["']\s*:"""), _ignore_types(read_llama)),
}


@lru_cache(maxsize=64)
def detect_call_style(template: str) -> CallStyle | None:
    """How a model with this chat template writes tool calls. None: in no way known here."""
    return next(
        (name for name, known in _CALL_FORMATS.items() if known.marks.search(template)), None
    )


def to_template_tools(tools: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    """Tools as chat templates are given them."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                **(tool.__pydantic_extra__ or {}),
            },
        }
        for tool in tools
    ]


def read_calls(text: str, style: CallStyle | None, tools: Sequence[ToolSpec] = ()) -> ParsedTurn:
    """The tool calls in `text`, and what else it says.

    Where a call has no name that can be read, the whole text stays content, since that is what the
    model said. Arguments that cannot be read become a malformed call, which is answered in words.
    """
    if style is None:
        return ParsedTurn(text)
    known, types = _CALL_FORMATS[style], ArgumentTypes(tools)
    if known.turn is not None:
        return known.turn(text, types)
    assert known.calls is not None
    return known.calls(text, types) or ParsedTurn(text)


def writes_channels(style: CallStyle | None) -> bool:
    """Whether words and reasoning are told apart by marks that are special tokens."""
    return style is not None and (
        _CALL_FORMATS[style].turn is not None or _CALL_FORMATS[style].thought[0] != "<think>"
    )


def opens_reasoning(prompt: str, style: CallStyle | None) -> bool:
    """Whether a prompt ends with the mark that opens reasoning: the completion starts inside."""
    return prompt.rstrip("\n").endswith(_get_reasoning_marks(style)[0])


def knows_reasoning(template: str, style: CallStyle | None) -> bool:
    """Whether the models of a template write reasoning between marks."""
    return "reasoning_content" in template or _get_reasoning_marks(style)[1] in template


def read_turn(
    text: str,
    style: CallStyle | None,
    *,
    tools: Sequence[ToolSpec],
    opened: bool,
    reasons: bool,
    cut_short: bool = False,
) -> ParsedTurn:
    """A whole turn. Calls are read only where tools were offered.

    `opened`: the prompt already ended with the mark that opens reasoning; `reasons`: text between
    the marks is reasoning; `cut_short`: the turn ran out of tokens, perhaps inside of it.
    """
    known = None if style is None else _CALL_FORMATS[style]
    if known is not None and known.turn is not None:
        return known.turn(text, ArgumentTypes(tools) if tools else None)
    reasoning = None
    if reasons:
        reasoning, text = split_reasoning(text, opened=opened, style=style)
    written = replace(read_calls(text, style if tools else None, tools), reasoning=reasoning)
    if reasons and cut_short and written == ParsedTurn(text):
        # Unless the text is an answer from its start, none of it is one.
        unended = _read_unended_reasoning(text, opened=opened, style=style)
        return written if unended is None else ParsedTurn("", reasoning=unended)
    return written


def split_reasoning(
    text: str, *, opened: bool, style: CallStyle | None = None
) -> tuple[str | None, str]:
    """Reasoning and the rest. `opened`: the prompt already ended with the opening mark.

    Takes what the templates of such models put back: line breaks at the edges are not part.
    """
    start_mark, end_mark = _get_reasoning_marks(style)
    start = text.lstrip("\n")
    if not opened and not start.startswith(start_mark):
        return None, text
    thought, closed, rest = text.partition(end_mark)
    if not closed:
        return None, text
    return thought.lstrip("\n").removeprefix(start_mark).strip("\n"), rest.lstrip("\n")


def _read_unended_reasoning(text: str, *, opened: bool, style: CallStyle | None) -> str | None:
    """The reasoning of a text that ends inside of it. None: the text does not begin with it."""
    mark, start = _get_reasoning_marks(style)[0], text.lstrip("\n")
    if not opened and not start.startswith(mark):
        return None
    return start.removeprefix(mark).strip("\n")


def _get_reasoning_marks(style: CallStyle | None) -> tuple[str, str]:
    return ("<think>", "</think>") if style is None else _CALL_FORMATS[style].thought
