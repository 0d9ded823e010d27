"""`assay train sft`: supervised fine-tuning on samples."""

import shlex
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from assay.errors import ConfigError, TrainingError
from assay.runner import Stop
from assay.train import Lora, SFTConfig, SFTResult, SFTStep, sft_train

from .eval_overrides import count
from .exit_status import EXIT_INTERRUPTED, EXIT_PASS, InconclusiveError
from .terminal import print_json, sanitize_lines
from .train_display import TrainDisplay, stop_after_step

_SFT_OPTIONS = (
    "steps epochs learning_rate schedule warmup_steps batch_tokens micro_batch_tokens max_length "
    "held_out eval_every checkpoint_every tokens demonstrations chat_template min_score "
    "skip_unusable seed device dtype"
).split()
"""Options that are settings of the same name; where one is not given, its default holds."""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "data",
        metavar="DATA",
        help="samples or conversations: a file, a bundle, a folder or a dataset name",
    )
    parser.add_argument("--model", metavar="FOLDER", required=True, help="a Hugging Face folder")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        type=Path,
        required=True,
        help="for the trained model, metrics and checkpoints",
    )
    _add_learning_options(parser)
    _add_data_options(parser)
    parser.add_argument("--resume", action="store_true", help="go on in the output folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def _add_learning_options(parser: ArgumentParser) -> None:
    """Declare how it is learned."""
    of = {name: field.default for name, field in SFTConfig.model_fields.items()}
    whole: dict[str, Any] = {"type": count, "metavar": "N"}
    parser.add_argument("--steps", **whole, help="updates of the weights, instead of epochs")
    parser.add_argument(
        "--epochs", **whole, help=f"times through the data (default: {of['epochs']})"
    )
    parser.add_argument(
        "--learning-rate", type=float, metavar="X", help=f"default: {of['learning_rate']:g}"
    )
    parser.add_argument(
        "--schedule",
        choices=("constant", "linear", "cosine"),
        help=f"of the learning rate (default: {of['schedule']})",
    )
    parser.add_argument("--warmup-steps", type=int, metavar="N", help="default: 0")
    parser.add_argument(
        "--batch-tokens", **whole, help=f"of one update (default: {of['batch_tokens']})"
    )
    parser.add_argument(
        "--micro-batch-tokens", **whole, help=f"at once (default: {of['micro_batch_tokens']})"
    )
    parser.add_argument(
        "--checkpoint-every", **whole, help=f"so many steps (default: {of['checkpoint_every']})"
    )
    parser.add_argument(
        "--lora", type=count, metavar="RANK", help="train matrices added beside the weights"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="default: 0")
    parser.add_argument("--device", metavar="NAME", help="default: a GPU where there is one")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16"), help=f"of the weights (default: {of['dtype']})"
    )


def _add_data_options(parser: ArgumentParser) -> None:
    """Declare what is learned."""
    parser.add_argument(
        "--max-length",
        type=count,
        metavar="N",
        help="leave out what has more tokens (default: 4096)",
    )
    parser.add_argument(
        "--min-score", type=float, metavar="X", help="leave out what did not score this much"
    )
    parser.add_argument(
        "--held-out",
        type=float,
        metavar="SHARE",
        help="of the prompts: measured, not learned (default: 0)",
    )
    parser.add_argument(
        "--eval-every", type=count, metavar="N", help="measure after so many steps (default: 50)"
    )
    parser.add_argument(
        "--tokens",
        choices=("recorded", "text"),
        help="text: make tokens of the words though ids are recorded, as for another model "
        "(default: recorded)",
    )
    parser.add_argument(
        "--demonstrations",
        choices=("all", "last"),
        help="which answers of a conversation without a rollout are learned (default: all)",
    )
    parser.add_argument(
        "--chat-template", type=Path, metavar="FILE", help="instead of the tokenizer's own"
    )
    parser.add_argument(
        "--skip-unusable",
        action="store_true",
        default=None,
        help="leave out and count samples that no tokens can be had of",
    )


