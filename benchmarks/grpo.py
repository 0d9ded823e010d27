"""What one GRPO step costs: assay's own loop beside TRL's trainer, CPU seconds and peak memory.

Both train the same tiny model on the same prompts with one thread, groups of eight, the `dapo`
loss and no reference. TRL samples with its built-in generation; its tools come through
`environment_factory`. `single` is 32 answers of up to 16 tokens; `tools` is 16 rollouts that call
a tool and then answer. Every measurement is a process of its own and the rounds are interleaved.
Of all steps of a side the cheapest counts, since whatever else the machine does only adds to it;
the ratio of the lower quartiles stands beside. assay's figures hold scoring and recording, too.

    python benchmarks/grpo.py [single|tools] [--rounds 3] [--steps 15] [--json]
"""

import argparse
import json
import logging
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from peak_memory import peak_bytes

BUDGET = 0.65
_ASSISTANT = "<|im_start|>assistant\n"
WARM_UP = 3
"""Steps that are not measured: the first ones also load and prepare."""

COLOURS = ("red", "blue", "green", "white", "black", "brown")
TASKS: dict[str, dict[str, Any]] = {
    "single": {"prompts": 4, "group": 8, "tokens": 16, "turns": 1},
    "tools": {"prompts": 2, "group": 8, "tokens": 40, "turns": 2},
}
ROWS = [
    {
        "id": f"lamp-{number}",
        "messages": [{"role": "user", "content": f"Which colour has lamp {number}?"}],
        "answer": COLOURS[number % len(COLOURS)],
    }
    for number in range(24)
]


@dataclass(frozen=True)
class Measured:
    """One process: what its steps cost, and what they did for it."""

    cpu_s: list[float]
    """Of each step."""

    peak_mb: float
    sampled_tokens: float
    """Of one rollout, on average."""

    calls: float
    """Tool calls of one rollout, on average."""


class Clock:
    """Takes the CPU time of the process for each step after the warm-up."""

    def __init__(self) -> None:
        self._marks: list[float] = []

    def stepped(self) -> None:
        self._marks.append(time.process_time())

    @property
    def seconds(self) -> list[float]:
        marks = self._marks[WARM_UP - 1 :]
        return [after - before for before, after in pairwise(marks)]


def with_assay(task: str, folder: Path, steps: int) -> Measured:
    from assay.agents import Limits
    from assay.environments import ToolEnvironment, tool
    from assay.train import GRPOConfig, StepFinished, TrainingSession, grpo_train
    from assay.types import Sample

    class Lamp(ToolEnvironment):
        def __init__(self, sample: Sample) -> None:
            super().__init__()
            self._colour = str(sample.ground_truth)

        @tool
        def look(self) -> str:
            """Look at the lamp."""
            return self._colour

    def score(sample: Sample) -> float:
        return reward(sample.response, str(sample.ground_truth))

    clock, size = Clock(), TASKS[task]
    with tempfile.TemporaryDirectory() as output:
        result = grpo_train(
            GRPOConfig(
                model_name=str(folder),
                num_steps=steps,
                output=Path(output) / "out",
                prompts_per_step=size["prompts"],
                group_size=size["group"],
                max_tokens=size["tokens"],
                limits=Limits(max_turns=size["turns"]),
                learning_rate=1e-5,
                checkpoint_every=10**6,
                device="cpu",
            ),
            ROWS,
            score,
            Lamp if task == "tools" else None,
            session=TrainingSession(
                store=Path(output) / "store.db",
                watch=lambda event: clock.stepped() if isinstance(event, StepFinished) else None,
            ),
        )
    last = result.steps[WARM_UP:]
    return Measured(
        cpu_s=clock.seconds,
        peak_mb=peak_bytes() / 2**20,
        sampled_tokens=mean([step.response_tokens or 0 for step in last]),
        calls=mean([(step.turns or 1) - 1 for step in last]),
    )


