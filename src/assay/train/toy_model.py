"""A small character-level model, created without a download."""

from typing import Any

from assay.errors import ConfigError, MissingExtra
from assay.providers import LocalModel

END_TOKEN = "<end>"
_UNKNOWN = "<unknown>"
_HEADS = 4
_CHARACTER_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'assistant' %}"
    "{% generation %}{{ message.content }}" + END_TOKEN + "{% endgeneration %}"
    "{% else %}{{ message.content }}{% endif %}"
    "{% endfor %}"
)


def character_model(
    characters: str, *, seed: int = 0, hidden: int = 128, layers: int = 4, context: int = 64
) -> LocalModel:
    """Return an untrained Llama with one token for each character and one for the end.

    With the default sizes it has about a million parameters: a minute of one core teaches it
    something. Its prompt is the messages' text, one after the other; all other characters are one
    and the same token. The same seed makes the same weights.
    """
    if not characters or len(set(characters)) != len(characters):
        raise ConfigError(
            f"{characters!r} is not a set of different characters", where="character_model()"
        )
    # Rotary embeddings need an even size of each head.
    if hidden < 1 or hidden % (2 * _HEADS):
        raise ConfigError(
            f"hidden={hidden} is not a multiple of {2 * _HEADS}", where="character_model()"
        )
    try:
        import torch
        import transformers
    except ImportError as error:
        raise MissingExtra.build(
            "train", by="character_model()", package=str(error.name)
        ) from error

    tokenizer = _build_tokenizer(characters)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=_HEADS,
        num_key_value_heads=_HEADS,
        max_position_embeddings=context,
        # Larger than the customary 0.02, which is for wide models: this narrow one then learns in
        # half the steps.
        initializer_range=0.7 * hidden**-0.5,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    # The caller may have its own use of the global generator.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.LlamaForCausalLM(config)
    return LocalModel(model, tokenizer)


def _build_tokenizer(characters: str) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: number for number, token in enumerate([*characters, _UNKNOWN])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=_UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_TOKEN,
        pad_token="<pad>",
        chat_template=_CHARACTER_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=10_000,
    )
