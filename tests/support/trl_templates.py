"""The chat templates that TRL ships, and the turns that they write."""

from collections.abc import Sequence
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from assay.formats.huggingface import to_huggingface
from assay.providers.adapter import to_function_tools
from assay.providers.tool_text import CallStyle
from assay.types import Message, ToolSpec

FORMATS: dict[str, CallStyle] = {
    "deepseekv3": "deepseek",
    "diffusion_gemma": "gemma4",
    "gemma4": "gemma4",
    "gemma4_v2": "gemma4",
    "gemma4_v3": "gemma4",
    "gemma4_v4": "gemma4",
    "gemma4_v5": "gemma4",
    "glm4moe": "glm4",
    "gptoss": "gpt-oss",
    "lfm2_2_5": "lfm2.5",
    "lfm2_2_5_v2": "lfm2.5",
    "lfm2_2_5_vl": "lfm2",
    "lfm2_v2": "lfm2",
    "llama3_1": "llama",
    "llama3_2": "llama",
    "muse_glimmer": "muse",
    "nemotron_3_5_lightning": "qwen3.5",
    "nemotron_3_nano": "qwen3.5",
    "nemotron_3_super": "qwen3.5",
    "nemotron_3_ultra": "qwen3.5",
    "qwen2_5": "hermes",
    "qwen3": "hermes",
    "qwen3_5_nothink": "qwen3.5",
    "qwen3_5_think": "qwen3.5",
    "qwen3_6": "qwen3.5",
    "qwen3_8": "qwen3.5",
    "qwen3_instruct_2507": "hermes",
    "qwen3_vl": "hermes",
}
"""Those that write tool calls and their results, by name."""

ENDS = (
    "<|im_end|>\n",
    "<|eot_id|>",
    "<turn|>\n",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "<|call|>",
    "<|return|>",
    "<|eot|>",
)
"""What the templates write after a turn; models stop there."""


class Turn(NamedTuple):
    prompt: str
    completion: str


def folder() -> Path:
    found = find_spec("trl")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "chat_templates"


def template(name: str) -> str:
    return (folder() / f"{name}.jinja").read_text("utf-8")


def render(source: str, messages: Sequence[dict[str, Any]], *, tools: Any, ask: bool) -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    texts, _ = render_jinja_template(
        [list(messages)],
        chat_template=source,
        tools=tools,
        add_generation_prompt=ask,
        bos_token="",
        eos_token="",
    )
    return str(texts[0])


def write_turn(name: str, said: Message, tools: Sequence[ToolSpec]) -> Turn:
    """What a model has to write for the template to write this message."""
    source, offered = template(name), to_function_tools(tools)
    question = [{"role": "user", "content": "What?"}]
    (wire,) = to_huggingface([said]).value
    if "reasoning_content" not in source and "reasoning_content" in wire:
        wire["thinking"] = wire.pop("reasoning_content")
    if name == "deepseekv3":
        for call, own in zip(wire.get("tool_calls", ()), said.tool_calls, strict=True):
            call["function"]["arguments"] = own.arguments_text
    asked = render(source, question, tools=offered, ask=True)
    told = render(source, [*question, wire], tools=offered, ask=False)
    pairs = zip(asked, told, strict=False)
    alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    prompt = told[:alike]
    if prompt.rfind("<") > prompt.rfind(">"):
        # Not inside of a mark, though two of them begin alike.
        prompt = prompt[: prompt.rfind("<")]
    completion = told[len(prompt) :]
    for end in ENDS:
        completion = completion.removesuffix(end)
    return Turn(prompt, completion)
