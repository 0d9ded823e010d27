"""The decoding loop: what it samples, under which distribution, and how it ends."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from assay.errors import ConfigError, EndpointError
from assay.providers import in_process_decoder as in_process_decoding
from assay.providers.in_process import NEVER, LocalModel, Sampling
from assay.providers.in_process_decoder import filter_logits
from tiny_models import tiny_local

PROMPTS = ([5, 9, 14, 3], [7], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], [40, 41])


@cache
def shared() -> LocalModel:
    return tiny_local("qwen3")


def recomputed(
    local: LocalModel, prompt: Sequence[int], ids: Sequence[int], sampling: Sampling
) -> list[float]:
    """The logprobs of `ids` in one forward pass over everything."""
    import torch

    with torch.no_grad():
        logits = local.model(torch.tensor([[*prompt, *ids]])).logits[0].float()
    steps = logits[len(prompt) - 1 : -1]
    logprobs = filter_logits(steps, [sampling] * len(ids)).log_softmax(-1)
    return [float(logprobs[step, token]) for step, token in enumerate(ids)]


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(max_tokens=24),
        Sampling(max_tokens=24, temperature=0.7),
        Sampling(max_tokens=24, temperature=1.3, top_p=0.8),
        Sampling(max_tokens=24, top_k=5),
        Sampling(max_tokens=24, temperature=0.9, top_k=40, top_p=0.9),
    ],
)
@pytest.mark.parametrize("batch", [1, 8])
def test_recorded_logprobs_are_those_of_one_forward_pass(batch: int, sampling: Sampling) -> None:
    prompts = [PROMPTS[place % len(PROMPTS)] for place in range(batch)]

    made = shared().generate(prompts, sampling, seeds=range(batch))

    for prompt, each in zip(prompts, made, strict=True):
        again = recomputed(shared(), prompt, each.ids, sampling)
        assert each.logprobs == pytest.approx(again, abs=1e-4)


def test_padding_takes_no_position_of_a_model_that_learned_its_positions() -> None:
    import transformers

    settings = {"vocab_size": 60, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64}
    config = transformers.GPT2Config(initializer_range=0.5, eos_token_id=None, **settings)
    local = LocalModel(transformers.GPT2LMHeadModel(config).eval(), None, threads=1)
    sampling = Sampling(max_tokens=6)

    made = local.generate(PROMPTS, sampling, seeds=[1, 2, 3, 4])

    for prompt, each in zip(PROMPTS, made, strict=True):
        again = recomputed(local, prompt, each.ids, sampling)
        assert each.logprobs == pytest.approx(again, abs=1e-4)


def test_what_is_sampled_for_a_prompt_does_not_depend_on_its_neighbours() -> None:
    sampling = Sampling(max_tokens=20, temperature=0.8, top_p=0.95)

    together = shared().generate(PROMPTS, sampling, seeds=[4, 5, 6, 7])
    alone = [
        shared().generate([prompt], sampling, seeds=[seed])[0]
        for prompt, seed in zip(PROMPTS, [4, 5, 6, 7], strict=True)
    ]

    assert [each.ids for each in together] == [each.ids for each in alone]


@pytest.mark.parametrize("selectable", [True, False])
def test_a_prompt_that_comes_several_times_is_read_once_where_that_can_be(
    selectable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    local, read = shared(), []
    forward = local.model.forward

    def counted(*given: Any, **named: Any) -> Any:
        read.append(tuple(named["input_ids"].shape))
        return forward(*given, **named)

    monkeypatch.setattr(local.model, "forward", counted)
    monkeypatch.setattr(in_process_decoding, "_supports_row_selection", lambda _: selectable)
    sampling = Sampling(max_tokens=4, stop_ids=(NEVER,))
    many = local.generate([PROMPTS[0], PROMPTS[2], PROMPTS[0]], sampling, seeds=[1, 2, 3])
    first = read[:2]

    alone = [local.generate([PROMPTS[0]], sampling, seeds=[seed])[0] for seed in (1, 3)]

    assert first == ([(2, 12), (3, 1)] if selectable else [(2, 12), (3, 12)])
    assert [many[0].ids, many[2].ids] == [each.ids for each in alone]


def test_rows_stay_with_their_state_in_a_model_that_has_both_a_state_and_attention() -> None:
    import transformers

    state = {"mamba_d_ssm": 16, "mamba_n_heads": 2, "mamba_d_head": 8, "mamba_d_state": 4}
    size = {"vocab_size": 60, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8}
    ends: dict[str, Any] = {"eos_token_id": None, "bos_token_id": None, "pad_token_id": 0}
    config = transformers.FalconH1Config(
        mamba_n_groups=1,
        mamba_chunk_size=8,
        initializer_range=0.5,
        **size,
        **heads,
        **state,
        **ends,
    )
    local = LocalModel(transformers.FalconH1ForCausalLM(config).eval(), None, threads=1)
    prompts = [[5, 9, 14, 3], [7, 1, 2, 3], [5, 9, 14, 3]]
    samplings = [Sampling(max_tokens=count, stop_ids=(NEVER,)) for count in (2, 2, 6)]

    together = local.generate(prompts, samplings, seeds=[1, 2, 3])

    for prompt, sampling, seed, each in zip(prompts, samplings, [1, 2, 3], together, strict=True):
        assert local.generate([prompt], sampling, seeds=[seed])[0].ids == each.ids


def test_each_row_has_settings_of_its_own() -> None:
    short, long = Sampling(max_tokens=3), Sampling(max_tokens=9, stop_ids=(NEVER,))

    made = shared().generate(PROMPTS[:2], [short, long], seeds=[1, 1])

    assert len(made[0].ids) <= 3
    assert len(made[1].ids) == 9
    assert made[1].finish_reason == "length"


def test_another_seed_samples_something_else_and_the_same_one_the_same() -> None:
    sampling = Sampling(max_tokens=16)

    made = shared().generate([PROMPTS[0]] * 3, sampling, seeds=[1, 2, 1])

    assert made[0].ids == made[2].ids != made[1].ids


def test_without_a_seed_no_two_are_alike_and_torch_keeps_its_own_dice() -> None:
    import torch

    before = torch.random.get_rng_state()
    made = shared().generate([PROMPTS[0]] * 2, Sampling(max_tokens=16), seeds=[None, None])

    assert made[0].ids != made[1].ids
    assert torch.equal(torch.random.get_rng_state(), before)


def test_temperature_0_is_greedy_with_the_logprobs_of_the_model_itself() -> None:
    greedy = Sampling(temperature=0.0, max_tokens=8, top_k=1, top_p=0.1)

    (made,) = shared().generate([PROMPTS[0]], greedy, seeds=[None])

    assert made == shared().generate([PROMPTS[0]], greedy, seeds=[3])[0]
    plain = recomputed(shared(), PROMPTS[0], made.ids, Sampling())
    assert made.logprobs == pytest.approx(plain, abs=1e-4)
    assert max(made.logprobs) < 0


def test_a_stop_token_ends_the_completion_and_is_its_last_id() -> None:
    (free,) = shared().generate([PROMPTS[0]], Sampling(max_tokens=12, stop_ids=(NEVER,)), seeds=[1])
    stop = free.ids[4]
    where = free.ids.index(stop)

    (made,) = shared().generate([PROMPTS[0]], Sampling(max_tokens=12, stop_ids=(stop,)), seeds=[1])

    assert made.ids == free.ids[: where + 1]
    assert len(made.logprobs) == len(made.ids)
    assert made.finish_reason == "stop"
    assert free.finish_reason == "length"


def test_a_stop_token_as_the_last_one_allowed_is_a_stop() -> None:
    (free,) = shared().generate([PROMPTS[0]], Sampling(max_tokens=1, stop_ids=(NEVER,)), seeds=[1])

    (made,) = shared().generate([PROMPTS[0]], Sampling(max_tokens=1, stop_ids=free.ids), seeds=[1])

    assert made.finish_reason == "stop"


def test_the_caller_may_end_a_row_by_what_was_sampled_for_it() -> None:
    def third(row: int, ids: Sequence[int]) -> bool:
        return row == 1 and len(ids) == 3

    made = shared().generate(
        PROMPTS, Sampling(max_tokens=8, stop_ids=(NEVER,)), seeds=[1] * 4, should_stop=third
    )

    assert [len(each.ids) for each in made] == [8, 3, 8, 8]
    assert [each.finish_reason for each in made] == ["length", "stop", "length", "length"]


def test_rows_that_are_done_leave_the_batch_and_the_others_go_on_as_before() -> None:
    lengths = [2, 30, 5, 1]
    samplings = [Sampling(max_tokens=length, stop_ids=(NEVER,)) for length in lengths]

    made = shared().generate(PROMPTS, samplings, seeds=[1, 2, 3, 4])

    assert [len(each.ids) for each in made] == lengths
    again = recomputed(shared(), PROMPTS[1], made[1].ids, samplings[1])
    assert made[1].logprobs == pytest.approx(again, abs=1e-4)


def test_filters_keep_what_they_say_and_the_most_likely_token_always() -> None:
    import torch

    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0]]).repeat(4, 1)
    settings = [
        Sampling(top_k=2),
        Sampling(top_p=0.5),
        Sampling(top_p=1e-9),
        Sampling(temperature=0.0, top_k=1),
    ]

    kept = filter_logits(logits, settings).isfinite().sum(-1).tolist()

    assert kept == [2, 1, 1, 4]


def test_sampling_follows_the_probabilities() -> None:
    """A share of 1000 draws: its standard error is 0.016 at most."""
    local, prompt = shared(), PROMPTS[0]
    sampling = Sampling(max_tokens=1, temperature=0.5, stop_ids=(NEVER,))
    made = local.generate([prompt] * 1000, sampling, seeds=range(1000))

    drawn: dict[int, int] = {}
    for each in made:
        drawn[each.ids[0]] = drawn.get(each.ids[0], 0) + 1
    likely = sorted(drawn, key=lambda token: -drawn[token])[:5]

    for token in likely:
        (logprob,) = recomputed(local, prompt, [token], sampling)
        assert drawn[token] / 1000 == pytest.approx(2.718281828**logprob, abs=0.08)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"temperature": -0.1}, "temperature=-0.1"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"top_p": 0.0}, "top_p=0.0"),
        ({"top_p": 1.1}, "top_p=1.1"),
        ({"top_k": -1}, "top_k=-1"),
        ({"top_k": 2.5}, "top_k=2.5"),
        ({"max_tokens": 0}, "max_tokens=0"),
    ],
)
def test_sampling_that_means_nothing_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Sampling(**wrong)


def test_a_model_that_gives_no_numbers_is_an_error_not_a_token() -> None:
    broken = tiny_local("llama3")
    broken.model.lm_head.weight.data.fill_(float("nan"))

    with pytest.raises(EndpointError, match="logits that are not finite"):
        broken.generate([[1, 2]], Sampling(), seeds=[0])


def test_a_model_without_keys_and_values_samples_by_passes_over_the_whole_text() -> None:
    import torch
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(
        vocab_size=50, hidden_size=16, state_size=4, num_hidden_layers=1, eos_token_id=0
    )
    torch.manual_seed(0)
    local = LocalModel(MambaForCausalLM(config), shared().tokenizer, threads=1)
    prompts = [*PROMPTS, PROMPTS[0]]
    sampling = [Sampling(max_tokens=count, stop_ids=(NEVER,)) for count in (6, 2, 4, 1, 3)]

    made = local.generate(prompts, sampling, seeds=[1, 2, 3, 4, 1])

    assert [len(each.ids) for each in made] == [6, 2, 4, 1, 3]
    assert made[4].ids == made[0].ids[:3]
    for prompt, each, how in zip(prompts, made, sampling, strict=True):
        assert each.logprobs == pytest.approx(recomputed(local, prompt, each.ids, how), abs=1e-5)
