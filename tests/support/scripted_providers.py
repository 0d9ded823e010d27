"""A server with the protocols of Gemini, Azure OpenAI and Bedrock that works by a fixed script.

It calls `calculate` with the question, then answers with the tool's result. It may refuse the key,
or answer some requests as it is told.
"""

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

GEMINI_KEY = "AIza-canary-gemini-0000001"
AZURE_KEY = "canary-azure-key-0000001"

Refusal = tuple[int, Any, dict[str, str]]


class ScriptedProviders:
    """The server, in threads of its own. `refuse` may answer a request instead of the script."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.bodies: list[Any] = []
        self.refuse: Callable[[str, str, int], Refusal | None] = lambda *_: None
        """Takes the provider, the question and the number of turns in the conversation."""

    def __enter__(self) -> Self:
        handler = type("Handler", (_Handler,), {"scripted": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    scripted: ScriptedProviders

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = urlsplit(self.path).path
        self.scripted.paths.append(self.path)
        self.scripted.bodies.append(body)
        if path.endswith(":generateContent"):
            self._answer("gemini", converse_gemini, body)
        elif path.endswith("/converse"):
            self._answer("bedrock", converse_bedrock, body)
        else:
            self._answer("azure", converse_azure, body)

    def _answer(self, provider: str, converse: Callable[[Any], Any], body: Any) -> None:
        question, turns = _find_question(body)
        refusal = self.scripted.refuse(provider, question, turns) or self._check_key(provider)
        status, value, headers = refusal or (200, converse(body), {})
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(data)))
        # A run that stops early hangs up.
        with suppress(ConnectionError):
            self.end_headers()
            self.wfile.write(data)

    def _check_key(self, provider: str) -> Refusal | None:
        key = {"gemini": "x-goog-api-key", "azure": "api-key"}.get(provider, "authorization")
        given = self.headers.get(key, "")
        if given in (GEMINI_KEY, AZURE_KEY) or given.startswith("AWS4-HMAC-SHA256 "):
            return None
        return refuse_key(provider, given)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def refuse_key(provider: str, key: str) -> Refusal:
    """Return how each provider refuses a key; they quote it."""
    if provider == "gemini":
        error = {
            "code": 400,
            "message": f"API key not valid: {key}",
            "status": "INVALID_ARGUMENT",
            "details": [{"reason": "API_KEY_INVALID"}],
        }
        return 400, {"error": error}, {}
    if provider == "azure":
        return 401, {"error": {"code": "401", "message": f"Access denied: {key}"}}, {}
    kind = {"x-amzn-ErrorType": "UnrecognizedClientException"}
    return 403, {"message": f"The security token is invalid: {key}"}, kind


def refuse_rate(provider: str) -> Refusal:
    """Return how each provider limits the rate, with a wait of no time."""
    if provider == "gemini":
        details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0s"}]
        error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota."}
        return 429, {"error": {**error, "details": details}}, {}
    if provider == "azure":
        error = {"code": "429", "message": "Please retry after 1 second."}
        return 429, {"error": error}, {"Retry-After": "0"}
    kind = {"x-amzn-ErrorType": "ThrottlingException", "Retry-After": "0"}
    return 429, {"message": "Too many requests."}, kind


def refuse_length(provider: str) -> Refusal:
    """Return how each provider refuses a conversation that fills the context."""
    if provider == "gemini":
        message = "The input token count (9) exceeds the maximum number of tokens allowed (8)."
        error = {"code": 400, "status": "INVALID_ARGUMENT", "message": message}
        return 400, {"error": error}, {}
    if provider == "azure":
        message = "This model's maximum context length is 8 tokens."
        return 400, {"error": {"code": "context_length_exceeded", "message": message}}, {}
    kind = {"x-amzn-ErrorType": "ValidationException"}
    return 400, {"message": "Input is too long for requested model."}, kind


def _find_question(body: Any) -> tuple[str, int]:
    turns = body.get("contents") or body["messages"]
    first = next(turn for turn in turns if turn["role"] == "user")
    content = first.get("parts") or first["content"]
    return content if isinstance(content, str) else content[0]["text"], len(turns)


def converse_gemini(body: Any) -> Any:
    last = body["contents"][-1]["parts"][0]
    if "functionResponse" in last:
        assert "thoughtSignature" in body["contents"][-2]["parts"][-1]
        part = {"text": last["functionResponse"]["response"]["output"]}
    else:
        call = {"name": "calculate", "args": {"expression": last["text"]}}
        part = {"functionCall": call, "thoughtSignature": "c2ln"}
    return {
        "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 20, "candidatesTokenCount": 5},
        "modelVersion": "gemini-scripted",
    }


def converse_bedrock(body: Any) -> Any:
    last = body["messages"][-1]["content"][0]
    if "toolResult" in last:
        assert "reasoningContent" in body["messages"][-2]["content"][0]
        content = [{"text": last["toolResult"]["content"][0]["text"]}]
    else:
        use = {"toolUseId": "t1", "name": "calculate", "input": {"expression": last["text"]}}
        thought = {"reasoningText": {"text": "Use the tool.", "signature": "sig"}}
        content = [{"reasoningContent": thought}, {"toolUse": use}]
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": "tool_use" if "toolUse" in content[-1] else "end_turn",
        "usage": {"inputTokens": 20, "outputTokens": 5, "totalTokens": 25},
        "metrics": {"latencyMs": 1},
    }


def converse_azure(body: Any) -> Any:
    last = body["messages"][-1]
    message: dict[str, Any] = {"role": "assistant", "content": last["content"]}
    if last["role"] != "tool":
        arguments = json.dumps({"expression": last["content"]})
        function = {"name": "calculate", "arguments": arguments}
        call = {"id": "call_1", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    reason = "tool_calls" if "tool_calls" in message else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
    return {"model": "gpt-scripted", "choices": [choice], "usage": usage}
