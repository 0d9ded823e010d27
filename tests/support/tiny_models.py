"""Models of a few ten thousand random weights, with the chat templates of real families."""

from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from assay.providers.in_process import LocalModel

Family = Literal["qwen2.5", "qwen3", "llama3", "mistral", "smollm2", "plain"]
FAMILIES: tuple[Family, ...] = ("qwen2.5", "qwen3", "llama3", "mistral", "smollm2", "plain")

_SHIPPED = {"qwen2.5": "qwen2_5", "qwen3": "qwen3", "llama3": "llama3_1"}
"""Templates that TRL carries: read from the installed package."""

_CHATML = (
    "{% for message in messages %}"
    "{% if loop.first and messages[0].role != 'system' %}"
    "{{ '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}{% endif %}"
    "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_MISTRAL = """
{{- bos_token }}
{%- for message in messages %}
    {%- if message.role == "user" %}
        {%- if tools and loop.last %}
            {{- "[AVAILABLE_TOOLS][" }}
            {%- for tool in tools %}
                {{- tool | tojson }}{{- "" if loop.last else ", " }}
            {%- endfor %}
            {{- "][/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {{- "[INST]" + message.content + "[/INST]" }}
    {%- elif message.tool_calls %}
        {{- "[TOOL_CALLS][" }}
        {%- for call in message.tool_calls %}
            {{- {"name": call.function.name, "arguments": call.function.arguments} | tojson }}
            {{- "" if loop.last else ", " }}
        {%- endfor %}
        {{- "]" + eos_token }}
    {%- elif message.role == "assistant" %}
        {{- message.content + eos_token }}
    {%- elif message.role == "tool" %}
        {{- '[TOOL_RESULTS]{"content": ' + (message.content | tojson) + "}[/TOOL_RESULTS]" }}
    {%- else %}
        {{- raise_exception("only user, assistant and tool roles are supported") }}
    {%- endif %}
{%- endfor %}
"""
_PLAIN = (
    "{% for message in messages %}{{ message.role + ': ' + message.content }}"
    "{{ eos_token if message.role == 'assistant' else '' }}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
_OWN = {"mistral": _MISTRAL, "smollm2": _CHATML, "plain": _PLAIN}

_CHATML_TOKENS = ("<|im_end|>", "<|im_start|>", "<|endoftext|>")
_SPECIAL: dict[str, tuple[str, ...]] = {
    "qwen2.5": _CHATML_TOKENS,
    "qwen3": _CHATML_TOKENS,
    "smollm2": _CHATML_TOKENS,
    "llama3": (
        "<|eot_id|>",
        "<|begin_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|python_tag|>",
    ),
    "mistral": (
        "</s>",
        "<s>",
        "[INST]",
        "[/INST]",
        "[TOOL_CALLS]",
        "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]",
        "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]",
    ),
    "plain": ("<end>",),
}
"""Of each family, the end of a turn first."""

_ADDED = ("<tool_call>", "</tool_call>", "<think>", "</think>")
"""Tokens of their own in Qwen's tokenizers, though not special: text keeps them."""

_WORDS = "the and assistant user system tool name arguments function answer what hello call".split()


def chat_template(family: Family) -> str:
    """The text of a family's chat template."""
    if family in _OWN:
        return _OWN[family]
    found = find_spec("trl")
    assert found is not None
    assert found.origin is not None
    folder = Path(found.origin).parent / "chat_templates"
    return (folder / f"{_SHIPPED[family]}.jinja").read_text("utf-8")


@cache
def tiny_tokenizer(family: Family = "qwen2.5") -> Any:
    """Bytes, a few merged words, and the special tokens of a family."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = list(dict.fromkeys(pair for word in _WORDS for pair in _merges(word)))
    words = [*alphabet, *dict.fromkeys(left + right for left, right in merges)]
    vocabulary = {token: number for number, token in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = _SPECIAL[family]
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    tokenizer.add_tokens([AddedToken(token, special=False) for token in _ADDED])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=special[0],
        bos_token=special[1] if family in ("llama3", "mistral") else None,
        pad_token=special[-1],
        additional_special_tokens=list(special),
        chat_template=chat_template(family),
        clean_up_tokenization_spaces=False,
    )


def _merges(word: str) -> Iterator[tuple[str, str]]:
    """The merges that make one token of a word, with and without the space before it."""
    for text in (word, "Ġ" + word):
        for end in range(1, len(text)):
            yield text[:end], text[end]


def tiny_weights(family: Family = "qwen2.5", *, seed: int = 0, context: int = 2048) -> Any:
    """A model of the family's architecture. Fresh each time: a test may train it."""
    import torch
    import transformers

    tokenizer = tiny_tokenizer(family)
    settings: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": context,
        "initializer_range": 0.25,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "tie_word_embeddings": False,
    }
    if family.startswith("qwen2"):
        config: Any = transformers.Qwen2Config(**settings)
    elif family == "qwen3":
        config = transformers.Qwen3Config(head_dim=8, **settings)
    elif family == "mistral":
        config = transformers.MistralConfig(sliding_window=None, **settings)
    else:
        config = transformers.LlamaConfig(**settings)
    # Two threads cost many times the CPU of one for models as small as this.
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return transformers.AutoModelForCausalLM.from_config(config)


def tiny_local(family: Family = "qwen2.5", *, seed: int = 0, context: int = 2048) -> LocalModel:
    """Tokenizer and fresh weights, in memory only."""
    weights = tiny_weights(family, seed=seed, context=context)
    return LocalModel(weights, tiny_tokenizer(family), threads=1)


def tiny_model(folder: Path, family: Family = "qwen2.5", *, seed: int = 0) -> Path:
    """The same as a Hugging Face folder inside `folder`."""
    from transformers.utils import logging

    path = folder / f"tiny-{family}"
    logging.disable_progress_bar()
    tiny_weights(family, seed=seed).save_pretrained(path)
    tiny_tokenizer(family).save_pretrained(path)
    logging.enable_progress_bar()
    return path
