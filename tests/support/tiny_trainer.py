"""A language model of a few thousand parameters and its tokenizer, made here: nothing is fetched.

The chat template knows tools, calls and answers, and marks what an assistant says.
"""

from functools import cache
from pathlib import Path
from typing import Any

TEMPLATE = (
    "{% if tools %}[tools]{{ tools | tojson }}[end]\n{% endif %}"
    "{% for m in messages %}[{{ m.role }}]"
    "{% if m.role == 'assistant' %}{% generation %}"
    "{{ m.content or '' }}"
    "{% for c in (m.tool_calls or []) %}[call]{{ c.function.name }}"
    "{{ c.function.arguments | tojson }}{% endfor %}[end]{% endgeneration %}"
    "{% else %}{{ m.content or '' }}[end]{% endif %}\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
SPECIAL = ["[pad]", "[end]", "[system]", "[user]", "[assistant]", "[tool]", "[call]", "[tools]"]


@cache
def tiny_tokenizer() -> Any:
    """One token for each byte, and one for each mark of the template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *alphabet])}
    inner = Tokenizer(models.BPE(vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(SPECIAL)
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[pad]", eos_token="[end]", chat_template=TEMPLATE
    )


def tiny_model() -> Any:
    """A Llama of two layers."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tiny_tokenizer()),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config)


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    """Of every trainer: one step on the processor, told to nobody."""
    return {
        "output_dir": str(folder),
        "max_steps": 1,
        "per_device_train_batch_size": 2,
        "report_to": [],
        "use_cpu": True,
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "bf16": False,
        "gradient_checkpointing": False,
        **more,
    }
