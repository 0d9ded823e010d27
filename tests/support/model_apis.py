"""Scripted servers of model APIs, with and without streaming. They stand for a paid model.

Asked with a tool, the model calls it with `{"city": "Ulm"}`; after the tool's result it answers
with the result. Asked without one, it repeats the last text of the user in capitals.
"""

import json
from collections.abc import Awaitable, Callable, Iterator
from types import TracebackType
from typing import Any, Self

from aiohttp import ClientSession, web

from assay.formats import EventReader
from assay.gateway import GatewaySession
from assay.types import Endpoint

UPSTREAM_KEY = "sk-upstream-canary-0123456789"

Handler = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


class ModelApi:
    """A server of one API. `behave` replaces its answers."""

    def __init__(self, provider: str = "openai") -> None:
        self.provider = provider
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.behaviours: list[Handler] = []
        self.token_ids = False
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=10**9)
        app.router.add_post("/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    def behave(self, *behaviours: Handler) -> None:
        """Show each of these once, then the script again."""
        self.behaviours = list(behaviours)

    def endpoint(self, **fields: Any) -> Endpoint:
        base = self.url if self.provider == "anthropic" else f"{self.url}/v1"
        given = {"provider": self.provider, "model": "upstream-model", "api_base": base}
        return Endpoint(**{**given, "api_key": UPSTREAM_KEY, **fields})

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        self.headers.append(dict(request.headers))
        if self.behaviours:
            return await self.behaviours.pop(0)(request, body)
        if request.path.endswith("/count_tokens"):
            return web.json_response({"input_tokens": 77})
        if self.provider == "anthropic":
            return await _send(request, body, answer_messages(body), messages_events)
        if self.provider == "openai-responses":
            return await _send(request, body, answer_responses(body), responses_events)
        return await _send(request, body, answer_chat(body, ids=self.token_ids), chat_events)


async def _send(
    request: web.Request,
    body: dict[str, Any],
    answer: dict[str, Any],
    events: Callable[[dict[str, Any]], Iterator[bytes]],
) -> web.StreamResponse:
    if not body.get("stream"):
        return web.json_response(answer)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for event in events({**answer, "_options": body.get("stream_options")}):
        await response.write(event)
    await response.write_eof()
    return response


def _event(data: Any, name: str | None = None) -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or [])


# --- chat completions ---------------------------------------------------------------------------


def answer_chat(body: dict[str, Any], *, ids: bool = False) -> dict[str, Any]:
    last = body["messages"][-1]
    message: dict[str, Any] = {"role": "assistant", "content": None}
    finish = "stop"
    if last["role"] == "tool":
        message["content"] = f"It is {_text(last['content'])}."
    elif body.get("tools"):
        name = body["tools"][0]["function"]["name"]
        function = {"name": name, "arguments": '{"city": "Ulm"}'}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
        message["reasoning_content"] = "I should look."
        finish = "tool_calls"
    else:
        message["content"] = _text(last["content"]).upper()
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": finish}
    answer: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1}
    if ids and body.get("return_token_ids"):
        # As vLLM: each message of the prompt is one token here, and so is the answer.
        answer["prompt_token_ids"] = [hash(json.dumps(each)) % 1000 for each in body["messages"]]
        choice["token_ids"] = [1001]
        choice["logprobs"] = {"content": [{"token": "x", "logprob": -0.5}]}
    usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
    return {**answer, "model": body["model"], "choices": [choice], "usage": usage}


def chat_events(answer: dict[str, Any]) -> Iterator[bytes]:
    head = {"id": answer["id"], "object": "chat.completion.chunk", "created": 1}
    head["model"] = answer["model"]
    choice = answer["choices"][0]

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    message = choice["message"]
    if message.get("reasoning_content"):
        yield chunk({"reasoning_content": message["reasoning_content"]})
    text = message["content"] or ""
    for start in range(0, len(text), 4):
        yield chunk({"content": text[start : start + 4]})
    for index, call in enumerate(message.get("tool_calls") or []):
        arguments = call["function"]["arguments"]
        first = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
        yield chunk({"tool_calls": [first]})
        for start in range(0, len(arguments), 5):
            part = {"index": index, "function": {"arguments": arguments[start : start + 5]}}
            yield chunk({"tool_calls": [part]})
    yield chunk({}, choice["finish_reason"])
    if (answer["_options"] or {}).get("include_usage"):
        yield _event({**head, "choices": [], "usage": answer["usage"]})
    yield _event("[DONE]")


# --- Responses ----------------------------------------------------------------------------------


def answer_responses(body: dict[str, Any]) -> dict[str, Any]:
    given = body["input"]
    items = given if isinstance(given, list) else [{"role": "user", "content": given}]
    last = items[-1]
    output: list[dict[str, Any]] = []
    text: str | None = None
    if last.get("type") == "function_call_output":
        text = f"It is {_text(last['output'])}."
    elif body.get("tools"):
        reasoning = {"type": "reasoning", "id": "rs_1", "encrypted_content": "ENCRYPTED"}
        summary = [{"type": "summary_text", "text": "I should look."}]
        output.append({**reasoning, "summary": summary})
        call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "status": "completed"}
        output.append({**call, "name": body["tools"][0]["name"], "arguments": '{"city": "Ulm"}'})
    else:
        text = _text(last["content"]).upper()
    if text is not None:
        part = {"type": "output_text", "text": text, "annotations": []}
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        output.append({**message, "content": [part]})
    usage = {"input_tokens": 20, "output_tokens": 5, "total_tokens": 25}
    usage_details = {
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens_details": {"reasoning_tokens": 2},
    }
    head = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed"}
    settings = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {
        **head,
        **settings,
        "model": body["model"],
        "output": output,
        "usage": {**usage, **usage_details},
    }


