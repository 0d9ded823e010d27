"""Models whose every word is one token: a random one already says what a test is about."""

from collections.abc import Sequence
from typing import Any

from assay.providers.in_process import LocalModel

END = "<end>"
_ROLES = ("<system>", "<user>", "<assistant>", "<tool>", END)
_TEMPLATE = (
    "{% if tools %}<system>tools{% for tool in tools %} {{ tool.function.name }}{% endfor %}"
    "<end>{% endif %}"
    "{% for message in messages %}{{ '<' + message.role + '>' }}{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}"
    "{{ '<tool_call>' + ({'name': call.function.name, 'arguments': call.function.arguments}"
    " | tojson) + '</tool_call>' }}{% endfor %}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def calling(name: str, **arguments: str) -> str:
    """The word that calls a tool, as the template writes the call."""
    pairs = ", ".join(f'"{key}": "{value}"' for key, value in arguments.items())
    return f'<tool_call>{{"name": "{name}", "arguments": {{{pairs}}}}}</tool_call>'


def word_tokenizer(words: Sequence[str]) -> Any:
    """One token for each word, one for each letter, and those of the roles."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = [chr(code) for code in range(32, 127)]
    tokenizer = Tokenizer(
        models.WordLevel({letter: n for n, letter in enumerate(letters)}, unk_token="?")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(role, special=True) for role in _ROLES])
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in words])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=END,
        chat_template=_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def word_model(words: Sequence[str], *, seed: int = 0, bias: float = 0.0) -> LocalModel:
    """A fresh random model. With `bias` the words and the end are that much likelier in logits."""
    import torch
    import transformers

    tokenizer = word_tokenizer(words)
    config = transformers.Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.Qwen2ForCausalLM(config)
        model.lm_head = torch.nn.Linear(config.hidden_size, len(tokenizer))
        torch.nn.init.normal_(model.lm_head.weight, std=0.02)
        favoured = tokenizer.convert_tokens_to_ids([*words, END])
        with torch.no_grad():
            model.lm_head.bias.zero_()
            model.lm_head.bias[favoured] = bias
    return LocalModel(model, tokenizer, threads=1)
