"""Streams of one answer in each API: pieces of reasoning, of text and of the arguments of calls."""

import json
from collections.abc import Callable, Iterator
from typing import Any


def event(data: Any, name: str | None = None) -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def write_chat(thoughts: list[str], texts: list[str], calls: list[list[str]]) -> Iterator[bytes]:
    def chunk(delta: Any, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return event({"id": "1", "created": 1, "model": "m", "choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    yield from (chunk({"reasoning_content": text}) for text in thoughts)
    yield from (chunk({"content": text}) for text in texts)
    for index, pieces in enumerate(calls):
        function = {"name": f"tool_{index}", "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": f"c{index}", "function": function}]})
        for piece in pieces:
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, "tool_calls" if calls else "stop")
    usage = {"prompt_tokens": 20, "completion_tokens": 5}
    yield event({"id": "1", "model": "m", "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def write_messages(
    thoughts: list[str], texts: list[str], calls: list[list[str]]
) -> Iterator[bytes]:
    def named(kind: str, **fields: Any) -> bytes:
        return event({"type": kind, **fields}, kind)

    usage = {"input_tokens": 20, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []}
    yield named("message_start", message={**message, "stop_reason": None, "usage": usage})
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if thoughts:
        deltas = [{"type": "thinking_delta", "thinking": text} for text in thoughts]
        signed = {"type": "signature_delta", "signature": "SIGNED"}
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed]))
    if texts:
        deltas = [{"type": "text_delta", "text": text} for text in texts]
        blocks.append(({"type": "text", "text": ""}, deltas))
    for index, pieces in enumerate(calls):
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        called = {"type": "tool_use", "id": f"c{index}", "name": f"tool_{index}", "input": {}}
        blocks.append((called, deltas))
    for index, (block, deltas) in enumerate(blocks):
        yield named("content_block_start", index=index, content_block=block)
        yield from (named("content_block_delta", index=index, delta=delta) for delta in deltas)
        yield named("content_block_stop", index=index)
    reason = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    yield named("message_delta", delta=reason, usage={"output_tokens": 5})
    yield named("message_stop")


def write_responses(
    thoughts: list[str], texts: list[str], calls: list[list[str]]
) -> Iterator[bytes]:
    def named(kind: str, **fields: Any) -> bytes:
        return event({"type": kind, **fields}, kind)

    response = {"id": "r", "object": "response", "model": "m", "output": []}
    yield named("response.created", response={**response, "status": "in_progress"})
    items: list[dict[str, Any]] = []
    if thoughts:
        summary = [{"type": "summary_text", "text": "".join(thoughts)}]
        items.append({"type": "reasoning", "id": "rs", "summary": summary})
    if texts:
        part = {"type": "output_text", "text": "".join(texts), "annotations": []}
        items.append({"type": "message", "id": "ms", "role": "assistant", "content": [part]})
    for index, pieces in enumerate(calls):
        called = {"type": "function_call", "call_id": f"c{index}", "name": f"tool_{index}"}
        items.append({**called, "id": f"f{index}", "arguments": "".join(pieces)})
    kinds = {"reasoning": "reasoning_summary_text", "message": "output_text"}
    for place, item in enumerate(items):
        empty: dict[str, Any] = {"reasoning": {"summary": []}, "message": {"content": []}}
        opened = {**item, **empty.get(item["type"], {"arguments": ""})}
        yield named("response.output_item.added", output_index=place, item=opened)
        if item["type"] == "message":
            part = {"type": "output_text", "text": "", "annotations": []}
            at = {"output_index": place, "content_index": 0}
            yield named("response.content_part.added", **at, part=part)
        given = {"reasoning": thoughts, "message": texts}.get(item["type"])
        if given is None:
            given = calls[int(item["id"][1:])]
        kind = kinds.get(item["type"], "function_call_arguments")
        for piece in given:
            at = {"output_index": place, "content_index": 0, "summary_index": 0}
            yield named(f"response.{kind}.delta", **at, delta=piece)
        yield named("response.output_item.done", output_index=place, item=item)
    usage = {"input_tokens": 20, "output_tokens": 5, "total_tokens": 25}
    whole = {**response, "status": "completed", "output": items, "usage": usage}
    yield named("response.completed", response=whole)


def write_gemini(thoughts: list[str], texts: list[str], calls: list[list[str]]) -> Iterator[bytes]:
    def chunk(*parts: Any, **more: Any) -> bytes:
        candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0, **more}
        usage = {"promptTokenCount": 20, "candidatesTokenCount": 5}
        return event({"candidates": [candidate], "modelVersion": "m", "usageMetadata": usage})

    yield from (chunk({"text": text, "thought": True}) for text in thoughts)
    yield from (chunk({"text": text}) for text in texts)
    for index, pieces in enumerate(calls):
        called = {"id": f"c{index}", "name": f"tool_{index}"}
        yield chunk({"functionCall": {**called, "args": json.loads("".join(pieces) or "{}")}})
    yield chunk(finishReason="STOP")


WRITERS: dict[str, Callable[..., Iterator[bytes]]] = {
    "openai": write_chat,
    "openai-responses": write_responses,
    "anthropic": write_messages,
    "gemini": write_gemini,
}
