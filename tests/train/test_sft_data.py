"""What samples become to be learned from, and how what is left out is accounted for."""

import copy
import json
from array import array
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.datasets import load_samples
from assay.errors import ConfigError, TokenError
from assay.train import SFTConfig
from assay.train.sft_data import (
    Example,
    Examples,
    compute_masked_loss,
    compute_summed_loss,
    iterate_batches,
    iterate_epoch_batches,
    pack_examples,
    read_examples,
    read_template,
    replace_template,
)
from assay.train.token_spans import tokenize_sample
from assay.types import (
    Boundary,
    EvaluateResult,
    Failure,
    ModelCall,
    Sample,
    Status,
    Trajectory,
)
from make import asked, called, said, sample
from mask_rollouts import CHATS, scripted_rollout, weights_of
from tiny_models import chat_template, tiny_tokenizer, tiny_weights

VOCABULARY = 600


def read(*samples: Any, **settings: Any) -> Examples:
    config = SFTConfig(model_name="model", **settings)
    return read_examples(
        load_samples(list(samples)), config, tiny_tokenizer(), vocabulary=VOCABULARY
    )


def learned(example: Example) -> str:
    pairs = zip(example.tokens, example.mask, strict=True)
    return str(tiny_tokenizer().decode([token for token, counts in pairs if counts]))


def row(question: str, answer: str) -> dict[str, Any]:
    turns = [("user", question), ("assistant", answer)]
    return {"messages": [{"role": role, "content": text} for role, text in turns]}


def recorded(prompt: tuple[int, ...], completion: tuple[int, ...], **fields: Any) -> Sample:
    made = sample(asked("?"), said("!"), **fields)
    assert made.trajectory is not None
    made.trajectory.calls = [ModelCall(prompt_ids=prompt, completion_ids=completion)]
    return made


def test_conversations_are_learned_as_text() -> None:
    found = read(row("one?", "the answer"))

    assert [learned(example) for example in found.train] == ["the answer<|im_end|>"]
    assert found.retokenized == 1


def test_recorded_tokens_are_learned_as_they_are() -> None:
    found = read(recorded((1, 2), (3, 4)))

    (example,) = found.train
    assert example.tokens.tolist() == [1, 2, 3, 4]
    assert example.mask == bytes([0, 0, 1, 1])
    assert example.trained == 2
    assert found.retokenized == 0


def test_tokens_of_a_sample_are_taken_as_they_are() -> None:
    found = read(Sample(prompt="?", tokens=[5, 6, 7], loss_mask=[0, 1, 0]))

    assert found.train[0].mask == bytes([0, 1, 0])


def test_the_words_of_another_model_are_learned_where_text_is_asked_for() -> None:
    found = read(recorded((1, 2), (3, 4)), tokens="text")

    assert [learned(example) for example in found.train] == ["!<|im_end|>"]


def test_a_rollout_of_several_samples_is_several_sequences() -> None:
    forked = recorded((1, 2), (3,))
    assert forked.trajectory is not None
    forked.trajectory.calls.append(ModelCall(prompt_ids=(9, 8), completion_ids=(7,)))

    found = read(forked)

    assert [example.tokens.tolist() for example in found.train] == [[1, 2, 3], [9, 8, 7]]
    assert found.samples == 1


def test_rollouts_of_one_sample_are_all_learned() -> None:
    found = read(*(recorded((1, 2), (3 + n,), id="same", rollout_id=f"{n}") for n in range(2)))

    assert len(found.train) == 2


def test_a_file_of_samples_gives_what_the_samples_give(tmp_path: Path) -> None:
    samples = [recorded((1, 2), (3, 4), id="a"), sample(asked("one?"), said("two"), id="b")]
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(each.to_json() + "\n" for each in samples))
    config = SFTConfig(model_name="model")

    from_file = read_examples(load_samples(path), config, tiny_tokenizer(), vocabulary=VOCABULARY)

    assert from_file.train == read(*samples).train


def test_tools_of_a_row_are_described_to_the_model() -> None:
    talk = [asked("sum"), said(None, called("calc", a=1)), said("done")]
    messages = [message.to_dict() for message in talk]
    tools = [{"type": "function", "function": {"name": "calc", "description": "adds"}}]

    told = read({"messages": messages, "tools": tools})
    untold = read({"messages": messages})

    assert "adds" in tiny_tokenizer().decode(list(told.train[0].tokens))
    assert [told.untold, untold.untold] == [0, 1]


BROKEN = Failure(boundary=Boundary.ENDPOINT, kind="EndpointError", message="overloaded")
LEFT_OUT: dict[str, tuple[Any, dict[str, Any]]] = {
    "failed": (recorded((1,), (2,), failure=BROKEN), {}),
    "labelled as bad": ({"prompt": "?", "completion": "no", "label": False}, {}),
    "without a score": (recorded((1,), (2,)), {"min_score": 0.5}),
    "below min_score": (recorded((1,), (2,), score=EvaluateResult(score=0.4)), {"min_score": 0.5}),
    "longer than max_length": (recorded((1,) * 500, (2,)), {"max_length": 300}),
    "without a token that counts": (recorded((1,), ()), {}),
    "without usable tokens": (Sample(prompt="?"), {"skip_unusable": True}),
}


