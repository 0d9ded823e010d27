"""A model made on the spot: what its tokens are, and that a folder of it is the same model."""

import asyncio
import sys
from pathlib import Path

import pytest

from assay.environments import BasicEnvironment
from assay.errors import ConfigError, MissingExtra
from assay.providers.in_process import LocalModel
from assay.train import agent_rollout_to_sample, retokenize_sample
from assay.train.toy_model import character_model
from assay.types import Endpoint, Message, Sample
from make import asked, said, sample


def small(characters: str = "01+=", *, seed: int = 0) -> LocalModel:
    return character_model(characters, seed=seed, hidden=16, layers=1)


def weights(model: LocalModel) -> dict[str, list[float]]:
    return {name: each.tolist() for name, each in model.model.state_dict().items()}


def test_it_has_about_a_million_parameters() -> None:
    model = character_model("0123456789+=")

    assert sum(each.numel() for each in model.model.parameters()) == pytest.approx(1e6, rel=0.1)


def test_each_character_is_a_token() -> None:
    tokenizer = small().tokenizer

    assert tokenizer.encode("10+1=") == [1, 0, 2, 1, 3]
    assert tokenizer.decode([1, 0, 2]) == "10+"


def test_a_character_that_it_does_not_know_is_none_of_those_it_knows() -> None:
    tokenizer = small().tokenizer

    (unknown,) = tokenizer.encode("x")
    assert unknown not in tokenizer.encode("01+=")
    assert tokenizer.decode([unknown]) == "<unknown>"


def test_a_demonstration_is_learned_from_its_answer_to_its_end() -> None:
    tokenizer = small().tokenizer
    shown = sample(asked("1+1="), said("10"))

    (made,) = retokenize_sample(shown, tokenizer)

    learned = [token for token, counts in zip(made.tokens, made.loss_mask, strict=True) if counts]
    assert tokenizer.decode(made.tokens) == "1+1=10<end>"
    assert tokenizer.decode(learned) == "10<end>"


def test_the_seed_decides_the_weights_and_nothing_else_does() -> None:
    import torch

    first = weights(small(seed=1))
    torch.manual_seed(99)
    state = torch.get_rng_state()

    assert weights(small(seed=1)) == first
    assert weights(small(seed=2)) != first
    assert torch.equal(torch.get_rng_state(), state)


def test_a_folder_of_it_can_be_asked(tmp_path: Path) -> None:
    model = small()
    model.model.save_pretrained(tmp_path / "model")
    model.tokenizer.save_pretrained(tmp_path / "model")
    endpoint = Endpoint(
        provider="local", model=str(tmp_path / "model"), temperature=0.0, max_tokens=3
    )
    question = [Message(role="user", content="1+1=")]

    found: Sample = asyncio.run(agent_rollout_to_sample(question, BasicEnvironment, endpoint))

    assert found.tokens[:4] == model.tokenizer.encode("1+1=")
    assert sum(found.loss_mask) == len(found.tokens) - 4 > 0


@pytest.mark.parametrize("characters", ["", "00"])
def test_characters_that_are_no_set_are_refused(characters: str) -> None:
    with pytest.raises(ConfigError, match="not a set of different characters"):
        character_model(characters)


@pytest.mark.parametrize("hidden", [0, 12, -8])
def test_a_width_that_its_heads_cannot_share_is_refused(hidden: int) -> None:
    with pytest.raises(ConfigError, match="not a multiple of 8"):
        character_model("01", hidden=hidden)


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)

    with pytest.raises(MissingExtra, match=r"assay-eval\[train\]"):
        character_model("01")
