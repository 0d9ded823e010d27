"""Train a clerk to look an order up before it says where it is: two turns, one tool.

The model is small enough for one core: its every word is one token. It first sees demonstrations
of which half are wrong, and then learns from the score of its own rollouts, which is also the
score it is evaluated with.

    assay train grpo examples/train/order_desk.py
    python examples/train/order_desk.py --picture reward.svg
"""

import argparse
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.agents import Limits
from assay.environments import ToolEnvironment, tool
from assay.providers import LocalModel
from assay.train import (
    GRPOConfig,
    GRPOResult,
    SFTConfig,
    TrainingSession,
    grpo_train,
    sft_train,
)
from assay.types import EvaluateResult, Sample

PLACES = ("dock", "shelf", "truck", "gate", "office")
ORDERS = "0123456789"
CALL = '<tool_call>{"name": "lookup", "arguments": {"order": "'
CALLED = '"}}</tool_call>'
TEMPLATE = """
{%- if tools %}{{ '<|system|>tools: ' + tools[0].function.name + '<|end|>' }}{% endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' %}{{ '<|assistant|>' }}
{%- generation %}{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}{{ '<tool_call>' + ({'name': call.function.name,
'arguments': call.function.arguments} | tojson) + '</tool_call>' }}{% endfor %}{{ '<|end|>' }}
{%- endgeneration %}
{%- else %}{{ '<|' + message.role + '|>' + message.content + '<|end|>' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""


class OrderDesk(ToolEnvironment):
    """Only this desk knows where its orders are: each sample has another arrangement."""

    def __init__(self, sample: Sample) -> None:
        super().__init__()
        self._places = sample["places"]

    @tool
    def lookup(self, order: str) -> str:
        """Find an order.

        Args:
            order: The number of the order.
        """
        return str(self._places.get(order, "unknown"))


TOOLS = [spec.model_dump() for spec in OrderDesk(Sample(input={"places": {}})).tools]


def score_fn(sample: Sample) -> EvaluateResult:
    """1.0 for the right place; guessing it right without looking it up does not count."""
    looked = [call.arguments.get("order") for each in sample.messages for call in each.tool_calls]
    if sample["order"] not in looked:
        return EvaluateResult(score=0.0, reason=f"looked up {looked or 'nothing'}")
    right = sample.response.strip() == sample.ground_truth
    return EvaluateResult(score=float(right), reason=f"said {sample.response!r}")


def desk(number: int) -> dict[str, Any]:
    """A prompt: a question, and the arrangement that the environment knows."""
    chance = random.Random(f"desk {number}")
    places = {order: chance.choice(PLACES) for order in ORDERS}
    order = chance.choice(ORDERS)
    asked = {"role": "user", "content": f"where is order {order}"}
    return {
        "id": f"desk-{number}",
        "messages": [asked],
        "answer": places[order],
        "order": order,
        "places": places,
    }


def demonstrations(count: int) -> Iterator[dict[str, Any]]:
    """Conversations of clerks: half of them look up what they were asked for and say it."""
    chance = random.Random("demonstrations")
    for number in range(count):
        row = desk(10_000 + number)
        order, places = row["order"], row["places"]
        mistake = chance.random()
        if mistake < 0.25:
            guess = _says(chance.choice(PLACES))
            yield {**row, "messages": [*row["messages"], guess], "tools": TOOLS}
            continue
        if mistake < 0.5:
            order = chance.choice(ORDERS)
        call = {"name": "lookup", "arguments": {"order": order}}
        yield {
            **row,
            "messages": [
                *row["messages"],
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": places[order]},
                _says(places[order]),
            ],
            "tools": TOOLS,
        }


def _says(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def untrained(seed: int = 0) -> LocalModel:
    """Some hundred thousand random weights and a tokenizer of whole words."""
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = {chr(code): code - 32 for code in range(32, 127)}
    words = Tokenizer(models.WordLevel(letters, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    words.decoder = decoders.Fuse()
    roles = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"]
    words.add_special_tokens([AddedToken(role, special=True) for role in roles])
    known = [CALL, CALLED, "where is order ", "tools: lookup", *PLACES]
    words.add_tokens([AddedToken(word, normalized=False) for word in known])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words,
        eos_token="<|end|>",
        pad_token="<|end|>",
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
    torch.manual_seed(seed)
    weights = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=256,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
        )
    )
    return LocalModel(weights, tokenizer)


def model() -> LocalModel:
    """A model that does as the demonstrations do."""
    local = untrained()
    with tempfile.TemporaryDirectory() as folder:
        sft = SFTConfig(
            model_name="order-desk",
            output=Path(folder) / "sft",
            num_steps=150,
            batch_tokens=2048,
            learning_rate=3e-3,
        )
        sft_train(sft, list(demonstrations(800)), model=local)
    return local


config = GRPOConfig(
    model_name="order-desk",
    output=Path("order-desk"),
    name="order desk",
    num_steps=80,
    prompts_per_step=16,
    group_size=8,
    max_tokens=6,
    limits=Limits(max_turns=3),
    learning_rate=3e-4,
    beta=0.01,
)
prompts = [desk(number) for number in range(200)]
environment = OrderDesk


def main() -> None:
    """Train once and copy the reward curve to where it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=config.num_steps)
    parser.add_argument("--picture", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = config.model_copy(update={"num_steps": args.steps, "output": Path(folder) / "o"})
        session = TrainingSession(store=Path(folder) / "store.db")
        result = grpo_train(
            settings, prompts, score_fn, environment, model=model(), session=session
        )
        report(result)
        if args.picture is not None:
            args.picture.write_bytes(result.curve_path.read_bytes())


def report(result: GRPOResult) -> None:
    """A line for each tenth of the steps."""
    for step in result.steps[:: max(1, len(result.steps) // 10)]:
        print(f"step {step.step:3}: reward {step.reward:.3f}, turns {step.turns:.2f}")
    print(f"step {result.steps[-1].step:3}: reward {result.steps[-1].reward:.3f}")


if __name__ == "__main__":
    main()
