"""A server with the chat-completions and the Responses protocol that works by a fixed script.

It calls `multiply` with the two numbers of the question, then answers with the tool's result: with
`final_answer` if the agent offers that tool. Run as a program it prints its port.
"""

import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}


class ScriptedOpenAI(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers.get("Authorization") != "Bearer scripted-key":
            self._send({"error": {"message": "wrong key"}}, 401)
        elif self.path.endswith("/chat/completions"):
            self._send(complete_chat(body))
        elif self.path.endswith("/responses"):
            self._send(respond(body))
        else:
            self._send({"error": {"message": f"no {self.path}"}}, 404)

    def _send(self, value: Any, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def complete_chat(body: dict[str, Any]) -> dict[str, Any]:
    messages, tools = body["messages"], [tool["function"]["name"] for tool in body["tools"]]
    last = messages[-1]
    # smolagents reports the result of a tool as a message of the user.
    if last["role"] == "tool" or "Observation" in _read_text(last["content"]):
        number = re.findall(r"\d+", _read_text(last["content"]))[-1]
        message = {"role": "assistant", "content": f"The answer is {number}."}
        if "final_answer" in tools:
            message = _call("final_answer", {"answer": number})
    else:
        message = _call("multiply", _read_numbers(_read_text(last["content"])))
    reason = "tool_calls" if "tool_calls" in message else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": body["model"]}
    return {**head, "choices": [choice], "usage": USAGE}


def _call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{name}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def respond(body: dict[str, Any]) -> dict[str, Any]:
    items = body["input"] if isinstance(body["input"], list) else [{"content": body["input"]}]
    last = items[-1]
    item: dict[str, Any]
    if last.get("type") == "function_call_output":
        text = f"The answer is {last['output']}."
        part = {"type": "output_text", "text": text, "annotations": []}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        item["content"] = [part]
    else:
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "multiply"}
        item["arguments"] = json.dumps(_read_numbers(_read_text(last["content"])))
        item["status"] = "completed"
    details = {"input_tokens_details": {"cached_tokens": 0}}
    details["output_tokens_details"] = {"reasoning_tokens": 0}
    usage = {"input_tokens": 20, "output_tokens": 5, "total_tokens": 25, **details}
    head = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed"}
    settings = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {**head, **settings, "model": body["model"], "output": [item], "usage": usage}


def _read_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content)


def _read_numbers(text: str) -> dict[str, int]:
    a, b = map(int, re.findall(r"\d+", text)[-2:])
    return {"a": a, "b": b}


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), ScriptedOpenAI)
    print(server.server_port, flush=True)
    server.serve_forever()
    sys.exit(0)
