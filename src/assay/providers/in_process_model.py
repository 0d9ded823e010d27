"""A model in this process: weights and tokenizer, with batched generation."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

from assay.errors import ConfigError, MissingExtra

from .in_process_batches import BatchQueue
from .in_process_decoder import Decoder, Generated, Sampling, ShouldStop
from .model_hub import find_model_folder

SMALL_MODEL_PARAMETERS = 500_000_000
"""Smaller models run on one thread: with more, threads mostly wait for each other."""

_PROBE_CODE = (
    "import torch; torch.ones(4, 32, dtype=torch.bfloat16) @ torch.ones(32, 64, "
    "dtype=torch.bfloat16)"
)
_PROBE_TIMEOUT_S = 120.0


class LocalModel:
    """A causal language model and its tokenizer. One may serve many clients.

    A trainer may train `model` between generations, and set `weight_version` after each update.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        weight_version: str | None = None,
        threads: int | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.weight_version = weight_version
        """Recorded in every call; None if the weights do not change."""

        self.threads = threads
        """The number of torch threads. None: 1 for a small model, else torch's default."""

        if (
            threads is None
            and sum(each.numel() for each in model.parameters()) < SMALL_MODEL_PARAMETERS
        ):
            self.threads = 1
        prepare_half_precision(next(model.parameters()).dtype, self.device)
        self.compute_dtype: Any = None
        """The `torch.dtype` of computations. None: that of the weights."""

        self.stop_ids = _find_stop_ids(model, tokenizer)
        """The tokens that end a completion of this model."""

        self.batches = BatchQueue()
        """The queued calls of this model, from all clients."""

        self._turn = Lock()

    def __repr__(self) -> str:
        return f"LocalModel({type(self.model).__name__}, weight_version={self.weight_version!r})"

    @classmethod
    def load(
        cls, path: str | Path, *, dtype: str = "float32", device: str | None = None
    ) -> "LocalModel":
        """Load a model from a Hugging Face folder or hub id, without running its code.

        An id such as `Qwen/Qwen3-0.6B` is taken from the local cache, else downloaded.
        """
        check_local_packages("a model in this process")
        import torch
        import transformers

        folder = find_model_folder(path, fetch=True)
        kind = getattr(torch, dtype, None)
        if not isinstance(kind, torch.dtype):
            raise ConfigError(
                f"dtype={dtype!r} is not a torch dtype",
                where=str(folder),
                hint="use float32, bfloat16 or float16",
            )
        if device is None:
            mps = torch.backends.mps.is_available()
            device = "cuda" if torch.cuda.is_available() else "mps" if mps else "cpu"
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise ConfigError(
                f"device={device!r} cannot be used: {_summarize_load_error(error)}",
                where=str(folder),
                hint="omit it to use the best available device",
            ) from error
        try:
            with hide_progress_bars():
                tokenizer = transformers.AutoTokenizer.from_pretrained(
                    folder, local_files_only=True, trust_remote_code=False
                )
                model = transformers.AutoModelForCausalLM.from_pretrained(
                    folder, dtype=kind, local_files_only=True, trust_remote_code=False
                )
        except Exception as error:  # each library below raises its own errors for a bad file
            raise ConfigError(
                f"the model cannot be loaded: {_summarize_load_error(error)}",
                where=str(folder),
                hint="write the folder with `save_pretrained` of the model and the tokenizer",
            ) from error
        return cls(model.to(device), tokenizer)

    @property
    def device(self) -> Any:
        """The device of the weights."""
        return next(self.model.parameters()).device

    @property
    def context(self) -> int | None:
        """The context length in tokens, where the model config has one."""
        # Multimodal models keep the settings of their language model in a nested config.
        config = self.model.config
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        limit = getattr(text, "max_position_embeddings", None)
        return limit if isinstance(limit, int) and limit > 0 else None

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sequence[Sampling] | Sampling,
        *,
        seeds: Sequence[int | None],
        should_stop: ShouldStop | None = None,
    ) -> list[Generated]:
        """Sample a completion for each prompt, all in one batch.

        A seed belongs to its prompt: its samples do not depend on the others, up to the rounding
        of the matrix products. None draws a random seed. Module modes such as training are
        restored afterwards.
        """
        samplings = [sampling] * len(prompts) if isinstance(sampling, Sampling) else list(sampling)
        where = "LocalModel.generate()"
        if not len(prompts) == len(samplings) == len(seeds):
            raise ConfigError(
                f"the lengths differ: {len(prompts)} prompts, {len(samplings)} samplings and "
                f"{len(seeds)} seeds",
                where=where,
                hint="pass one sampling and one seed for each prompt; a seed may be None",
            )
        if empty := [index for index, prompt in enumerate(prompts) if len(prompt) == 0]:
            raise ConfigError(f"prompt {empty[0]} has no tokens", where=where)
        if not prompts:
            return []
        samplings = [
            each if each.stop_ids else replace(each, stop_ids=self.stop_ids) for each in samplings
        ]
        with self._turn, self.limit_threads(), self.autocast(), _set_inference_mode(self.model):
            return Decoder(self.model, prompts, samplings).run(seeds, should_stop)

    @contextmanager
    def limit_threads(self) -> Iterator[None]:
        """Use this model's number of torch threads; a trainer may use it for updates too."""
        import torch

        before = torch.get_num_threads()
        if self.threads is not None and self.threads != before:
            torch.set_num_threads(self.threads)
        try:
            yield
        finally:
            if self.threads is not None and self.threads != before:
                torch.set_num_threads(before)

    @contextmanager
    def autocast(self) -> Iterator[None]:
        """Compute in `compute_dtype`; a trainer needs it around its passes too."""
        if self.compute_dtype is None:
            yield
            return
        import torch

        with torch.autocast(self.device.type, dtype=self.compute_dtype):
            yield


