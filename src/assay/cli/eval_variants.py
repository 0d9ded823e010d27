"""The evaluations of one `assay eval`: each agent with each prompt."""

import asyncio
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice, product
from pathlib import Path

from assay.agents import Agent, resolve_agent
from assay.datasets import PromptTemplate, SampleStream, load_samples, read_prompt
from assay.errors import ConfigError
from assay.providers import connect
from assay.runner import EvalConfig, expect_endpoint
from assay.scorers import is_code_ref
from assay.types import Endpoint, Sample

from .eval_file import EvalFile, is_eval_file, load_eval_file
from .eval_overrides import names_model, override_config, replace_agent, resolve_scorers

# Connecting to these loads a model, which is too slow to be only a check.
_LOCAL_PROVIDERS = frozenset({"local", "gguf"})


@dataclass(frozen=True)
class EvalVariant:
    """One agent with one prompt."""

    agent: str | None
    """The name of the agent; None for that of the evaluation file."""

    prompt: str | None
    file: EvalFile

    @property
    def label(self) -> str:
        return " ".join(each for each in (self.agent, self.prompt) if each is not None)


def load_variants(args: Namespace) -> list[EvalVariant]:
    """Load the evaluation of each agent with each prompt, the first agent's first.

    Raises `ConfigError` for anything wrong that can be known before a run is started.
    """
    agents = _name_agents(args.agent or [])
    prompts = _name_prompts(args.prompt or [])
    is_matrix = len(agents) > 1 or len(prompts) > 1
    with expect_endpoint(names_model(args)):
        base = load_eval_file(args.file) if is_eval_file(args.file) else _load_dataset(args)
        if args.scorer is not None:
            scored = replace(base.config, score_fn=resolve_scorers(args.scorer))
            base = replace(base, config=scored)
        variants = []
        for (agent_name, agent), (prompt_name, prompt) in product(
            agents.items() or [(None, None)], prompts.items() or [(None, None)]
        ):
            config = base.config if agent is None else replace_agent(base.config, agent, args)
            config = override_config(config, args)
            if prompt is not None:
                config = _replace_prompt(config, prompt, args)
            variants.append(EvalVariant(agent_name, prompt_name, replace(base, config=config)))
    if is_matrix:
        variants = [_rename_variant(each, args) for each in variants]
        _check_variants(variants)
    return variants


def _load_dataset(args: Namespace) -> EvalFile:
    """Return the evaluation of a dataset. Raises `ConfigError` if it cannot be scored."""
    if args.scorer is None and args.check is None:
        raise ConfigError(
            "no scorer is given for the dataset",
            where=args.file,
            hint="add --scorer exact_answer, your own function with --scorer FILE.py:function, or "
            "--check COMMAND for an agent that works in a folder",
        )
    if not names_model(args):
        # Recorded conversations can be scored as they are.
        first = next(iter(load_samples(args.file, 1)), None)
        if first is not None and all(each.role != "assistant" for each in first.messages):
            raise ConfigError(
                "no agent is given, and the samples of the dataset have no answers to score",
                where=args.file,
                hint="add --agent openai:gpt-5, or your own function with --agent FILE.py:function",
            )
    config = EvalConfig(
        score_fn=None if args.scorer is None else resolve_scorers(args.scorer),
        check=args.check,
        name=Path(args.file).name.split(".")[0] or "eval",
    )
    return EvalFile(Path(args.file), config, args.file)


def _replace_prompt(config: EvalConfig, prompt: PromptTemplate, args: Namespace) -> EvalConfig:
    if not (config.rolls_out or names_model(args)):
        raise ConfigError("--prompt has no effect without an agent", hint="add --agent")
    return replace(config, prepare_messages=prompt)


def _name_agents(refs: list[str]) -> dict[str | None, Agent | Endpoint | None]:
    """Resolve the agents, each by a name without secrets."""
    _refuse_repeated("--agent", refs)
    named: dict[str | None, Agent | Endpoint | None] = {}
    for ref in refs:
        agent = resolve_agent(ref, where="--agent")
        name = f"{agent.provider}:{agent.model}" if isinstance(agent, Endpoint) else agent.name
        if isinstance(agent, Endpoint) and is_code_ref(ref) and not ref.startswith(name):
            # An endpoint that is defined in code: several of them may differ in settings only.
            name = ref
        # Two addresses may serve models of one name.
        number = 2
        unique = name
        while unique in named:
            unique, number = f"{name} ({number})", number + 1
        named[unique] = agent
    return named


def _name_prompts(paths: list[str]) -> dict[str | None, PromptTemplate | None]:
    """Read the prompts, each by the shortest name that no other has."""
    _refuse_repeated("--prompt", paths)
    stems = Counter(Path(path).stem for path in paths)
    return {
        path if stems[Path(path).stem] > 1 else Path(path).stem: read_prompt(path) for path in paths
    }


def _refuse_repeated(option: str, values: list[str]) -> None:
    if len(set(values)) < len(values):
        raise ConfigError(f"{option} has the same value twice", hint="pass each value once")


def _rename_variant(variant: EvalVariant, args: Namespace) -> EvalVariant:
    name = " ".join(each for each in (args.name, variant.label) if each)
    return replace(
        variant, file=replace(variant.file, config=replace(variant.file.config, name=name))
    )


def _check_variants(variants: list[EvalVariant]) -> None:
    """Raise `ConfigError` for a mistake that a later run would find only after the first one."""
    configs = [variant.file.config for variant in variants]
    asyncio.run(_check_endpoints(configs))
    dataset = variants[0].file.dataset
    samples = (
        dataset
        if isinstance(dataset, SampleStream)
        else load_samples(dataset, configs[0].max_samples)
    )
    if samples.reads_once:
        raise ConfigError(
            "the dataset is an iterator, which only one run can read",
            hint="pass one agent and one prompt, or make the dataset a list or a file",
        )
    checked: Iterable[Sample] = samples
    for config in configs:
        if isinstance(config.prepare_messages, PromptTemplate):
            checked = config.prepare_messages.check_samples(checked)
    # A dataset of a hub is not downloaded for this: its rows have the same fields.
    is_local = samples.file is not None or samples.total is not None
    for _ in checked if is_local else islice(checked, 1):
        pass


async def _check_endpoints(configs: list[EvalConfig]) -> None:
    for config in configs:
        if config.endpoint is not None and config.endpoint.provider not in _LOCAL_PROVIDERS:
            await connect(config.endpoint, config.client).close()
