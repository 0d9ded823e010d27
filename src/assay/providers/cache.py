"""A cache of replies on disk, keyed by a digest of the request. Off unless a folder is set."""

import os
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from assay.errors import ConfigError, WireError
from assay.formats import UNSUPPORTED_FIELDS
from assay.types import (
    Endpoint,
    Message,
    ModelCall,
    ToolSpec,
    Usage,
    collect_hidden_settings,
    encode_stable_json,
    make_private_folder,
    replace_private,
)

from .provider_table import find_provider
from .reply import Reply

_CACHE_VERSION = 1
_FIELDS = ("temperature", "top_p", "max_tokens", "stop", "thinking", "reasoning_effort")


class _CacheEntry(BaseModel):
    """One file of the cache."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int
    key: str
    message: Message
    call: ModelCall


class ResponseCache:
    """Cached replies of one endpoint. Only successes are stored; an invalid entry is a miss.

    The digest covers provider, address with its query, model, headers, every parameter, messages,
    tools and seed, but no field that is named like a key. A file contains the reply and the
    digest: no request, no address, no header.
    """

    def __init__(self, folder: Path, endpoint: Endpoint) -> None:
        self._folder = folder
        plain, hidden = endpoint.to_dict(), collect_hidden_settings(endpoint)
        hidden.pop("extra_params", None)  # the plain ones are in the key already
        usual = find_provider(endpoint.provider).api_base
        # What every request of the endpoint has in common.
        self._about: dict[str, Any] = {
            "version": _CACHE_VERSION,
            "provider": endpoint.provider,
            "address": str(plain.get("api_base") or usual or "").rstrip("/"),
            "model": endpoint.model,
            "headers": plain.get("headers", {}),
            "settings": {name: getattr(endpoint, name) for name in _FIELDS},
            "extra_params": endpoint.extra_params,
            **({"hidden": hidden} if hidden else {}),
            **({"api_version": endpoint.api_version} if endpoint.api_version else {}),
        }
        self.hits = 0
        self.misses = 0
        self.broken = 0
        """Invalid entries, also counted as misses."""

        self.unwritten = 0
        """Replies that could not be written."""

        try:
            make_private_folder(folder)
        except OSError as error:
            raise ConfigError(
                f"the cache folder cannot be created: {error.strerror}",
                where=str(folder),
                hint="choose a writable folder, or turn the cache off",
            ) from error

    def key(self, messages: Sequence[Message], tools: Sequence[ToolSpec], seed: int | None) -> str:
        """Return the digest of a request. Repeats differ in their seed, and so in their digest."""
        request = {
            **self._about,
            # Fields that are never sent, such as a timestamp, must not cause a miss.
            "messages": [
                {
                    key: value
                    for key, value in message.to_dict().items()
                    if key not in UNSUPPORTED_FIELDS
                }
                for message in messages
            ],
            "tools": [tool.model_dump() for tool in tools],
            "seed": seed,
        }
        try:
            return sha256(encode_stable_json(request)).hexdigest()
        except ValueError as error:
            raise WireError(
                f"the request cannot be encoded as JSON: {error}",
                where=f"{self._about['provider']}:{self._about['model']}",
                hint="use plain JSON values in tools, parameters and messages",
            ) from error

    def find(self, key: str) -> Reply | None:
        """Return the stored reply of a digest, marked as cached and without a latency."""
        try:
            entry = _CacheEntry.model_validate_json(self._build_path(key).read_bytes())
            valid = entry.version == _CACHE_VERSION and entry.key == key
        except FileNotFoundError:
            self.misses += 1
            return None
        except (OSError, ValidationError):
            valid = False
        if not valid:
            self.broken += 1
            self.misses += 1
            return None
        self.hits += 1
        # A hit costs nothing, and has no latency.
        usage = (entry.call.usage or Usage()).model_copy(update={"cost_usd": 0.0})
        update = {"cached": True, "latency_s": None, "usage": usage}
        return Reply(entry.message, entry.call.model_copy(update=update))

    def keep(self, key: str, reply: Reply) -> None:
        """Store a reply under its digest, atomically."""
        entry = _CacheEntry(version=_CACHE_VERSION, key=key, message=reply.message, call=reply.call)
        path = self._build_path(key)
        try:
            make_private_folder(path.parent)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(entry.model_dump_json(exclude_defaults=True).encode())
                replace_private(Path(name), path)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError:
            # The reply is valid and paid for: a full disk must not fail the call.
            self.unwritten += 1

    def _build_path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"
