"""The settings of a GRPO training, checked before anything is loaded."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, field_validator, model_validator

from assay.agents import Limits
from assay.providers import CallStyle, find_provider, to_endpoint
from assay.runner import PrepareMessages, RaySettings, read_engine
from assay.types import Endpoint

from .lora import Lora
from .metric_sinks import check_report_to
from .schedule import Schedule, compute_learning_rate
from .trl_settings import TrlSettings, list_trl_conflicts
from .weight_updates import WeightUpdate

LossType = Literal["grpo", "dr_grpo", "dapo"]
Scaling = Literal["std", "mean"]

_ENDPOINT_FIELDS = ("temperature", "top_p", "max_tokens", "stop")
_EXTRA_PARAMS = ("top_k", "stop_token_ids", "chat_template_kwargs", "tool_format")
# Parameters without effect on the distribution; a training sets its own.
_ENGINE_PARAMS = frozenset({"device", "dtype", "threads", "logprobs", "return_token_ids"})


class GRPOConfig(BaseModel):
    """The settings of a training on the scores of a policy's own rollouts."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    model_name: str = Field(min_length=1)
    """A folder with a Hugging Face model and its tokenizer, or the id of one on the hub."""

    num_steps: int = Field(default=100, gt=0)
    output: Path = Path("grpo")
    """Folder for metrics, checkpoints, the trained model and the reward curve."""

    name: str = "grpo"
    """The name of the recorded run."""

    backend: Literal["local", "trl"] = "local"
    """What learns: the loop of this package, or TRL's `GRPOTrainer`."""

    trl: TrlSettings | None = None
    """Further settings for TRL."""

    prompts_per_step: int = Field(default=8, gt=0)
    group_size: int = Field(default=8, ge=2)
    """Rollouts of each prompt: each is compared with the others of its group."""

    limits: Limits = Limits()
    """Bounds of one rollout, such as its turns."""

    max_tokens: int = Field(default=256, gt=0)
    """Of one answer; a rollout of several turns has several answers."""

    temperature: FiniteFloat = Field(default=1.0, gt=0)
    top_p: FiniteFloat = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    """Sample from this many of the most likely tokens; 0 samples from all."""

    stop: tuple[str, ...] = ()
    """Texts that end an answer."""

    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end an answer, in place of the model's own."""

    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the chat template, such as `enable_thinking`."""

    endpoint: Endpoint | None = Field(default=None, exclude=True)
    """The endpoint of an evaluation: its sampling settings and chat template arguments are used
    where the fields above are not given. Its model and address are not."""

    server: Endpoint | None = Field(default=None, exclude=True)
    """The OpenAI-compatible server that samples: its URL, a model string or an endpoint. It must
    return token ids and logprobs. None: the model in this process samples."""

    update_weights: WeightUpdate | None = Field(default=None, exclude=True)
    """Makes the server sample with new weights after each step. None: `UploadWeights()`."""

    max_staleness: int = Field(default=0, ge=0)
    """How many steps older than the policy the weights may be that sampled a rollout. 0: sampling
    and learning take turns. Above: they overlap. Older rollouts are dropped and counted."""

    engine: RaySettings | None = Field(default=None, exclude=True)
    """What makes the rollouts: `"ray"`, or `RaySettings` with the address of a cluster, the workers
    of Ray. They ask `server`. None: this process."""

    prepare_messages: PrepareMessages | None = Field(default=None, exclude=True)
    """Builds the messages for the model, as in an evaluation. None: the sample's messages."""

    concurrency: int = Field(default=256, gt=0)
    """Rollouts in progress at once."""

    lockstep: bool = True
    """Ask the model for all rollouts at once, turn by turn: the same seed gives the same training
    to the bit. False: no rollout waits for another one's slow environment."""

    tool_format: CallStyle | None = None
    """How the model writes tool calls, where its chat template is not a known one."""

    timeout_s: FiniteFloat | None = Field(default=None, gt=0)
    """A rollout that takes longer, its scoring included, has failed."""

    loss_type: LossType = "dapo"
    """What the loss is divided by. `grpo`: each rollout's tokens, then rollouts. `dr_grpo`: a
    constant for each rollout. `dapo`: all tokens of the step."""

    length_constant: int | None = Field(default=None, gt=0)
    """The constant of `dr_grpo`. None: `max_tokens`."""

    advantage: Scaling = "std"
    """`std`: rewards less the group's mean, over its standard deviation. `mean`: not divided."""

    importance_level: Literal["token", "sequence"] = "token"
    """Whether the ratio of new to old policy is one a token, or one a rollout as in GSPO."""

    clip_low: FiniteFloat = Field(default=0.2, ge=0, le=1)
    clip_high: FiniteFloat = Field(default=0.2, ge=0)
    beta: FiniteFloat = Field(default=0.0, ge=0)
    """Weight of the divergence from the model as it was before training."""

    measure_kl: bool = False
    """Measure that divergence though `beta` is 0. Costs one more pass over each step's tokens."""

    importance_cap: FiniteFloat | None = Field(default=2.0, ge=1)
    """Each token's loss is weighted by how much likelier the trained model found it than the
    engine that sampled it, up to this. None: not weighted, as always with `top_p` or `top_k`."""

    updates_per_step: int = Field(default=1, gt=0)
    """How often each step's rollouts are learned from."""

    micro_batch_tokens: int = Field(default=16384, gt=0)
    """Tokens, padding included, in one pass; gradients add up over the passes of an update."""

    micro_batch_bytes: int = Field(default=4 * 2**30, gt=0)
    """Memory of one pass for logits and derived tensors: tokens times vocabulary. A single
    rollout may take more."""

    gradient_checkpointing: bool | None = None
    """Compute layers again in the backward pass instead of remembering them. None: for models of
    500 million weights or more."""

    learning_rate: FiniteFloat = Field(default=1e-6, gt=0)
    schedule: Schedule = "constant"
    warmup_steps: int = Field(default=0, ge=0)
    weight_decay: FiniteFloat = Field(default=0.0, ge=0)
    max_grad_norm: FiniteFloat = Field(default=1.0, gt=0)

    zero_variance: Literal["keep", "drop", "resample"] = "keep"
    """Groups whose rewards are all equal teach nothing. `drop` leaves them out of the loss,
    `resample` also takes further prompts in their place."""

    resample_rounds: int = Field(default=3, gt=0)
    """How often a step may take further prompts."""

    drop_truncated: bool = False
    """Leave rollouts that a limit cut short out of the loss. Their rewards still count."""

    allow_unrecorded_tokens: bool = False
    """Also learn from tokens made of text, and from tokens without recorded logprobs."""

    lora: Lora | None = None
    seed: int = 0
    device: str | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"
    checkpoint_every: int = Field(default=10, gt=0)
    """Steps from one checkpoint to the next. The last step always has one."""

    keep_checkpoints: int = Field(default=2, gt=0)

    report_to: tuple[Any, ...] = Field(default=(), exclude=True)
    """Trackers of the metrics on this machine: `tensorboard`, `wandb`, `mlflow`, `trackio`, the
    names of plug-ins, or objects with `log(step, metrics)` and `close()`."""

    eval_every: int | None = Field(default=None, gt=0)
    """Steps from one evaluation of `eval_dataset` to the next; also before the first step and after
    the last. Each comes after a checkpoint. None: no evaluation."""

    eval_repeats: int = Field(default=1, gt=0)
    """Rollouts of each sample in an evaluation."""

    patience: int | None = Field(default=None, gt=0)
    """Stop after this many evaluations in a row without a higher score than the best. None:
    never."""

    @model_validator(mode="before")
    @classmethod
    def _take_endpoint_settings(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if isinstance(data.get("stop"), str):
            data = {**data, "stop": (data["stop"],)}
        if data.get("server") is not None:
            data = {**data, "server": _read_server(data["server"], data.get("model_name"))}
        if (given := data.get("endpoint")) is None:
            return _disable_importance_cap(data)
        if isinstance(given, dict):
            given = Endpoint.model_validate(given)
        endpoint = to_endpoint(given, where="GRPOConfig")
        taken = _disable_importance_cap(
            {**read_rollout_settings(endpoint), **data, "endpoint": endpoint}
        )
        if taken.get("temperature") == 0:
            raise ValueError(
                "at temperature 0 all rollouts of a group are equal: set `temperature` above 0"
            )
        return taken

    @field_validator("engine", mode="before")
    @classmethod
    def _read_engine(cls, value: Any) -> RaySettings | None:
        return read_engine(value, where="GRPOConfig")

    @field_validator("report_to", mode="before")
    @classmethod
    def _check_report_to(cls, value: Any) -> tuple[Any, ...]:
        return check_report_to(value)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.top_p < 1 or self.top_k) and self.importance_cap is not None:
            cut = "`top_k`" if self.top_k else "`top_p` below 1"
            raise ValueError(
                f"with {cut} recorded logprobs are those of a cut distribution, and "
                "weights made from them are biased: set importance_cap=None"
            )
        if self.length_constant is not None and self.loss_type != "dr_grpo":
            raise ValueError(f"`length_constant` has no effect with loss_type={self.loss_type!r}")
        if self.warmup_steps >= self.num_steps and self.schedule != "constant":
            raise ValueError(f"{self.warmup_steps} warm-up steps leave no step to decay in")
        if self.eval_every is None and (self.patience is not None or self.eval_repeats != 1):
            name = "eval_repeats" if self.patience is None else "patience"
            raise ValueError(f"`{name}` has no effect without `eval_every`")
        if self.trl is not None and self.backend != "trl":
            raise ValueError(f"`trl` has no effect with backend={self.backend!r}")
        if unfit := list(list_server_conflicts(self)):
            raise ValueError("; ".join(unfit))
        if self.backend == "trl" and (unfit := list(list_trl_conflicts(self))):
            raise ValueError("TRL does not support these settings: " + "; ".join(unfit))
        return self

    @property
    def needs_reference(self) -> bool:
        return self.beta > 0 or self.measure_kl

    @property
    def rollouts_per_step(self) -> int:
        return self.prompts_per_step * self.group_size

    def learning_rate_at(self, step: int) -> float:
        """The rate of a step; steps count from 1."""
        return compute_learning_rate(
            step,
            of=self.num_steps,
            highest=self.learning_rate,
            schedule=self.schedule,
            warmup_steps=self.warmup_steps,
        )

    def saves_after(self, step: int) -> bool:
        """Whether a step is followed by a checkpoint, apart from the last one."""
        return step % self.checkpoint_every == 0 or self.evaluates_after(step)

    def evaluates_after(self, step: int) -> bool:
        """Whether a step is followed by an evaluation; step 0 is before the training."""
        return self.eval_every is not None and (
            step % self.eval_every == 0 or step == self.num_steps
        )

    def describe(self) -> dict[str, Any]:
        """Return the settings that must not change on a resume, as plain values.

        Output, checkpoints and speed may change; so may patience, and the length, unless the
        learning rate depends on it.
        """
        apart = {"output", "name", "concurrency", "checkpoint_every", "keep_checkpoints", "device"}
        apart.add("patience")
        if self.schedule == "constant":
            apart.add("num_steps")
        # Omitted at its default, so that runs from before the setting existed can be resumed.
        if self.tool_format is None:
            apart.add("tool_format")
        if self.max_staleness == 0:
            apart.add("max_staleness")
        if self.eval_every is None:
            apart |= {"eval_every", "eval_repeats"}
        described = self.model_dump(mode="json", exclude=apart)
        # The key of recorded trainings, which could not be resumed under another name.
        described["rollout_timeout_s"] = described.pop("timeout_s")
        if self.trl is not None:
            # As above: trainings recorded the trackers of TRL, which are `report_to` now.
            described["trl"]["report_to"] = []
        return described