@pytest.mark.parametrize("reason", LEFT_OUT)
def test_what_is_left_out_is_counted_by_reason(reason: str) -> None:
    bad, settings = LEFT_OUT[reason]
    good = recorded((1, 2), (3, 4), score=EvaluateResult(score=1.0), id="good")

    found = read(good, bad, **settings)

    assert found.left_out == {reason: 1}
    assert [found.samples, len(found.train)] == [2, 1]


def test_a_rounded_mean_reaches_min_score() -> None:
    votes = EvaluateResult(score=sum([0.7] * 3) / 3)

    assert read(recorded((1,), (2,), score=votes), min_score=0.7).left_out == {}


def test_an_aborted_sample_is_left_out() -> None:
    found = read(recorded((1,), (2,), status=Status.ABORTED), recorded((1,), (3,), id="good"))

    assert found.left_out == {"failed": 1}


def test_rows_that_cannot_be_read_are_counted_too() -> None:
    rows = load_samples([row("one?", "two"), {"unheard": 1}], on_bad_row="skip")
    config = SFTConfig(model_name="model")

    found = read_examples(rows, config, tiny_tokenizer(), vocabulary=VOCABULARY)

    assert found.left_out == {"row that cannot be read": 1}


def test_a_sample_without_usable_tokens_is_refused_unless_told_otherwise() -> None:
    with pytest.raises(TokenError, match="nothing to learn"):
        read(Sample(prompt="?"))


def test_tokens_that_the_model_does_not_know_are_refused() -> None:
    with pytest.raises(
        TokenError,
        match="the sample has the token id 600, and the model's vocabulary has 600 tokens",
    ):
        read(recorded((1,), (600,)))


def test_nothing_to_learn_from_is_a_wrong_request_that_says_why() -> None:
    with pytest.raises(ConfigError, match="of 1 samples, none is left") as caught:
        read(recorded((1,), (2,), failure=BROKEN))

    assert caught.value.hint == "left out: 1 failed"


def test_no_prompt_is_both_learned_and_measured() -> None:
    rows = [recorded((1, 2), (3 + n,), id=f"{n}") for n in range(6)]
    for place, each in enumerate(rows):
        each.prompt = [asked(f"question {place // 2}")]

    found = read(*rows, held_out=0.3)

    assert [len(found.train), len(found.held_out)] == [4, 2]
    assert {each.prompt for each in found.train}.isdisjoint(each.prompt for each in found.held_out)


def test_the_split_follows_the_seed_and_not_the_order() -> None:
    rows = [row(f"question {n}", "answer") for n in range(20)]

    def held(rows: list[dict[str, Any]], seed: int) -> set[str]:
        return {example.prompt for example in read(*rows, held_out=0.2, seed=seed).held_out}

    assert held(rows, 0) == held(rows[::-1], 0)
    assert held(rows, 0) != held(rows, 1)


def test_a_split_that_leaves_nothing_to_learn_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"held_out=0.5 leaves none of 1 prompts"):
        read(row("one?", "two"), held_out=0.5)


def test_other_tokens_are_other_data() -> None:
    one, same, other = (read(recorded((1, 2), (3, last))) for last in (4, 4, 5))

    assert one.fingerprint() == same.fingerprint() != other.fingerprint()


def test_a_template_of_a_file_is_used_and_leaves_the_tokenizer_alone(tmp_path: Path) -> None:
    tokenizer = copy.deepcopy(tiny_tokenizer())
    path = tmp_path / "template.jinja"
    path.write_text(chat_template("smollm2"))

    other = replace_template(tokenizer, read_template(path))

    assert other.chat_template == chat_template("smollm2")
    assert tokenizer.chat_template == chat_template("qwen2.5")
    assert replace_template(tokenizer, read_template(None)) is tokenizer


def test_a_template_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the chat template cannot be read"):
        read_template(tmp_path / "none.jinja")


def test_bad_tools_are_named() -> None:
    with pytest.raises(TokenError, match=r"input.tools"):
        read({**row("one?", "two"), "tools": json.dumps([3])})


def test_a_trajectory_with_failed_calls_only_is_learned_as_text() -> None:
    talk = Trajectory(messages=[asked("one?"), said("two")], calls=[ModelCall()])

    found = read(Sample(prompt="one?", trajectory=talk))

    assert [learned(example) for example in found.train] == ["two<|im_end|>"]


torch.set_num_threads(1)


def example(size: int, *, trained: int = 1, first: int = 5) -> Example:
    mask = bytes([0] * (size - trained) + [1] * trained)
    return Example(array("i", range(first, first + size)), mask, f"prompt of {size}")


