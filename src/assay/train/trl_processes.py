"""Several processes that train one model: the first one rolls out and records."""

import os
from dataclasses import dataclass
from typing import Any

from assay.errors import ConfigError, TrainingError

from .grpo_config import GRPOConfig
from .trl_settings import TrlSettings


@dataclass(frozen=True)
class ProcessRank:
    """The rank of this process under `accelerate launch` or `torchrun`."""

    number: int
    count: int

    @property
    def is_first(self) -> bool:
        return self.number == 0


def find_process_rank(config: GRPOConfig) -> ProcessRank:
    """Return the rank of this process, after all processes have connected."""
    from accelerate import PartialState

    # Without `cpu` each process on a CPU would take itself for the only one.
    state = PartialState(cpu=is_on_cpu(config))
    return ProcessRank(state.process_index, state.num_processes)


def is_on_cpu(config: GRPOConfig) -> bool:
    """Whether TRL trains on the CPU."""
    import torch

    return config.device == "cpu" or not torch.accelerator.is_available()


def count_launched_processes() -> int:
    """Return the number of processes of `accelerate launch` or `torchrun`; 1 without them."""
    count = os.environ.get("WORLD_SIZE", "")
    return int(count) if count.isdecimal() else 1


def check_single_process() -> None:
    """Raise `ConfigError` for one of several processes: each would do the whole training."""
    if count_launched_processes() > 1:
        raise ConfigError(
            "only the TRL backend trains with several processes",
            where=f"{count_launched_processes()} processes",
            hint="set backend='trl', or start one process without torchrun",
        )


def check_process_rank(config: GRPOConfig) -> ProcessRank:
    """Return the rank of this process. Raises `ConfigError` for unsupported settings."""
    from accelerate.utils import parse_flag_from_env

    rank = find_process_rank(config)
    if rank.count == 1 < count_launched_processes():
        raise ConfigError(
            "the processes cannot find each other on this device, and each would do the whole "
            "training",
            where=f"{count_launched_processes()} processes",
            hint="set device='cpu', or start one process",
        )
    settings = config.trl or TrlSettings()
    size = rank.count * (settings.per_device_train_batch_size or 1)
    if config.rollouts_per_step % size:
        raise ConfigError(
            f"the {config.rollouts_per_step} rollouts of a step are not a multiple of {size}",
            where=f"{rank.count} processes",
            hint="change prompts_per_step, group_size or trl.per_device_train_batch_size",
        )
    if any(map(parse_flag_from_env, ("ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_FSDP"))):
        raise ConfigError(
            "DeepSpeed and FSDP shard the weights, and the model in training must also sample",
            where="accelerate",
            hint="run `accelerate config` again without them",
        )
    if rank.count > 1 and settings.use_vllm:
        raise ConfigError(
            "trl.use_vllm needs a single process: only the first one makes rollouts, and TRL's "
            "vLLM waits for all of them",
            where=f"{rank.count} processes",
            hint="train with one process, or without vLLM",
        )
    return rank


def broadcast_from_first(value: Any = None) -> Any:
    """Return the value of the first process in all of them, once all have called this."""
    from accelerate.utils import broadcast_object_list

    values = [value]
    try:
        broadcast_object_list(values, from_process=0)
    except RuntimeError as error:
        raise TrainingError(
            "another process of this training has ended",
            hint="see the error of that process; checkpoints are kept",
        ) from error
    return values[0]
