"""Run GGUF files with llama.cpp inside this process, through the package xllamacpp."""

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
# Smaller models run on one thread: with more, threads mostly wait for each other.
_SMALL_FILE = 400_000_000
_engines: WeakValueDictionary[tuple[object, ...], "GgufEngine"] = WeakValueDictionary()
_engines_lock = Lock()


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
        raise MissingExtra.needed("gguf", by=where, package="xllamacpp")


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
