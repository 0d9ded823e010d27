"""One rollout as samples to train on, with tokens and loss mask."""

from collections.abc import Sequence
from typing import Any

from assay.agents import Limits, run_agent
from assay.environments import (
    Environment,
    EnvironmentLike,
    accept_environment_alias,
    build_environment_factory,
)
from assay.errors import ConfigError, TokenError
from assay.providers import EndpointLike, ModelClient, connect
from assay.types import Endpoint, Message, Sample, Status, ToolSpec

from .chat_template import ChatTokenizer
from .retokenize import retokenize_sample
from .token_spans import tokenize_sample

_ROLLOUT_WHERE = "agent_rollout_to_sample()"


class ForkedRollout(TokenError):
    """A rollout that became more than one sample; `samples` contains all of them."""

    def __init__(self, message: str, *, samples: Sequence[Sample] = (), **details: Any) -> None:
        super().__init__(message, **details)
        self.samples = tuple(samples)


@accept_environment_alias("environment_cls")
async def agent_rollout_to_sample(
    prompt: str | Sequence[Message | dict[str, Any]],
    environment: EnvironmentLike,
    endpoint: EndpointLike | ModelClient,
    tokenizer: ChatTokenizer | None = None,
    *,
    limits: Limits | None = None,
    seed: int | None = None,
) -> Sample:
    """Roll out a model in an environment, and return the sample with tokens and loss mask.

    The tokens are those of the engine; if it returned none, the text is retokenized with
    `tokenizer` and the sample marked so. Raises `ForkedRollout` where the history was rewritten,
    which takes several samples: `agent_rollout_to_samples` returns them.
    """
    samples = await agent_rollout_to_samples(
        prompt, environment, endpoint, tokenizer, limits=limits, seed=seed
    )
    if len(samples) > 1:
        raise ForkedRollout(
            f"the rollout is {len(samples)} samples: a turn did not continue the tokens before it",
            samples=samples,
            where=_ROLLOUT_WHERE,
            hint="take them from `.samples`, or call agent_rollout_to_samples()",
        )
    return samples[0]


@accept_environment_alias("environment_cls")
async def agent_rollout_to_samples(
    prompt: str | Sequence[Message | dict[str, Any]],
    environment: EnvironmentLike,
    endpoint: EndpointLike | ModelClient,
    tokenizer: ChatTokenizer | None = None,
    *,
    limits: Limits | None = None,
    seed: int | None = None,
) -> list[Sample]:
    """Roll out like `agent_rollout_to_sample`, and return the one or more samples."""
    sample = Sample(prompt=prompt)
    if not sample.messages:
        raise ConfigError("the prompt is empty", where=_ROLLOUT_WHERE)
    made: object = build_environment_factory(environment, where=_ROLLOUT_WHERE)(sample)
    if not isinstance(made, Environment):
        raise ConfigError(
            f"`environment` returns a {type(made).__name__}, which is not an environment",
            where=_ROLLOUT_WHERE,
            hint="an environment has `tools`, `open`, `step` and `close`",
        )
    client = connect(endpoint) if isinstance(endpoint, str | Endpoint) else endpoint
    try:
        trajectory = await run_agent(client, made, sample.messages, limits=limits, seed=seed)
    finally:
        # A client that was passed belongs to the caller.
        if client is not endpoint:
            await client.close()
    sample.trajectory, sample.score = trajectory, trajectory.evaluation_result
    sample.status = Status.TRUNCATED if trajectory.truncated else Status.COMPLETED
    calls = trajectory.calls
    if calls and all(call.prompt_ids and call.completion_ids is not None for call in calls):
        return tokenize_sample(sample)
    if tokenizer is None:
        raise TokenError(
            "the engine returned no token ids, and no tokenizer is given",
            where=_ROLLOUT_WHERE,
            hint="pass the tokenizer of the model to be trained",
        )
    offered = (trajectory.model_extra or {}).get("tools", ())
    tools = [ToolSpec.model_validate(tool) for tool in offered]
    return retokenize_sample(sample, tokenizer, tools=tools)
