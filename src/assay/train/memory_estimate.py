"""How much memory a GRPO training takes on its device, by calculation."""

from dataclasses import dataclass
from typing import Any

from assay.providers import MAX_BATCH, SMALL_MODEL_PARAMETERS

from .grpo_config import GRPOConfig

_FLOAT32 = 4
# Tensors of the size of the logits, in float32, at the peak of a pass: the logits, their logprobs,
# and the intermediate values of entropy and gradient.
_LOGITS_AT_ONCE = 4

# Bytes for each logit while sampling: sorted, summed and compared in double precision.
_SCRATCH = 40


def compute_logits_per_pass(limit: int, vocabulary: int) -> int:
    """How many tokens may have logits in a pass whose logits take `limit` bytes at most."""
    return max(1, limit // (vocabulary * _FLOAT32 * _LOGITS_AT_ONCE))


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes by purpose, without fragmentation and the memory of the device's own runtime."""

    weights: int
    """All weights, including a reference model and a copy in the compute dtype."""

    gradients: int
    optimizer: int
    activations: int
    """Values that a pass keeps for its backward pass."""

    logits: int
    """Logits of a pass, with the tensors derived from them."""

    cache: int
    """Keys and values while sampling."""

    sampling: int
    """Other memory of sampling."""

    rollouts_per_pass: int

    @property
    def held(self) -> int:
        """Permanent memory: weights, gradients and optimiser."""
        return self.weights + self.gradients + self.optimizer

    @property
    def update(self) -> int:
        """At the peak of an update."""
        return self.held + self.activations + self.logits

    @property
    def rollout(self) -> int:
        """While rollouts are sampled."""
        return self.held + self.cache + self.sampling

    @property
    def peak(self) -> int:
        return max(self.update, self.rollout)


def estimate_memory(
    config: GRPOConfig, model_config: Any, *, prompt_tokens: int = 512
) -> MemoryEstimate:
    """Estimate the memory of a training with rollouts of one answer of `max_tokens`.

    `model_config` is the configuration of a Transformers model, such as
    `AutoConfig.from_pretrained(folder)`. No weights are needed. Made for decoders with attention
    and a gated MLP; others differ in their activations.
    """
    text = model_config.get_text_config()
    parameters, added = _count_parameters(model_config, config)
    tokens = prompt_tokens + config.max_tokens
    logits = compute_logits_per_pass(config.micro_batch_bytes, text.vocab_size)
    by_logits, by_tokens = logits // (config.max_tokens + 1), config.micro_batch_tokens // tokens
    # At least one rollout in a pass, however long it is.
    rows = max(1, min(config.rollouts_per_step, by_tokens, by_logits))
    half = config.dtype == "bfloat16"
    trained = parameters if config.lora is None else added
    weights = trained * _FLOAT32 + (parameters * 2 if half else 0)
    if config.lora is not None and not half:
        weights += parameters * _FLOAT32
    if config.needs_reference and config.lora is None:
        weights += parameters * _FLOAT32
    batch = min(config.rollouts_per_step, config.concurrency, MAX_BATCH)
    heads = text.num_key_value_heads or text.num_attention_heads
    keys_and_values = 2 * heads * _read_head_dim(text) * text.num_hidden_layers * _FLOAT32
    return MemoryEstimate(
        weights=weights,
        gradients=trained * _FLOAT32,
        # AdamW keeps two moments of each trained weight.
        optimizer=trained * _FLOAT32 * 2,
        activations=rows * tokens * _estimate_activations(text, config, parameters),
        logits=rows * (config.max_tokens + 1) * text.vocab_size * _FLOAT32 * _LOGITS_AT_ONCE,
        cache=batch * tokens * keys_and_values,
        sampling=batch * text.vocab_size * _SCRATCH,
        rollouts_per_pass=rows,
    )


def _estimate_activations(text: Any, config: GRPOConfig, parameters: int) -> int:
    """Bytes that a pass remembers for each token."""
    hidden, queries = text.hidden_size, text.num_attention_heads * _read_head_dim(text)
    keys = (text.num_key_value_heads or text.num_attention_heads) * _read_head_dim(text)
    # Norms and residuals; queries and keys before and after norm and rotation; the MLP.
    layer: int = 10 * hidden + 6 * queries + 6 * keys + 5 * text.intermediate_size
    recomputes = config.gradient_checkpointing
    if recomputes is None:
        recomputes = parameters >= SMALL_MODEL_PARAMETERS
    layers: int = text.num_hidden_layers
    # With recomputation only the inputs of all layers and one whole layer are kept.
    floats = layers * hidden + layer if recomputes else layers * layer
    return int(floats) * _FLOAT32


def _read_head_dim(text: Any) -> int:
    given = getattr(text, "head_dim", None)
    return int(given or text.hidden_size // text.num_attention_heads)


def _count_parameters(model_config: Any, config: GRPOConfig) -> tuple[int, int]:
    """How many weights a model has, and how many `lora` adds to its linear layers."""
    import torch
    from transformers import AutoModelForCausalLM

    # On the meta device a model has shapes but no memory.
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(model_config, trust_remote_code=False)
    own = sum(each.numel() for each in model.parameters())
    if config.lora is None:
        return own, 0
    last = model.get_output_embeddings()
    wanted = config.lora.target_modules
    added = sum(
        config.lora.rank * (module.in_features + module.out_features)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
        and module is not last
        and (wanted is None or name.rpartition(".")[2] in wanted)
    )
    return own, added
