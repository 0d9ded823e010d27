"""Models in Hugging Face folders: checked before anything is loaded, loaded once per process."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

from assay.errors import ConfigError
from assay.types import Endpoint

from .chat_prompts import missing_template
from .in_process_decoder import Sampling
from .in_process_model import LocalModel, check_packages
from .local_settings import (
    counted_setting,
    refuse_foreign,
    sampling_of,
    tool_format_of,
)
from .model_hub import find_model_folder
from .tool_text import CallStyle

_KNOWN = (
    "chat_template_kwargs",
    "device",
    "dtype",
    "stop_token_ids",
    "threads",
    "tool_format",
    "top_k",
)
_TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json", "additional_chat_templates")

_loaded: WeakValueDictionary[tuple[object, ...], LocalModel] = WeakValueDictionary()
_loading = Lock()


@dataclass(frozen=True)
class LocalOptions:
    """What an endpoint says of a model in this process."""

    sampling: Sampling
    """Without the stop ids of the model, which are not known before it is loaded."""

    stop: tuple[str, ...]
    template: Mapping[str, Any]
    threads: int | None
    dtype: str
    device: str | None
    tool_format: CallStyle | None
    """How tool calls are written. None: the chat template decides."""


def local_options(endpoint: Endpoint) -> LocalOptions:
    """The settings of an endpoint. Raises `ConfigError` for one that has no meaning here."""
    where, extra = f"local:{endpoint.model}", endpoint.extra_params
    refuse_foreign(endpoint, known=_KNOWN)
    stop_ids = extra.get("stop_token_ids") or []
    template = extra.get("chat_template_kwargs") or {}
    wrong = None
    if not isinstance(template, Mapping):
        wrong = "chat_template_kwargs is not an object"
    elif not isinstance(stop_ids, list | tuple) or any(type(each) is not int for each in stop_ids):
        wrong = "stop_token_ids is not a list of whole numbers"
    if wrong:
        raise ConfigError(f"extra_params: {wrong}", where=where)
    return LocalOptions(
        sampling=sampling_of(endpoint, stop_ids=tuple(stop_ids)),
        stop=tuple(text for text in endpoint.stop or () if text),
        template=template,
        threads=counted_setting(endpoint, "threads"),
        dtype=str(extra.get("dtype", "float32")),
        device=None if extra.get("device") is None else str(extra["device"]),
        tool_format=tool_format_of(endpoint),
    )


def check_folder(endpoint: Endpoint) -> Path:
    """The folder of a model, if it can be asked. Reads two small files and imports nothing."""
    # An evaluation fetches nothing: of a hub id, the snapshot in the local cache is taken.
    folder = find_model_folder(endpoint.model, fetch=False)
    where = f"local:{endpoint.model}"
    check_packages(where)
    beside = any((folder / name).exists() for name in _TEMPLATE_FILES)
    if not beside and not _settings(folder / "tokenizer_config.json").get("chat_template"):
        raise missing_template(where)
    return folder


def load_shared(folder: Path, options: LocalOptions) -> LocalModel:
    """The model in a folder: the one that is loaded already, if any client still has it."""
    path = folder.resolve()
    # A folder that was written again since holds another model.
    written = max(file.stat().st_mtime_ns for file in path.iterdir())
    key = (path, written, options.dtype, options.device, options.threads)
    with _loading:
        local = _loaded.get(key)
        if local is None:
            local = LocalModel.load(path, dtype=options.dtype, device=options.device)
            if options.threads is not None:
                local.threads = options.threads
            _loaded[key] = local
    return local


def _settings(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}
