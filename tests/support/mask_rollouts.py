"""Rollouts of a tiny model with frozen weights, in several chat formats, to hold masks against."""

import asyncio
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from assay.agents import Limits, run_agent
from assay.environments import CalculatorEnvironment, Environment, Step
from assay.providers.in_process import Generated, LocalClient, LocalModel, Sampling
from assay.types import Endpoint, Message, Sample
from make import asked, said
from tiny_models import Family, tiny_tokenizer, tiny_weights

TEMPERATURE = 0.7


class TwoQuestions:
    """Asks a second question, whatever the answer to the first."""

    tools = ()

    def __init__(self) -> None:
        self._asked = False

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        return ()

    async def step(self, action: Message) -> Step:
        if self._asked:
            return Step(terminated=True, ended_by_agent=True)
        self._asked = True
        return Step(replies=(asked("and what else?"),))

    async def close(self) -> None:
        return None


_HERMES = '<tool_call>\n{"name": "calculate", "arguments": {"expression": "1 + 1"}}\n</tool_call>'
_LLAMA = '{"name": "calculate", "parameters": {"expression": "1 + 1"}}'
_MISTRAL = '[TOOL_CALLS][{"name": "calculate", "arguments": {"expression": "1 + 1"}}]'
_ANSWER = "hello, the answer is 2"
_THOUGHT = "<think>\nwhat is the answer\n</think>\n\nthe answer"


@dataclass(frozen=True)
class Chat:
    """A chat format, what the model says in it, and what that is answered with."""

    family: Family
    turns: tuple[str, str]
    environment: Callable[[], Environment]
    samples: int
    """How many samples one rollout makes: more than one where the template rewrites history."""

    shipped: str | None = None
    """The name of a template that TRL carries, in the place of the family's own."""


CHATS = {
    "qwen2.5": Chat("qwen2.5", (_HERMES, _ANSWER), CalculatorEnvironment, 1),
    "llama3": Chat("llama3", (_LLAMA, _ANSWER), CalculatorEnvironment, 1),
    "mistral": Chat("mistral", (_MISTRAL, _ANSWER), CalculatorEnvironment, 2),
    "qwen3, with a tool": Chat("qwen3", (_HERMES, _ANSWER), CalculatorEnvironment, 1),
    "qwen3, thinking": Chat("qwen3", (_THOUGHT, _ANSWER), TwoQuestions, 2),
    "phi3": Chat("qwen2.5", (_ANSWER, _ANSWER), TwoQuestions, 2, "phi3"),
    "qwen3.5": Chat("qwen2.5", (_ANSWER, _ANSWER), TwoQuestions, 2, "qwen3_5_think"),
}


def shipped_template(name: str) -> str:
    """A chat template out of the installed TRL."""
    found = find_spec("trl")
    assert found is not None
    assert found.origin is not None
    return (Path(found.origin).parent / "chat_templates" / f"{name}.jinja").read_text("utf-8")


@cache
def tokenizer_of(name: str) -> Any:
    chat = CHATS[name]
    tokenizer = tiny_tokenizer(chat.family)
    if chat.shipped is not None:
        tokenizer = copy.deepcopy(tokenizer)
        tokenizer.chat_template = shipped_template(chat.shipped)
    return tokenizer


@cache
def weights_of(name: str) -> Any:
    weights = tiny_weights(CHATS[name].family).eval()
    return weights.requires_grad_(False)


class Scripted(LocalModel):
    """Says what it is told to, with the logprobs its weights give to that."""

    def __init__(self, model: Any, tokenizer: Any, turns: Sequence[Sequence[int]]) -> None:
        super().__init__(model, tokenizer, threads=1)
        self._script = list(turns)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sequence[Sampling] | Sampling,
        *,
        seeds: Sequence[int | None],
        **options: Any,
    ) -> list[Generated]:
        ids = self._script.pop(0)
        (prompt,) = prompts
        logprobs = recomputed(self.model, [*prompt, *ids], TEMPERATURE)[len(prompt) :]
        return [Generated(tuple(ids), tuple(logprobs), "stop")]


def recomputed(model: Any, tokens: Sequence[int], temperature: float) -> list[float]:
    """The logprob of each token after those before it; 0.0 for the first."""
    import torch

    torch.set_num_threads(1)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([tokens])).logits[0, :-1].float() / temperature
    chosen = torch.tensor(tokens[1:])[:, None]
    known: list[float] = logits.log_softmax(-1).gather(-1, chosen)[:, 0].tolist()
    return [0.0, *known]


def spelled(tokenizer: Any, text: str) -> list[int]:
    """Ids that say `text` one character at a time, as no tokenizer would write them."""
    pieces = [text[:12], *text[12:]] if text.startswith("[TOOL_CALLS]") else list(text)
    return [
        token
        for piece in pieces
        for token in tokenizer(piece, add_special_tokens=False)["input_ids"]
    ]


HISTORY = [asked("hello"), said("hello the user"), asked("what is the answer?")]
"""A prompt that has an answer in it already."""


@cache
def scripted_rollout(name: str) -> Sample:
    """Two turns in ids that no tokenizer would choose, each ended by the stop token."""
    chat, tokenizer = CHATS[name], tokenizer_of(name)
    turns = [[*spelled(tokenizer, text), tokenizer.eos_token_id] for text in chat.turns]
    local = Scripted(weights_of(name), tokenizer, turns)
    return _rolled_out(name, local, chat.environment(), seed=0)


@cache
def sampled_rollout(name: str, seed: int) -> Sample:
    """Two turns of what the weights really sample: mostly nonsense, cut at its length."""
    local = LocalModel(weights_of(name), tokenizer_of(name), threads=1)
    return _rolled_out(name, local, TwoQuestions(), seed=seed)


def _rolled_out(name: str, local: LocalModel, environment: Environment, *, seed: int) -> Sample:
    endpoint = Endpoint(provider="local", model="tiny", temperature=TEMPERATURE, max_tokens=12)
    client, limits = LocalClient(local, endpoint), Limits(max_turns=3)
    rollout = run_agent(client, environment, HISTORY, limits=limits, seed=seed)
    return Sample(prompt=HISTORY, trajectory=asyncio.run(rollout), rollout_id=f"{name}#{seed}")