def _disable_importance_cap(data: dict[str, Any]) -> dict[str, Any]:
    # Recorded logprobs of a truncated distribution would give biased importance weights. Only the
    # default is changed: an explicit cap is refused by the validator.
    is_cut = data.get("top_k", 0) != 0 or data.get("top_p", 1) != 1
    return {"importance_cap": None, **data} if is_cut else data


def _read_server(given: Any, model_name: Any) -> Endpoint:
    if isinstance(given, str) and given.startswith(("http://", "https://")):
        return Endpoint(provider="vllm", model=str(model_name), api_base=given)
    if isinstance(given, dict):
        given = Endpoint.model_validate(given)
    return to_endpoint(given, where="GRPOConfig", name="server")


def list_server_conflicts(config: GRPOConfig) -> Iterator[str]:
    """One line for each setting that does not fit the server, or its absence."""
    server = config.server
    if server is None:
        if config.max_staleness:
            yield "`max_staleness` has no effect without `server`"
        if config.engine is not None:
            yield (
                "`engine` needs `server`: workers of Ray cannot ask the model in this process. "
                "Serve it, such as with examples/serve/chat_server.py"
            )
        if config.update_weights is not None:
            yield "`update_weights` has no effect without `server`"
        return
    if find_provider(server.provider).protocol != "openai":
        yield f"`server`: {server.provider!r} models do not answer OpenAI's chat completions"
    if set_there := [name for name in _ENDPOINT_FIELDS if getattr(server, name) is not None]:
        yield f"`server` has {', '.join(set_there)}: set them in the configuration itself"
    if config.backend != "local":
        yield f"`server` has no effect with backend={config.backend!r}"
    if config.tool_format is not None:
        yield "`tool_format` has no effect with `server`, which reads tool calls itself"
    if config.max_staleness and config.importance_cap is None:
        yield (
            "with `max_staleness` above 0 rollouts are corrected by importance weights: they need "
            "`importance_cap`, and no `top_p` or `top_k`"
        )


