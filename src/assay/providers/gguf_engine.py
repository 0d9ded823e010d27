"""llama.cpp inside this process, through the package xllamacpp: GGUF files and their answers."""

import mmap
import socket
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

from assay.errors import ConfigError, MissingExtra

from .attempt_errors import AttemptError, ErrorKind
from .daemon_threads import EXIT_GROUP

_MAGIC = b"GGUF"
# Smaller models run on one thread: with more, threads mostly wait for each other.
_SMALL_FILE = 400_000_000
_engines: WeakValueDictionary[tuple[object, ...], "GgufEngine"] = WeakValueDictionary()
_engines_lock = Lock()

_LENGTH = struct.Struct("<Q")
_VALUE_TYPE = struct.Struct("<I")
_FILE_HEADER = struct.Struct("<4sIQQ")
# Bytes of a value by its type in the GGUF format; the other two types are strings and arrays.
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
_TEMPLATE_KEY = b"tokenizer.chat_template"
_TOOL_TEMPLATE_KEY = b"tokenizer.chat_template.tool_use"


class GgufEngine:
    """One loaded model file. Handles several chats concurrently, each from its own thread."""

    def __init__(self, path: Path, *, threads: int | None, slots: int, context: int) -> None:
        import xllamacpp

        self._grammar = xllamacpp.json_schema_to_grammar
        if threads is None and path.stat().st_size < _SMALL_FILE:
            threads = 1
        self.context = context
        """The context length of one chat in tokens."""

        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_parallel, params.n_ctx = slots, slots * context
        if threads is not None:
            params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.warmup = False
        params.verbosity = -1
        with tempfile.TemporaryDirectory(prefix="assay-") as folder:
            # The library always opens a listening socket. A Unix socket in a private folder is
            # reachable by this user only, and is deleted once the model is loaded.
            if hasattr(socket, "AF_UNIX"):
                params.hostnames = [str(Path(folder) / "unused.sock")]
            params.api_keys = [token_hex(16)]
            self._server = xllamacpp.Server(params)
        # Destroying a server before its loop has started hangs forever. Generating one token
        # ensures that it has.
        self._server.handle_completions({"prompt": "a", "n_predict": 1})

    def chat(self, body: dict[str, Any], unwanted: Callable[[], bool]) -> list[dict[str, Any]]:
        """Return all parts of the answer.

        `call_schema` in the body is a schema that the answer must match. With `stream` the answer
        is aborted soon after `unwanted()` is true; without it, it runs to its end.
        """
        parts: list[dict[str, Any]] = []
        body = dict(body)

        def receive(part: dict[str, Any]) -> bool:
            parts.append(part)
            return unwanted() or EXIT_GROUP.is_shutting_down

        try:
            if (schema := body.pop("call_schema", None)) is not None:
                body["grammar"] = self._grammar(schema)
            whole = self._server.handle_chat_completions(
                body, *([receive] if body.get("stream") else [])
            )
        except (ValueError, RuntimeError) as error:
            raise AttemptError(
                ErrorKind.REFUSED, f"llama.cpp rejected the request: {error}"
            ) from error
        if isinstance(whole, dict):
            parts.append(whole)
        return parts


