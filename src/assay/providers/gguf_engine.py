"""GGUF files run by llama.cpp inside this process, through the package xllamacpp."""

import socket
import tempfile
from collections.abc import Callable
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
# Files of fewer bytes hold models that run on one thread: more mostly wait for each other.
_SMALL_FILE = 400_000_000
_engines: WeakValueDictionary[tuple[object, ...], "GgufEngine"] = WeakValueDictionary()
_engines_lock = Lock()


class GgufEngine:
    """One model file, loaded. Answers several chats at once, each from a thread of its own."""

    def __init__(self, path: Path, *, threads: int | None, slots: int, context: int) -> None:
        import xllamacpp

        self._grammar = xllamacpp.json_schema_to_grammar
        if threads is None and path.stat().st_size < _SMALL_FILE:
            threads = 1
        self.context = context
        """How many tokens one chat may have."""

        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_parallel, params.n_ctx = slots, slots * context
        if threads is not None:
            params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.warmup = False
        params.verbosity = -1
        with tempfile.TemporaryDirectory(prefix="assay-") as folder:
            # The library always listens. Here it does so at a socket that only this user could
            # reach, and that is gone once the model is loaded.
            if hasattr(socket, "AF_UNIX"):
                params.hostnames = [str(Path(folder) / "unused.sock")]
            params.api_keys = [token_hex(16)]
            self._server = xllamacpp.Server(params)
        # A server whose loop has not begun cannot be ended: taking it apart would hang for ever.
        # One token proves that it has.
        self._server.handle_completions({"prompt": "a", "n_predict": 1})

    def chat(self, body: dict[str, Any], unwanted: Callable[[], bool]) -> list[dict[str, Any]]:
        """All parts of the answer.

        `call_schema` in the body is a schema that the answer must fit. A body with `stream`
        comes in parts and ends soon after it is unwanted; one without comes as a whole, and ends
        when it is complete.
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
    """Whether a file may be loaded. Reads four bytes and imports nothing."""
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
        raise MissingExtra.needed("gguf", by=where, package="xllamacpp")


def load_gguf(path: Path, *, threads: int | None, slots: int, context: int) -> GgufEngine:
    """The model of a file: the one that is loaded already, if any client still has it."""
    resolved = path.resolve()
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
