"""The memory of a training: what is estimated is not less than what a pass really holds."""

from typing import Any

import pytest
import torch
from transformers import Qwen3Config

from assay.train import GRPOConfig, Lora, MemoryEstimate, estimate_memory
from assay.train.memory_estimate import compute_logits_per_pass

GB = 10**9
QWEN3_0_6B = {
    "vocab_size": 151_936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "tie_word_embeddings": True,
}
TINY = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


def estimate(shape: dict[str, Any] = QWEN3_0_6B, *, prompt: int = 512, **fields: Any) -> Any:
    config = GRPOConfig(model_name="any", **fields)
    return estimate_memory(config, Qwen3Config(**shape), prompt_tokens=prompt)


def test_qwen3_0_6b_fits_24_gb_with_default_settings() -> None:
    found: MemoryEstimate = estimate()

    assert found.held == 16 * 596_049_920
    assert found.update < found.rollout == found.peak < 24 * GB
    assert found.logits <= 4 * 2**30
    assert found.rollouts_per_pass == 6


def test_one_pass_of_all_its_tokens_would_not_have_fitted() -> None:
    unbounded = estimate(micro_batch_bytes=2**50, gradient_checkpointing=False)

    assert unbounded.peak > 48 * GB


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"micro_batch_bytes": 2**30}, "logits"),
        ({"micro_batch_tokens": 1024}, "activations"),
        ({"prompts_per_step": 4}, "cache"),
        ({"lora": Lora()}, "optimizer"),
    ],
)
def test_smaller_settings_take_less(fields: dict[str, Any], part: str) -> None:
    assert getattr(estimate(**fields), part) < getattr(estimate(), part)


def test_frozen_weights_in_bfloat16_take_half() -> None:
    half, whole = (estimate(lora=Lora(), dtype=each).weights for each in ("bfloat16", "float32"))

    assert 0.4 < half / whole < 0.6
    assert estimate(beta=0.1).weights == 2 * estimate().weights


def saved_bytes(shape: dict[str, Any], tokens: int) -> int:
    """What the layers of a pass really remember for their backward pass, weights apart."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(Qwen3Config(**shape))
    own = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    held: dict[int, Any] = {}

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            held[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = model.model(input_ids=torch.zeros(1, tokens, dtype=torch.long), use_cache=False)
    assert out.last_hidden_state.requires_grad
    return sum(storage.nbytes() for storage in held.values())


def test_activations_are_estimated_at_least_and_not_at_twice_what_is_held() -> None:
    tokens = 64

    held = saved_bytes(TINY, tokens)
    found = estimate(
        TINY, prompt=tokens - 32, max_tokens=32, prompts_per_step=1, group_size=2
    ).activations

    assert held <= found / 2 <= 2 * held


def test_logits_take_tokens_times_vocabulary() -> None:
    assert compute_logits_per_pass(16 * 300 * 10, 300) == 10
    assert compute_logits_per_pass(1, 300) == 1