def read_rollout_settings(endpoint: Endpoint) -> dict[str, Any]:
    """Return the settings of prompt and sampling. Raises `ValueError` for unsupported ones."""
    for name in ("thinking", "reasoning_effort"):
        if getattr(endpoint, name) is not None:
            raise ValueError(
                f"`endpoint` has `{name}`, which belongs to hosted models: "
                "extra_params={'chat_template_kwargs': {...}} reaches the chat template"
            )
    if unknown := sorted(endpoint.extra_params.keys() - {*_EXTRA_PARAMS, *_ENGINE_PARAMS}):
        raise ValueError(
            f"`endpoint` has extra_params that a model in training does not support: "
            f"{', '.join(unknown)}; {', '.join(_EXTRA_PARAMS)} are supported"
        )
    shared = {name: getattr(endpoint, name) for name in _ENDPOINT_FIELDS}
    extra = {name: endpoint.extra_params.get(name) for name in _EXTRA_PARAMS}
    return {name: value for name, value in {**shared, **extra}.items() if value is not None}


def build_policy_endpoint(config: GRPOConfig) -> Endpoint:
    """Return the endpoint of the model in training."""
    extra = {name: getattr(config, name) for name in _EXTRA_PARAMS}
    return Endpoint(
        provider="local",
        model=config.model_name,
        temperature=config.temperature,
        top_p=config.top_p,
        max_tokens=config.max_tokens,
        stop=config.stop or None,
        extra_params={name: value for name, value in extra.items() if value},
    )


def build_server_endpoint(config: GRPOConfig) -> Endpoint:
    """Return the endpoint of the server that samples, with the settings of the training."""
    assert config.server is not None
    extra = {name: getattr(config, name) for name in _EXTRA_PARAMS}
    return config.server.model_copy(
        update={
            "temperature": config.temperature,
            "top_p": config.top_p,
            "max_tokens": config.max_tokens,
            "stop": config.stop or None,
            "extra_params": {
                **config.server.extra_params,
                **{name: value for name, value in extra.items() if value},
                "logprobs": True,
                "return_token_ids": True,
            },
        }
    )
