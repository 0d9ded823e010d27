"""Shared prompts: read once, with the same logprobs and gradients as when read for each sample."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers

from assay.train.batches import MicroBatch, TrainedRollout, build_micro_batch, compute_step_size
from assay.train.grpo_config import GRPOConfig
from assay.train.policy import compute_token_logprobs
from assay.train.shared_prompts import compute_logits_after, share_prompts
from assay.types import Sample

VOCABULARY = 40
SIZE = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48}
ENDS: dict[str, Any] = {"bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}


def full_attention() -> Any:
    config = transformers.Qwen2Config(**SIZE, **HEADS, **ENDS)
    return transformers.Qwen2ForCausalLM(config)


def written_out_attention() -> Any:
    config = transformers.LlamaConfig(**SIZE, **HEADS, **ENDS, attn_implementation="eager")
    return transformers.LlamaForCausalLM(config)


def sliding_window() -> Any:
    config = transformers.MistralConfig(**SIZE, **HEADS, **ENDS, sliding_window=5)
    return transformers.MistralForCausalLM(config)


def learned_positions() -> Any:
    """With no more places than the longest sample has tokens."""
    fields = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 18, **ENDS}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=VOCABULARY, **fields))


def running_state() -> Any:
    fields = {"state_size": 4, "intermediate_size": 64, "time_step_rank": 4, **ENDS}
    return transformers.MambaForCausalLM(transformers.MambaConfig(**SIZE, **fields))


def made(make: Callable[[], Any]) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make().eval()


def sample(prompt: list[int], *turns: tuple[int, int]) -> Sample:
    """A turn is some tokens that were sampled, and some that were read after them."""
    tokens, mask = list(prompt), [0.0] * len(prompt)
    for turn, (sampled, read) in enumerate(turns):
        tokens += [(7 * turn + 3 * place + len(prompt)) % 30 + 5 for place in range(sampled + read)]
        mask += [1.0] * sampled + [0.0] * read
    return Sample(tokens=tokens, loss_mask=mask, rollout_log_probs=[0.0] * len(tokens))


def groups() -> MicroBatch:
    """Two prompts of different length, several turns, and a rollout that was cut in two."""
    short, long = [2, 3, 4, 5, 6, 7, 8], list(range(10, 22))
    parts = [
        (sample(short, (2, 0)),),
        (sample(short, (3, 3), (2, 1)),),
        (sample(short, (5, 0)), sample([*short, 9], (2, 0))),
        (sample(long, (1, 0)),),
        (sample(long, (2, 2), (2, 0)),),
        (sample(long, (4, 0)),),
    ]
    rollouts = [TrainedRollout(each, 1.0 - place) for place, each in enumerate(parts)]
    config = GRPOConfig(model_name="any")
    return build_micro_batch(rollouts, compute_step_size(rollouts, config), config, device="cpu")


def read(model: Any, batch: MicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """The logprobs, and the gradient of a loss of them in one vector."""
    model.zero_grad()
    logprobs_N, _ = compute_token_logprobs(model, batch, 0.7)
    (logprobs_N * torch.arange(len(logprobs_N)).cos()).sum().backward()
    grads = [each.grad.flatten() for each in model.parameters() if each.grad is not None]
    return logprobs_N.detach(), torch.cat(grads)


@pytest.mark.parametrize(
    "make", [full_attention, written_out_attention, sliding_window, learned_positions]
)
def test_logprobs_and_gradients_are_those_of_samples_read_alone(make: Callable[[], Any]) -> None:
    model, batch = made(make), groups()
    assert batch.shared is not None
    assert compute_logits_after(model, batch.shared) is not None

    logprobs_N, gradient = read(model, batch)
    alone_N, alone = read(model, replace(batch, shared=None))

    assert torch.allclose(logprobs_N, alone_N, atol=1e-5)
    assert float(alone.abs().max()) > 0.01
    assert torch.allclose(gradient, alone, atol=1e-5)


def test_a_model_with_a_running_state_reads_every_sample_whole() -> None:
    model, batch = made(running_state), groups()
    assert batch.shared is not None

    assert compute_logits_after(model, batch.shared) is None
    logprobs_N, _ = compute_token_logprobs(model, batch, 1.0)

    assert bool(logprobs_N.isfinite().all())


def test_a_model_with_a_memory_of_its_own_is_not_trusted_with_another() -> None:
    model, batch = made(full_attention), groups()
    forward = model.forward
    model.forward = lambda past_key_values=None, **named: forward(**named)
    assert batch.shared is not None

    assert compute_logits_after(model, batch.shared) is None


def test_a_pass_reads_each_prompt_once_and_nothing_after_the_last_sampled_token() -> None:
    model, batch, seen = made(full_attention), groups(), []
    model.register_forward_pre_hook(
        lambda _, __, named: seen.append(tuple(named["input_ids"].shape)), with_kwargs=True
    )

    compute_token_logprobs(model, batch, 1.0)

    # Three prompts without their last token, then what follows: 1 + 3 + 3 + 2 tokens, less one.
    assert batch.ids_RT.shape == (7, 18)
    assert seen == [(3, 11), (7, 8)]


def test_the_parts_hold_every_token_that_is_wanted() -> None:
    rows = [[1, 2, 3, 4, 5], [1, 2, 3, 6, 7], [8, 9, 4, 4, 4]]

    shared = share_prompts(rows, [(3, 4), (3, 4), (2, 4)], device="cpu")
    assert shared is None  # one more prompt than is worth it

    shared = share_prompts(2 * rows, 2 * [(3, 4), (3, 4), (2, 4)], device="cpu")
    assert shared is not None
    assert shared.ids_PT.tolist() == [[1, 2, 3], [0, 8, 9]]
    assert shared.mask_PT.tolist() == [[1, 1, 1], [0, 1, 1]]
    assert shared.padded
    assert shared.prompt_R.tolist() == [0, 0, 1, 0, 0, 1]
    assert shared.rest_RT.tolist() == 2 * [[4, 0], [6, 0], [4, 4]]
    assert shared.start_R.tolist() == [3, 3, 2, 3, 3, 2]


@pytest.mark.parametrize(
    ("rows", "starts"),
    [
        ([[1, 2, 3, 4, 5]], [3]),  # nobody to share with
        ([[1, 2, 3, 4, 5], [2, 2, 3, 4, 5]], [3, 3]),  # nothing in common
        ([[1, 2, 3, 4, 5], [1, 3, 3, 4, 5]], [1, 1]),  # hardly anything
        ([*[[1, 2, 3, 4, 5, 6, 7, 8]] * 4, [1, 2]], [6, 6, 6, 6, 0]),  # one has no prompt
    ],
)
def test_a_pass_is_left_whole_where_little_is_shared(
    rows: list[list[int]], starts: list[int]
) -> None:
    spans = [(start, len(row) - 1) for row, start in zip(rows, starts, strict=True)]

    assert share_prompts(rows, spans, device="cpu") is None


def test_a_sample_without_sampled_tokens_shares_what_the_others_do_not() -> None:
    prompt = list(range(2, 20))
    rollouts = [
        TrainedRollout((sample(prompt, (2, 0)), sample(prompt, (0, 3))), 1.0),
        TrainedRollout((sample(prompt, (3, 0)),), -1.0),
        TrainedRollout((sample(prompt, (1, 0)),), 0.5),
    ]
    config = GRPOConfig(model_name="any")
    batch = build_micro_batch(rollouts, compute_step_size(rollouts, config), config, device="cpu")
    model = made(full_attention)
    assert batch.shared is not None

    logprobs_N, _ = compute_token_logprobs(model, batch, 1.0)
    alone_N, _ = compute_token_logprobs(model, replace(batch, shared=None), 1.0)

    assert torch.allclose(logprobs_N, alone_N, atol=1e-5)
