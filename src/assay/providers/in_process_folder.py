"""Models in Hugging Face folders: checked first, then loaded once per process."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

from assay.errors import ConfigError
from assay.types import Endpoint

from .chat_prompts import build_missing_template_error
from .in_process_decoder import Sampling
from .in_process_model import LocalModel, check_local_packages
from .local_settings import (
    build_sampling,
    read_count_setting,
    read_tool_format,
    refuse_unsupported_settings,
)
from .model_hub import find_model_folder
from .tool_text import CallStyle

_LOCAL_PARAMS = (
    "chat_template_kwargs",
    "device",
    "dtype",
    "stop_token_ids",
    "threads",
    "tool_format",
    "top_k",
)
_TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json", "additional_chat_templates")

_shared_models: WeakValueDictionary[tuple[object, ...], LocalModel] = WeakValueDictionary()
_shared_models_lock = Lock()


@dataclass(frozen=True)
class LocalOptions:
    """The settings of an endpoint for a model in this process."""

    sampling: Sampling
    """Without the stop ids of the model, which are unknown until it is loaded."""

    stop: tuple[str, ...]
    template: Mapping[str, Any]
    threads: int | None
    dtype: str
    device: str | None
    tool_format: CallStyle | None
    """The format of tool calls. None: detect it from the chat template."""


def parse_local_options(endpoint: Endpoint) -> LocalOptions:
    """Parse the settings of an endpoint. Raises `ConfigError` for unsupported ones."""
    where, extra = f"local:{endpoint.model}", endpoint.extra_params
    refuse_unsupported_settings(endpoint, known=_LOCAL_PARAMS)
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
        sampling=build_sampling(endpoint, stop_ids=tuple(stop_ids)),
        stop=tuple(text for text in endpoint.stop or () if text),
        template=template,
        threads=read_count_setting(endpoint, "threads"),
        dtype=str(extra.get("dtype", "float32")),
        device=None if extra.get("device") is None else str(extra["device"]),
        tool_format=read_tool_format(endpoint),
    )


def check_folder(endpoint: Endpoint) -> Path:
    """Return the folder of a chat model. Reads two small files and imports nothing."""
    # An evaluation downloads nothing: a hub id must be in the local cache.
    folder = find_model_folder(endpoint.model, fetch=False)
    where = f"local:{endpoint.model}"
    check_local_packages(where)
    if any((folder / name).exists() for name in _TEMPLATE_FILES):
        return folder
    try:
        config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    except (OSError, ValueError):
        config = None
    if not isinstance(config, dict) or not config.get("chat_template"):
        raise build_missing_template_error(where)
    return folder


def load_shared_model(folder: Path, options: LocalOptions) -> LocalModel:
    """Load the model of a folder, or return the one that other clients use."""
    path = folder.resolve()
    # With the time of the last write: an overwritten folder is another model.
    written = max(file.stat().st_mtime_ns for file in path.iterdir())
    key = (path, written, options.dtype, options.device, options.threads)
    with _shared_models_lock:
        local = _shared_models.get(key)
        if local is None:
            local = LocalModel.load(path, dtype=options.dtype, device=options.device)
            if options.threads is not None:
                local.threads = options.threads
            _shared_models[key] = local
    return local
