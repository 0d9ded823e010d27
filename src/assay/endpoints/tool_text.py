"""Tool calls and reasoning as local models write them: inside the text. Never raises for text."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from assay.models import ToolCall, ToolSpec
from assay.models.message import parse_arguments

CallStyle = Literal["hermes", "llama", "mistral"]
"""`<tool_call>{json}</tool_call>` (Hermes, Qwen); `{"name": .., "parameters": ..}` (Llama 3);
`[TOOL_CALLS]` before a JSON list or before `name[ARGS]{json}` (Mistral)."""

_HERMES = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_HERMES_IN_XML = ("<function=", "<arg_key>")
_MISTRAL = "[TOOL_CALLS]"
_MISTRAL_ARGUMENTS = "[ARGS]"
_MISTRAL_ID = "[CALL_ID]"
_LLAMA = re.compile(r"""["']parameters["']\s*:""")
_LLAMA_TAG = "<|python_tag|>"
_THINK, _THOUGHT = "<think>", "</think>"


@dataclass(frozen=True)
class Written:
    """What a text turned out to hold."""

    content: str
    calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None


def call_style(template: str) -> CallStyle | None:
    """How a model with this chat template writes tool calls. None: in no way known here."""
    if _MISTRAL in template:
        return "mistral"
    if "<tool_call>" in template:
        # Some families put XML between the same tags: their calls stay text.
        return None if any(mark in template for mark in _HERMES_IN_XML) else "hermes"
    return "llama" if _LLAMA.search(template) else None


def written_tools(tools: Iterable[ToolSpec]) -> list[dict[str, Any]]:
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


def read_calls(text: str, style: CallStyle | None) -> Written:
    """The tool calls in `text`, and what else it says.

    All or nothing: where one call cannot be read, the whole text stays content, since that is
    what the model said.
    """
    if style is None:
        return Written(text)
    reader = {"hermes": _read_hermes, "llama": _read_llama, "mistral": _read_mistral}[style]
    return reader(text) or Written(text)


def split_reasoning(text: str, *, opened: bool) -> tuple[str | None, str]:
    """Reasoning and the rest. `opened`: the prompt already ended with the opening mark.

    Takes what the templates of such models put back: line breaks at the edges are not part.
    """
    start = text.lstrip("\n")
    if not opened and not start.startswith(_THINK):
        return None, text
    thought, closed, rest = text.partition(_THOUGHT)
    if not closed:
        return None, text
    return thought.lstrip("\n").removeprefix(_THINK).strip("\n"), rest.lstrip("\n")


def _read_hermes(text: str) -> Written | None:
    found = list(_HERMES.finditer(text))
    calls = _calls(parse_arguments(match[1]) for match in found)
    if not calls:
        return None
    # Templates write one line break between the words and the first call.
    said = [text[: found[0].start()].removesuffix("\n")]
    ends = [match.end() for match in found]
    starts = [*(match.start() for match in found[1:]), len(text)]
    said += [text[end:start] for end, start in zip(ends, starts, strict=True)]
    return Written("\n".join([said[0], *(piece for piece in said[1:] if piece.strip())]), calls)


def _read_llama(text: str) -> Written | None:
    calls = _calls([parse_arguments(text.removeprefix(_LLAMA_TAG))])
    return Written("", calls) if calls else None


def _read_mistral(text: str) -> Written | None:
    said, mark, written = text.partition(_MISTRAL)
    if not mark:
        return None
    if written.lstrip().startswith("["):
        holder = parse_arguments(f'{{"calls": {written}}}') or {}
        listed = holder.get("calls")
        calls = _calls(listed if isinstance(listed, list) else [])
    else:
        calls = _calls(map(_after_name, written.split(_MISTRAL)))
    return Written(said, calls) if calls else None


def _after_name(text: str) -> dict[str, Any] | None:
    """Mistral's later form: `name[ARGS]{json}`, with the id of the call between in some."""
    head, mark, arguments = text.partition(_MISTRAL_ARGUMENTS)
    name, _, identifier = head.partition(_MISTRAL_ID)
    read = parse_arguments(arguments) if mark else None
    if read is None:
        return None
    return {"name": name.strip(), "arguments": read, "id": identifier.strip() or None}


def _calls(written: Iterable[Mapping[str, Any] | None]) -> tuple[ToolCall, ...]:
    """The calls that objects stand for; none at all if one of them stands for none."""
    calls = []
    for call in written:
        if not isinstance(call, Mapping):
            return ()
        name = call.get("name")
        arguments = call.get("arguments", call.get("parameters", {}))
        if not isinstance(name, str) or not name or not isinstance(arguments, dict | str):
            return ()
        identifier = call.get("id")
        fields = {"id": identifier if isinstance(identifier, str) else None, "name": name}
        calls.append(ToolCall.model_validate({**fields, "arguments": arguments}))
    return tuple(calls)