@contextmanager
def _set_inference_mode(model: Any) -> Iterator[None]:
    # Restored per module: a trainer may have only some of them in training mode.
    import torch

    training = [module for module in model.modules() if module.training]
    if training:
        model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True


def _find_stop_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    # Instruct models often name the end of a turn in only one of the three.
    found: dict[int, None] = {}
    generation = getattr(model, "generation_config", None)
    for named in (
        getattr(generation, "eos_token_id", None),
        getattr(model.config, "eos_token_id", None),
        getattr(tokenizer, "eos_token_id", None),
    ):
        for token in named if isinstance(named, list | tuple) else [named]:
            if isinstance(token, int):
                found[token] = None
    return tuple(found)


def check_local_packages(by: str) -> None:
    """Raise `MissingExtra` if a package is missing. Imports none of them."""
    for package in ("torch", "transformers", "jinja2"):
        if find_spec(package) is None:
            raise MissingExtra.build("local", by=by, package=package)


@contextmanager
def hide_progress_bars() -> Iterator[None]:
    """Hide progress bars of transformers: only commands write to the terminal."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _summarize_load_error(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__


def prepare_half_precision(dtype: Any, device: Any) -> None:
    """Disable oneDNN if it would crash the process in this dtype on this device."""
    import torch

    if device.type == "cpu" and dtype in (torch.bfloat16, torch.float16):
        _avoid_broken_amx()


@cache
def _avoid_broken_amx() -> None:
    # oneDNN multiplies half-precision matrices with AMX. Some virtual machines report AMX and
    # kill every process that uses it, so a subprocess tries it first.
    import torch

    if not torch.cpu._is_amx_tile_supported():
        return
    try:
        tried = subprocess.run(
            [sys.executable, "-c", _PROBE_CODE],
            capture_output=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return  # inconclusive: keep the default of torch
    if tried.returncode < 0:
        torch.backends.mkldnn.set_flags(_enabled=False, _fp32_precision=None)