def check_gguf(path: Path, *, where: str) -> None:
    """Raise `ConfigError` unless a file can be loaded. Reads four bytes, imports nothing."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise ConfigError(
            f"{str(path)!r} cannot be read: {error.strerror}",
            where=where,
            hint="pass a .gguf file, a model folder, or 'smollm2-135m'",
        ) from error
    if magic != _MAGIC:
        raise ConfigError(f"{str(path)!r} is not a GGUF file", where=where)
    if find_spec("xllamacpp") is None:
        raise MissingExtra.build("gguf", by=where, package="xllamacpp")


def load_gguf(path: Path, *, threads: int | None, slots: int, context: int) -> GgufEngine:
    """Load the model of a file, or return the one that other clients use."""
    resolved = path.resolve()
    # With the time of the last write: an overwritten file is another model.
    key = (resolved, resolved.stat().st_mtime_ns, threads, slots, context)
    with _engines_lock:
        engine = _engines.get(key)
        if engine is None:
            try:
                engine = GgufEngine(resolved, threads=threads, slots=slots, context=context)
            except RuntimeError as error:
                raise AttemptError(
                    ErrorKind.REFUSED,
                    f"llama.cpp cannot load {str(path)!r}",
                    hint="the file may be incomplete, or need a newer version of xllamacpp",
                ) from error
            _engines[key] = engine
    return engine


def read_chat_template(path: Path, *, tools: bool) -> str:
    """Return the chat template that llama.cpp uses with or without tools; empty if missing."""
    found: dict[bytes, bytes] = {}
    # An invalid header counts as one without a template: loading it reports the error.
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) < _FILE_HEADER.size:
                return ""
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                _, _, _, count = _FILE_HEADER.unpack_from(data, 0)
                at = _FILE_HEADER.size
                for _ in range(count):
                    key, at = _read_string(data, at)
                    (kind,) = _VALUE_TYPE.unpack_from(data, at)
                    at += _VALUE_TYPE.size
                    if kind == _STRING and key in (_TEMPLATE_KEY, _TOOL_TEMPLATE_KEY):
                        found[key], at = _read_string(data, at)
                    else:
                        at = _skip_value(data, at, kind)
    except (OSError, struct.error, ValueError, KeyError):
        return ""
    plain = found.get(_TEMPLATE_KEY, b"")
    return (found.get(_TOOL_TEMPLATE_KEY, plain) if tools else plain).decode("utf-8", "replace")


def _read_string(data: mmap.mmap, at: int) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(data, at)
    start = at + _LENGTH.size
    if start + length > len(data):
        raise ValueError("a string is longer than the file")
    return data[start : start + length], start + length


def _skip_value(data: mmap.mmap, at: int, kind: int) -> int:
    if kind == _STRING:
        (length,) = _LENGTH.unpack_from(data, at)
        return int(at + _LENGTH.size + length)
    if kind != _ARRAY:
        return at + _SIZES[kind]
    (inner,) = _VALUE_TYPE.unpack_from(data, at)
    (count,) = _LENGTH.unpack_from(data, at + _VALUE_TYPE.size)
    at += _VALUE_TYPE.size + _LENGTH.size
    if inner != _STRING:
        return int(at + _SIZES[inner] * count)
    # The vocabulary has hundreds of thousands of strings, so the loop avoids calls.
    unpack, size = _LENGTH.unpack_from, _LENGTH.size
    for _ in range(count):
        at += size + unpack(data, at)[0]
    return at


@dataclass
class GgufAnswer:
    """One answer, streamed or not."""

    content: str = ""
    reasoning: str | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)
    """In OpenAI's format, with arguments as a string."""

    finish_reason: str | None = None
    usage: Mapping[str, Any] | None = None
    prompt: str | None = None
    """The prompt as the chat template rendered it."""

    ids: list[int] | None = None
    """The sampled ids, including the end of the turn. Only in unstreamed answers."""

    logprobs: list[float] | None = None
    """Fewer than ids if several tokens form one character."""

    def fills_context(self, max_tokens: int) -> bool:
        """Whether it was truncated below `max_tokens`, which only a full context does."""
        written = (self.usage or {}).get("completion_tokens")
        return self.finish_reason == "length" and isinstance(written, int) and written < max_tokens


def assemble_answer(parts: Sequence[Mapping[str, Any]]) -> GgufAnswer:
    """Join the parts. Raises `AttemptError` for an error or a missing finish reason."""
    answer = GgufAnswer()
    for part in parts:
        error = part.get("error")
        if isinstance(error, Mapping):
            message, hint = error.get("message", "no reason given"), None
            if error.get("type") == "exceed_context_size_error":
                hint = "shorten the conversation, or raise extra_params['context']"
            raise AttemptError(
                ErrorKind.REFUSED, f"llama.cpp rejected the request: {message}", hint=hint
            )
        answer.usage = part.get("usage") or answer.usage
        verbose = part.get("__verbose")
        if isinstance(verbose, Mapping):
            answer.prompt = verbose.get("prompt")
            answer.ids = verbose.get("tokens") or None
        for choice in part.get("choices") or []:
            delta = choice.get("delta") or choice.get("message") or {}
            answer.content += delta.get("content") or ""
            if delta.get("reasoning_content"):
                answer.reasoning = (answer.reasoning or "") + delta["reasoning_content"]
            for call in delta.get("tool_calls") or []:
                _add_call(answer.calls, call)
            answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
            logprobs = choice.get("logprobs")
            if "message" in choice and isinstance(logprobs, Mapping):
                answer.logprobs = [entry["logprob"] for entry in logprobs.get("content") or []]
    if answer.finish_reason is None:
        raise AttemptError(
            ErrorKind.GARBLED, "llama.cpp returned an answer without a finish reason"
        )
    return answer


def _add_call(calls: list[dict[str, Any]], piece: Mapping[str, Any]) -> None:
    # The first piece of a call has its name; later ones append to its arguments.
    function = piece.get("function") or {}
    index = piece.get("index", len(calls))
    if index >= len(calls):
        fields = {"name": function.get("name") or "", "arguments": function.get("arguments") or ""}
        calls.append({"id": piece.get("id") or None, "type": "function", "function": fields})
        return
    known = calls[index]["function"]
    known["name"] += function.get("name") or ""
    known["arguments"] += function.get("arguments") or ""