def with_trl(task: str, folder: Path, steps: int) -> Measured:
    import transformers
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    class Lamp:
        def reset(self, answer: str, **_: Any) -> None:
            self._colour = answer

        def look(self) -> str:
            """
            Look at the lamp.

            Returns:
                Its colour.
            """
            return self._colour

    def score(completions: Any, answer: list[str], **_: Any) -> list[float]:
        said = [str(messages[-1].get("content") or "") for messages in completions]
        return [reward(text, right) for text, right in zip(said, answer, strict=True)]

    clock, size, logs = Clock(), TASKS[task], []

    class Watch(transformers.TrainerCallback):  # type: ignore[misc]  # transformers has no types
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.stepped()

        def on_log(self, *_: Any, **named: Any) -> None:
            logs.append(named["logs"])

    tools = {"environment_factory": Lamp} if task == "tools" else {}
    with tempfile.TemporaryDirectory() as output:
        trainer = GRPOTrainer(
            model=transformers.AutoModelForCausalLM.from_pretrained(folder),
            processing_class=transformers.AutoTokenizer.from_pretrained(folder),
            reward_funcs=score,
            train_dataset=Dataset.from_list(
                [{"prompt": row["messages"], "answer": row["answer"]} for row in ROWS]
            ),
            callbacks=[Watch()],
            args=GRPOConfig(
                output_dir=output,
                max_steps=steps,
                per_device_train_batch_size=size["prompts"] * size["group"],
                num_generations=size["group"],
                # TRL counts what the tool says, too.
                max_completion_length=size["tokens"] * size["turns"] + (60 if tools else 0),
                max_tool_calling_iterations=size["turns"] - 1 if tools else None,
                learning_rate=1e-5,
                # Neither of the two costs the other side anything.
                gradient_checkpointing=False,
                bf16=False,
                use_cpu=True,
                save_strategy="no",
                logging_steps=1,
                report_to="none",
                disable_tqdm=True,
            ),
            **tools,
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    last = [each for each in logs if "completions/mean_length" in each][WARM_UP:]
    return Measured(
        cpu_s=clock.seconds,
        peak_mb=peak_bytes() / 2**20,
        sampled_tokens=mean([each["completions/mean_length"] for each in last]),
        calls=mean([each.get("tools/call_frequency", 0.0) for each in last]),
    )


def reward(said: str, right: str) -> float:
    """Dense enough that groups differ."""
    return float(said.strip() == right) + said.count("e") / 100


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def write_models(folder: Path) -> None:
    """A model of about 100,000 weights for each task: a fresh one, and one that calls the tool."""
    import torch
    import transformers

    torch.manual_seed(0)
    tokenizer = make_tokenizer()
    config = transformers.Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=1024,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    model = transformers.Qwen3ForCausalLM(config)
    for task in TASKS:
        if task == "tools":
            teach(model, tokenizer)
        model.save_pretrained(folder / task)
        tokenizer.save_pretrained(folder / task)


def teach(model: Any, tokenizer: Any) -> None:
    """To look first, and then to say a colour."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    texts = conversations()
    for step in range(120):
        some = [texts[(8 * step + number) % len(texts)] for number in range(8)]
        batch = tokenizer(some, return_tensors="pt", padding=True, add_special_tokens=False)
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        for row, text in enumerate(some):
            prompt = text[: text.index(_ASSISTANT) + len(_ASSISTANT)]
            labels[row, : len(tokenizer(prompt, add_special_tokens=False)["input_ids"])] = -100
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def make_tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<|im_end|>", "<|im_start|>", "<|endoftext|>"]
    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    plain.train_from_iterator(conversations(), trainer)
    plain.add_tokens(["<tool_call>", "</tool_call>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=plain,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=template(),
    )


def template() -> str:
    """One that TRL knows how to read tool calls with."""
    import trl

    path = Path(trl.__file__).parent / "chat_templates" / "qwen2_5.jinja"
    return path.read_text("utf-8")


def conversations() -> list[str]:
    """What the model has seen, with the tool as either side describes it."""
    from transformers.utils.chat_template_utils import render_jinja_template

    call = {"type": "function", "function": {"name": "look", "arguments": {}}}
    empty = {"type": "object", "properties": {}}
    look: dict[str, Any] = {"name": "look", "description": "Look at the lamp."}
    described = [
        {**look, "parameters": {"additionalProperties": False, **dict(reversed(empty.items()))}},
        {**look, "parameters": empty, "return": {"type": "string", "description": "Its colour."}},
    ]
    found = []
    for row in ROWS:
        messages = [
            *row["messages"],
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": row["answer"]},
            {"role": "assistant", "content": row["answer"]},
        ]
        for each in described:
            rendered, _ = render_jinja_template(
                conversations=[messages],
                tools=[{"type": "function", "function": each}],
                chat_template=template(),
            )
            found += rendered
    return found


SIDES: dict[str, Callable[[str, Path, int], Measured]] = {"assay": with_assay, "trl": with_trl}


def in_this_process(what: list[str], steps: int) -> None:
    """Write the models, or measure one side at one task and print what was found."""
    import torch
    import transformers

    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()
    folder, *measured = what
    if not measured:
        write_models(Path(folder))
        return
    side, task = measured
    print(json.dumps(asdict(SIDES[side](task, Path(folder) / task, steps))))


def alone(*what: str, steps: int) -> str:
    """The same in a process of its own; what it printed last."""
    # This one stays small: a process begins with the peak memory of the one that started it.
    child = [sys.executable, __file__, "--steps", str(steps), "--alone", *what]
    done = subprocess.run(child, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip().rpartition("\n")[2]


def compared(task: str, folder: str, *, rounds: int, steps: int) -> dict[str, Any]:
    found: dict[str, list[Measured]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        for side in SIDES:
            found[side].append(Measured(**json.loads(alone(folder, side, task, steps=steps))))
    sides = {side: summed_up(each) for side, each in found.items()}
    return {
        "task": task,
        **sides,
        "ratio": sides["assay"]["cpu_s"] / sides["trl"]["cpu_s"],
        "quartile_ratio": sides["assay"]["quartile_cpu_s"] / sides["trl"]["quartile_cpu_s"],
        "memory_ratio": sides["assay"]["peak_mb"] / sides["trl"]["peak_mb"],
        "budget": BUDGET,
    }


def summed_up(rounds: list[Measured]) -> dict[str, float]:
    steps = [seconds for each in rounds for seconds in each.cpu_s]
    return {
        "cpu_s": min(steps),
        "quartile_cpu_s": statistics.quantiles(steps, n=4)[0],
        "peak_mb": min(each.peak_mb for each in rounds),
        "sampled_tokens": mean([each.sampled_tokens for each in rounds]),
        "calls": mean([each.calls for each in rounds]),
    }


def line(figures: dict[str, Any]) -> str:
    assay, trl = figures["assay"], figures["trl"]
    verdict = "within" if figures["ratio"] <= BUDGET else "above"
    return (
        f"{figures['task']:7} {assay['cpu_s']:6.3f} {trl['cpu_s']:6.3f} CPU s a step, assay and "
        f"TRL; ratio {figures['ratio']:.2f}, {verdict} the budget of {BUDGET} "
        f"({figures['quartile_ratio']:.2f} at the lower quartile); "
        f"peak {assay['peak_mb']:.0f} and {trl['peak_mb']:.0f} MB; "
        f"{assay['sampled_tokens']:.1f} and {trl['sampled_tokens']:.1f} tokens and "
        f"{assay['calls']:.2f} and {trl['calls']:.2f} calls a rollout"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "tasks", nargs="*", metavar="TASK", help=f"{', '.join(TASKS)}; both if none"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12 + WARM_UP)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--alone", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone:
        in_this_process(args.alone, args.steps)
        return
    with tempfile.TemporaryDirectory() as folder:
        alone(folder, steps=args.steps)
        for task in args.tasks or TASKS:
            figures = compared(task, folder, rounds=args.rounds, steps=args.steps)
            print(json.dumps(figures) if args.json else line(figures), flush=True)


if __name__ == "__main__":
    main()
