"""What TRL may be told, and what is refused by name before anything is loaded."""

import dataclasses
from typing import Any

import pytest
import trl
from pydantic import ValidationError

from assay.train.grpo_config import GRPOConfig
from assay.train.trl_settings import TrlSettings


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"zero_variance": "resample"}, "zero_variance='resample'"),
        ({"measure_kl": True}, "measure_kl"),
        ({"micro_batch_tokens": 100}, r"micro_batch_tokens: .*per_device_train_batch_size"),
        ({"micro_batch_bytes": 100}, r"micro_batch_bytes: .*per_device_train_batch_size"),
        ({"gradient_checkpointing": True}, "gradient_checkpointing: set trl"),
        ({"device": "cuda:1"}, "device='cuda:1'"),
        ({"trl": {"per_device_train_batch_size": 5}}, "does not divide the 64 rollouts"),
        (
            {"trl": {"use_vllm": True, "vllm_server_base_url": "http://me:secret@host"}},
            "trl.vllm_server_base_url: .*must not contain a password",
        ),
        ({"trl": {"vllm_mode": "server"}}, "trl.vllm_mode: has no effect without trl.use_vllm"),
    ],
)
def test_what_trl_cannot_honour_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=f"TRL does not support these settings: .*{named}"):
        GRPOConfig(model_name="m", backend="trl", **fields)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ValidationError, match=r"zero_variance.*; measure_kl"):
        GRPOConfig(model_name="m", backend="trl", zero_variance="resample", measure_kl=True)


def test_a_configuration_that_was_written_out_in_full_is_still_the_same() -> None:
    config = GRPOConfig(model_name="m", backend="trl", trl=TrlSettings(bf16=True))

    assert GRPOConfig.model_validate(config.model_dump()) == config


def test_the_local_loop_is_told_nothing_of_trl() -> None:
    with pytest.raises(ValidationError, match="`trl` has no effect with backend='local'"):
        GRPOConfig(model_name="m", trl=TrlSettings())


def test_a_setting_of_trl_that_decides_the_loss_is_not_taken() -> None:
    with pytest.raises(ValidationError, match="num_generations"):
        GRPOConfig.model_validate(
            {"model_name": "m", "backend": "trl", "trl": {"num_generations": 4}}
        )


def test_what_differs_for_trl_is_part_of_what_a_training_is() -> None:
    plain, halved = (
        GRPOConfig(model_name="m", backend="trl", trl=TrlSettings(per_device_train_batch_size=size))
        for size in (None, 32)
    )

    assert plain.describe() != halved.describe()


def test_every_setting_is_one_of_the_installed_trl() -> None:
    known = {field.name for field in dataclasses.fields(trl.GRPOConfig)}

    assert set(TrlSettings.model_fields) <= known
