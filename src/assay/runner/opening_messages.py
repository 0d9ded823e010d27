"""Comparison of the messages and tools that an environment adds to a prompt, on resume.

They are known only after opening an environment, which may take a while. One recorded sample is
checked for all: an edited prompt usually affects every sample.
"""

import asyncio
from contextlib import suppress
from hashlib import blake2b

from pydantic_core import to_json

from assay.environments import check_items
from assay.errors import ConfigError
from assay.types import Message, Sample, ToolSpec

from .eval_config import EvalConfig
from .rollout_job import copy_sample
from .sent_messages import PromptCheck, digest_messages, prepare_messages

# The comparison is a courtesy: an environment that hangs must not block the run itself.
_OPENING_TIMEOUT_S = 30.0
_CLOSING_TIMEOUT_S = 10.0


async def check_opening(check: PromptCheck, config: EvalConfig) -> None:
    """Raise `ConfigError` if an environment opens a recorded sample with other messages or tools.

    An environment that fails, or that opens differently each time, is not compared.
    """
    if config.environment is None or check.compared is None:
        return
    sample, repeat, key = check.compared
    kept = check.run.find_kept_rollout(key)
    first = None if kept is None or not kept.trajectory.calls else kept.trajectory.calls[0]
    if kept is None or first is None or first.message_index is None:
        return
    tools = (kept.trajectory.model_extra or {}).get("tools", [])
    recorded = _digest_messages_and_tools(kept.trajectory.messages[: first.message_index], tools)
    now = await _digest_opening(config, sample, repeat)
    # Opened a second time before refusing: messages drawn at random differ from the recorded ones
    # without any change of the code.
    if now is None or now == recorded or now != await _digest_opening(config, sample, repeat):
        return
    raise ConfigError(
        f"the environment opens sample {sample.id!r} with other messages or tools than when the "
        "run was started",
        where=f"run {check.run.id!r}",
        hint="restore the environment, or start a new run",
    )


async def _digest_opening(config: EvalConfig, sample: Sample, repeat: int) -> str | None:
    """Digest the first messages and tools; None when the environment does not open."""
    own = copy_sample(sample, repeat) if config.repeats > 1 else sample.model_copy(deep=True)
    # An error here occurs in the run as well, and is attributed to its boundary there.
    with suppress(Exception, SystemExit):
        messages = prepare_messages(config, own)
        environment = config.make_environment(own)
        try:
            async with asyncio.timeout(config.timeout_s or _OPENING_TIMEOUT_S):
                opening = await environment.open(seed=config.seed_of(own, repeat))
            messages.extend(check_items(Message, opening or (), "open"))
            specs = check_items(ToolSpec, environment.tools or (), "tools")
        finally:
            async with asyncio.timeout(_CLOSING_TIMEOUT_S):
                await environment.close()
        return _digest_messages_and_tools(
            messages, [spec.model_dump(mode="json", exclude_defaults=True) for spec in specs]
        )
    return None


def _digest_messages_and_tools(messages: list[Message], tools: object) -> str:
    listed = to_json(tools, inf_nan_mode="constants")
    return f"{digest_messages(messages)} {blake2b(listed, digest_size=16).hexdigest()}"