def sizes(batch: list[Example]) -> list[int]:
    return [len(each.tokens) for each in batch]


def test_an_epoch_has_every_example_once_within_the_tokens_of_an_update() -> None:
    examples = [example(size) for size in range(2, 20)]

    found = list(iterate_epoch_batches(examples, seed=0, epoch=0, tokens=30))

    assert sorted(size for batch in found for size in sizes(batch)) == list(range(2, 20))
    assert all(sum(sizes(batch)) <= 30 for batch in found)
    assert len(found) < len(examples)


def test_an_example_that_is_too_long_for_an_update_is_one_alone() -> None:
    found = list(iterate_epoch_batches([example(50), example(3)], seed=0, epoch=0, tokens=10))

    assert sorted(map(sizes, found)) == [[3], [50]]


def test_the_order_follows_the_seed_and_changes_with_the_epoch() -> None:
    examples = [example(size) for size in range(2, 20)]

    def order(seed: int, count: int) -> list[list[int]]:
        return [
            sizes(batch)
            for batch in islice(iterate_batches(examples, seed=seed, tokens=9**9), count)
        ]

    first, second = order(0, 2)
    assert first != second
    assert order(0, 2) == [first, second]
    assert order(1, 1) != [first]


def test_a_batch_is_cut_into_passes_with_their_padding() -> None:
    found = pack_examples([example(size) for size in (3, 9, 4, 10)], 20)

    assert [sizes(some) for some in found] == [[10, 9], [4, 3]]
    assert [sizes(some) for some in pack_examples([example(30), example(30)], 20)] == [[30], [30]]


def test_the_loss_is_that_of_the_tokens_that_count_however_they_are_padded() -> None:
    model = tiny_weights().eval()
    short, long = example(6, trained=2), example(11, trained=4, first=30)

    with torch.no_grad():
        apart = sum(float(compute_summed_loss(model, [each], "cpu")) for each in (short, long))
        together = float(compute_summed_loss(model, [long, short], "cpu"))
        expected = 0.0
        for each in (short, long):
            logits = model(input_ids=torch.tensor([list(each.tokens)])).logits[0].log_softmax(-1)
            for place, counts in enumerate(each.mask):
                if counts:
                    expected -= float(logits[place - 1, each.tokens[place]])

    assert together == pytest.approx(apart, abs=1e-4)
    assert together == pytest.approx(expected, abs=1e-4)


Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def with_gradient(loss: Loss, ids: list[int], mask: list[float]) -> set[int]:
    """The tokens whose logits have a gradient, where each stands."""
    logits = torch.randn(1, len(ids), 600, requires_grad=True)
    loss(logits, torch.tensor([ids]), torch.tensor([mask])).backward()
    assert logits.grad is not None
    # The logits that predict a token stand one place before it.
    return {place + 1 for place in logits.grad[0].abs().sum(-1).nonzero()[:, 0].tolist()}


@pytest.mark.parametrize("name", CHATS)
def test_only_tokens_that_count_have_a_gradient(name: str) -> None:
    for part in tokenize_sample(scripted_rollout(name)):
        counted = {place for place, value in enumerate(part.loss_mask) if value}

        assert with_gradient(compute_masked_loss, part.tokens, part.loss_mask) == counted


def not_shifted(logits: Any, ids: Any, mask: Any) -> Any:
    counts = mask.bool()
    return torch.nn.functional.cross_entropy(logits[counts], ids[counts])


def everywhere(logits: Any, ids: Any, mask: Any) -> Any:
    return compute_masked_loss(logits, ids, torch.ones_like(mask))


def with_entropy(logits: Any, ids: Any, mask: Any) -> Any:
    return compute_masked_loss(logits, ids, mask) + 0.01 * logits.softmax(-1).pow(2).mean()


@pytest.mark.parametrize("faulty", [not_shifted, everywhere, with_entropy])
def test_a_loss_that_reaches_other_tokens_is_flagged(faulty: Loss) -> None:
    (sample,) = tokenize_sample(scripted_rollout("qwen2.5"))
    counted = {place for place, value in enumerate(sample.loss_mask) if value}

    assert with_gradient(faulty, sample.tokens, sample.loss_mask) != counted


def test_logits_of_the_model_have_no_gradient_off_the_mask() -> None:
    """The same through a model: its output is what the loss reaches."""
    model, size = weights_of("qwen2.5"), 9
    kept: list[Any] = []

    def watched(**inputs: Any) -> Any:
        out = model(**inputs)
        out.logits.requires_grad_(True)
        kept.append(out.logits)
        return out

    compute_summed_loss(watched, [example(size, trained=2)], "cpu").backward()

    (logits,) = kept
    assert logits.shape[1] == 3, "logits are made of the end alone"
    assert (logits.grad[0].abs().sum(-1) > 0).tolist() == [True, True, False]