def responses_events(answer: dict[str, Any]) -> Iterator[bytes]:
    answer = {key: value for key, value in answer.items() if key != "_options"}
    number = 0

    def event(kind: str, **fields: Any) -> bytes:
        nonlocal number
        number += 1
        return _event({"type": kind, "sequence_number": number, **fields}, kind)

    begun = {**answer, "status": "in_progress", "output": [], "usage": None}
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    for place, item in enumerate(answer["output"]):
        at = {"output_index": place}
        yield event("response.output_item.added", item={**item, "status": "in_progress"}, **at)
        if item["type"] == "message":
            part = item["content"][0]
            at |= {"item_id": item["id"], "content_index": 0}
            empty = {**part, "text": ""}
            yield event("response.content_part.added", part=empty, **at)
            yield event("response.output_text.delta", delta=part["text"], logprobs=[], **at)
            yield event("response.output_text.done", text=part["text"], logprobs=[], **at)
            yield event("response.content_part.done", part=part, **at)
        if item["type"] == "function_call":
            at |= {"item_id": item["id"]}
            arguments = item["arguments"]
            yield event("response.function_call_arguments.delta", delta=arguments, **at)
            yield event(
                "response.function_call_arguments.done",
                arguments=arguments,
                name=item["name"],
                **at,
            )
        yield event("response.output_item.done", item=item, output_index=place)
    yield event("response.completed", response=answer)


# --- messages -----------------------------------------------------------------------------------


def answer_messages(body: dict[str, Any]) -> dict[str, Any]:
    content = body["messages"][-1]["content"]
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    results = [block for block in blocks if block["type"] == "tool_result"]
    written: list[dict[str, Any]] = []
    stop = "end_turn"
    if results:
        written.append({"type": "text", "text": f"It is {_text(results[-1]['content'])}."})
    elif body.get("tools"):
        thought = {"type": "thinking", "thinking": "I should look.", "signature": "SIGNED"}
        name = body["tools"][0]["name"]
        call = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {"city": "Ulm"}}
        written += [thought, call]
        stop = "tool_use"
    else:
        text = "".join(block.get("text", "") for block in blocks)
        written.append({"type": "text", "text": text.upper()})
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"]}
    usage = {"input_tokens": 16, "output_tokens": 5, "cache_read_input_tokens": 4}
    usage["cache_creation_input_tokens"] = 0
    return {
        **head,
        "content": written,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": usage,
    }


def messages_events(answer: dict[str, Any]) -> Iterator[bytes]:
    answer = {key: value for key, value in answer.items() if key != "_options"}

    def event(kind: str, **fields: Any) -> bytes:
        return _event({"type": kind, **fields}, kind)

    usage = {**answer["usage"], "output_tokens": 1}
    begun = {**answer, "content": [], "stop_reason": None, "usage": usage}
    yield event("message_start", message=begun)
    yield event("ping")
    for index, block in enumerate(answer["content"]):
        kind = block["type"]
        if kind == "text":
            empty, deltas = {**block, "text": ""}, [("text_delta", "text", block["text"])]
        elif kind == "thinking":
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [
                ("thinking_delta", "thinking", block["thinking"]),
                ("signature_delta", "signature", block["signature"]),
            ]
        else:
            text = json.dumps(block["input"])
            empty = {**block, "input": {}}
            deltas = [
                ("input_json_delta", "partial_json", text[:6]),
                ("input_json_delta", "partial_json", text[6:]),
            ]
        yield event("content_block_start", index=index, content_block=empty)
        for name, key, value in deltas:
            yield event("content_block_delta", index=index, delta={"type": name, key: value})
        yield event("content_block_stop", index=index)
    delta = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=delta, usage={"output_tokens": 5})
    yield event("message_stop")


async def post_messages(session: GatewaySession, body: dict[str, Any]) -> dict[str, Any]:
    """Ask as Claude Code does; the events of a stream are put together by hand."""
    url = f"{session.root_url}/v1/messages?beta=true"
    headers = {"x-api-key": session.key, "anthropic-version": "2023-06-01"}
    async with ClientSession() as http, http.post(url, json=body, headers=headers) as response:
        if not body["stream"] or response.status != 200:
            answer: dict[str, Any] = await response.json()
            if response.status != 200:
                raise AssertionError(answer)
            return answer
        assert response.content_type == "text/event-stream"
        message: dict[str, Any] = {}
        blocks: list[dict[str, Any]] = []
        for event in EventReader().feed(await response.read()):
            data = json.loads(event.data)
            assert event.name == data["type"]
            if event.name == "message_start":
                message = data["message"]
            elif event.name == "content_block_start":
                blocks.append({**data["content_block"], "partial": ""})
            elif event.name == "content_block_delta":
                for key in ("text", "thinking", "signature"):
                    if key in data["delta"]:
                        blocks[-1][key] += data["delta"][key]
                blocks[-1]["partial"] += data["delta"].get("partial_json", "")
            elif event.name == "message_delta":
                message |= data["delta"]
        for block in blocks:
            if partial := block.pop("partial"):
                block["input"] = json.loads(partial)
        return {**message, "content": blocks}
