"""The evaluations of one `assay eval`: each agent with each prompt."""

import asyncio
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice, product
from pathlib import Path

from assay.agents import Agent, resolve_agent
from assay.datasets import PromptTemplate, SampleStream, Source, load_samples, read_prompt
from assay.errors import ConfigError
from assay.providers import connect
from assay.runner import EvalConfig, expect_endpoint
from assay.scorers import is_code_ref
from assay.types import Endpoint, Sample

from .eval_file import EvalFile, is_eval_file, load_eval_file
from .eval_overrides import names_model, override_config, replace_agent, resolve_scorers
from .output import print_message
from .ready_evals import build_unknown_eval_error, find_ready_eval

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
        if is_eval_file(args.file):
            base = load_eval_file(args.file, dataset=args.dataset, split=args.split)
            if find_ready_eval(args.file) is not None and not base.config.rolls_out:
                _require_agent(base.dataset, args)
        else:
            base = _load_dataset(args)
        if base.rubric is not None or args.judge is not None:
            base = replace(base, config=_replace_judge(base, args))
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
    if args.dataset is not None:
        raise ConfigError(
            f"--dataset has no effect: {args.file} is a dataset itself",
            hint="--dataset replaces the dataset of FILE.py or of a ready evaluation",
        )
    if args.scorer is None and args.check is None:
        raise build_unknown_eval_error(args.file)
    rows = args.file if args.split is None else load_samples(args.file, split=args.split)
    # A prompt needs an agent, which is checked where the prompt is set.
    if args.prompt is None:
        _require_agent(rows, args)
    config = EvalConfig(
        score_fn=None if args.scorer is None else resolve_scorers(args.scorer),
        check=args.check,
        name=Path(args.file).name.split(".")[0] or "eval",
    )
    return EvalFile(Path(args.file), config, rows)


def _require_agent(rows: Source | SampleStream, args: Namespace) -> None:
    """Raise `ConfigError` if no agent is named and the samples have no answers to score."""
    if names_model(args):
        return
    # Recorded conversations can be scored as they are.
    samples = rows if isinstance(rows, SampleStream) else load_samples(rows, 1)
    first = next(iter(samples), None)
    if first is not None and all(each.role != "assistant" for each in first.messages):
        raise ConfigError(
            "no agent is given, and the samples of the dataset have no answers to score",
            where=args.file,
            hint="add --agent openai:gpt-5, or your own function with --agent FILE.py:function",
        )


def _replace_judge(file: EvalFile, args: Namespace) -> EvalConfig:
    """Return the configuration with the judge of `--judge`; without one, print a note."""
    # Imported here: few evaluations are graded by a judge.
    from assay.scorers import Judge, judge

    from .judge_backends import read_endpoint_option

    if args.judge is None:
        is_scored = args.scorer is not None or isinstance(file.config.score_fn, Judge)
        # A shard is one of many processes, of which each would repeat the note.
        if not is_scored and args.shard is None and not args.quiet:
            print_message(
                "no --judge is given: answers are scored without a model, and those in other words "
                "may count as wrong"
            )
        return file.config
    if args.scorer is not None:
        raise ConfigError("--judge and --scorer both score", hint="leave out one of the options")
    if file.rubric is None:
        raise ConfigError(
            "--judge has no effect: the evaluation defines no `rubric` to grade by",
            where=str(file.path),
            hint="`assay judge` grades the samples of a run by a rubric of your choice",
        )
    return replace(file.config, score_fn=judge(file.rubric, read_endpoint_option(args.judge)))


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
    ).with_prompt(configs[0].prepare_messages)
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