def main(args: Namespace) -> int:
    """Exit status: 0 trained, 3 it broke off, 130 interrupted with a checkpoint."""
    result = _train_with_display(_build_sft_config_from_options(args), args)
    if args.json:
        print_json(sft_result_to_dict(result))
    else:
        print(sanitize_lines("\n".join(format_sft_result(result))))
    if not result.interrupted:
        return EXIT_PASS
    told = f"interrupted; a checkpoint is kept. Go on with:\n  {build_sft_resume_command(args)}"
    print(sanitize_lines(told), file=sys.stderr)
    return EXIT_INTERRUPTED


def _train_with_display(config: SFTConfig, args: Namespace) -> SFTResult:
    stop = Stop()
    with TrainDisplay(quiet=args.quiet) as display, stop_after_step(stop, display):

        def watch(step: SFTStep) -> None:
            display.show(step.step, step.of, format_sft_step(step))

        try:
            return sft_train(config, args.data, resume=args.resume, watch=watch, stop=stop)
        except TrainingError as error:
            go_on = f"checkpoints are kept; go on with:\n  {build_sft_resume_command(args)}"
            raise InconclusiveError(f"{error}\n{go_on}") from error


def _build_sft_config_from_options(args: Namespace) -> SFTConfig:
    given = {name: getattr(args, name) for name in _SFT_OPTIONS if getattr(args, name) is not None}
    try:
        if args.lora is not None:
            given["lora"] = Lora(rank=args.lora, alpha=2 * args.lora)
        return SFTConfig(model_name=args.model, output=args.output, **given)
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][-1]) if problem["loc"] else ""
        option = f"--{name.replace('_', '-')}: " if name in _SFT_OPTIONS else ""
        raise ConfigError(f"{option}{problem['msg']}", where="assay train sft") from None


def format_sft_step(step: SFTStep) -> str:
    """A step in one line."""
    words = [f"loss {step.loss:.4f}", f"epoch {step.epoch:.2f}"]
    if step.held_out_loss is not None:
        words.append(f"held out {step.held_out_loss:.4f}")
    if step.seconds:
        words.append(f"{step.tokens / step.seconds:.0f} tokens/s")
    return ", ".join(words)


def format_sft_result(result: SFTResult) -> list[str]:
    """What came of a training, in words."""
    data, steps = result.data, result.steps
    lines = [f"{'samples':<14}{data.samples} read, {len(data.train)} sequences learned from"]
    for reason, times in sorted(data.left_out.items()):
        lines.append(f"{'':<14}{times} left out: {reason}")
    if data.retokenized:
        lines.append(f"{'':<14}{data.retokenized} with tokens made of text")
    if data.untold:
        lines.append(f"{'':<14}{data.untold} call tools that nothing describes")
    lines.append(f"{'steps':<14}{len(steps)}")
    if steps:
        lines.append(f"{'loss':<14}{steps[0].loss:.4f} at first, {steps[-1].loss:.4f} at last")
    if result.held_out_before is not None:
        after = result.held_out_after
        then = "not measured" if after is None else f"{after:.4f}"
        lines.append(
            f"{'held out':<14}{result.held_out_before:.4f} before, {then} after "
            f"({len(data.held_out)} sequences)"
        )
    if result.model_path is not None:
        lines.append(f"{'model':<14}{result.model_path} (ask it as local:{result.model_path})")
    return lines


def sft_result_to_dict(result: SFTResult) -> dict[str, Any]:
    """The same as plain values."""
    data, steps = result.data, result.steps
    return {
        "samples": data.samples,
        "sequences": len(data.train),
        "held_out_sequences": len(data.held_out),
        "left_out": dict(data.left_out),
        "retokenized": data.retokenized,
        "tools_not_described": data.untold,
        "steps": len(steps),
        "first_loss": steps[0].loss if steps else None,
        "last_loss": steps[-1].loss if steps else None,
        "held_out_before": result.held_out_before,
        "held_out_after": result.held_out_after,
        "output": str(result.output),
        "model": None if result.model_path is None else str(result.model_path),
        "interrupted": result.interrupted,
    }


def build_sft_resume_command(args: Namespace) -> str:
    """What to type to go on with a training."""
    words = ["assay", "train", "sft", args.data, "--model", args.model, "-o", str(args.output)]
    for name in _SFT_OPTIONS:
        value = getattr(args, name)
        if value is not None:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    if args.lora is not None:
        words += ["--lora", str(args.lora)]
    return shlex.join([*words, "--resume"])
