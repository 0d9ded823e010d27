"""`assay train sft`: supervised fine-tuning on samples."""

import shlex
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from assay.errors import ConfigError, TrainingError
from assay.runner import Stop
from assay.train import Lora, SFTConfig, SFTResult, SFTStep, sft_train

from .arguments import add_count, add_flag, parse_count
from .exit_status import EXIT_INTERRUPTED, EXIT_PASS, InconclusiveError
from .output import format_field, print_message, print_report
from .resume import format_options, format_resume_hint
from .train_display import TrainDisplay, stop_after_step

# Options with the name of their setting; one that is not given keeps the setting's default.
_SFT_OPTIONS = (
    "steps epochs learning_rate schedule warmup_steps batch_tokens micro_batch_tokens max_length "
    "held_out eval_every checkpoint_every tokens demonstrations chat_template min_score "
    "skip_unusable seed device dtype"
).split()


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "data",
        metavar="DATA",
        help="samples or conversations: a file, a bundle, a folder or a dataset name",
    )
    parser.add_argument(
        "--model", metavar="FOLDER", required=True, help="Hugging Face model folder"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        type=Path,
        required=True,
        help="folder for the trained model, metrics and checkpoints",
    )
    _add_learning_options(parser)
    _add_data_options(parser)
    add_flag(parser, "--resume", "resume the training in the output folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def _add_learning_options(parser: ArgumentParser) -> None:
    default = {name: field.default for name, field in SFTConfig.model_fields.items()}
    whole: dict[str, Any] = {"type": parse_count, "metavar": "N"}
    parser.add_argument("--steps", **whole, help="number of weight updates, instead of epochs")
    parser.add_argument(
        "--epochs", **whole, help=f"passes over the data (default: {default['epochs']})"
    )
    parser.add_argument(
        "--learning-rate",
        type=float,
        metavar="X",
        help=f"learning rate (default: {default['learning_rate']:g})",
    )
    parser.add_argument(
        "--schedule",
        choices=("constant", "linear", "cosine"),
        help=f"schedule of the learning rate (default: {default['schedule']})",
    )
    parser.add_argument(
        "--warmup-steps", type=int, metavar="N", help="steps of linear warmup (default: 0)"
    )
    parser.add_argument(
        "--batch-tokens",
        **whole,
        help=f"tokens of one weight update (default: {default['batch_tokens']})",
    )
    parser.add_argument(
        "--micro-batch-tokens",
        **whole,
        help=f"tokens of one forward pass (default: {default['micro_batch_tokens']})",
    )
    parser.add_argument(
        "--checkpoint-every",
        **whole,
        help=f"save a checkpoint every N steps (default: {default['checkpoint_every']})",
    )
    parser.add_argument(
        "--lora", type=parse_count, metavar="RANK", help="train a LoRA adapter of this rank"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="random seed (default: 0)")
    parser.add_argument("--device", metavar="NAME", help="device (default: a GPU if available)")
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16"),
        help=f"type of the weights (default: {default['dtype']})",
    )


def _add_data_options(parser: ArgumentParser) -> None:
    add_count(parser, "--max-length", "drop samples with more tokens (default: 4096)")
    parser.add_argument("--min-score", type=float, metavar="X", help="drop samples that score less")
    parser.add_argument(
        "--held-out",
        type=float,
        metavar="SHARE",
        help="share of the prompts for evaluation instead of training (default: 0)",
    )
    add_count(parser, "--eval-every", "evaluate every N steps (default: 50)")
    parser.add_argument(
        "--tokens",
        choices=("recorded", "text"),
        help="text: retokenize the text although token ids are recorded, as for another model "
        "(default: recorded)",
    )
    parser.add_argument(
        "--demonstrations",
        choices=("all", "last"),
        help="answers to train on in a conversation without a rollout (default: all)",
    )
    parser.add_argument(
        "--chat-template",
        type=Path,
        metavar="FILE",
        help="use this chat template instead of the tokenizer's own",
    )
    parser.add_argument(
        "--skip-unusable",
        action="store_true",
        default=None,
        help="drop and count samples that cannot be tokenized",
    )


def main(args: Namespace) -> int:
    """Exit status: 0 trained, 3 aborted, 130 interrupted with a checkpoint."""
    result = _train_with_display(_build_sft_config_from_options(args), args)
    print_report(args, format_sft_result(result), sft_result_to_dict(result))
    if not result.interrupted:
        return EXIT_PASS
    print_message(f"interrupted; {_format_hint(args)}")
    return EXIT_INTERRUPTED


def _train_with_display(config: SFTConfig, args: Namespace) -> SFTResult:
    stop = Stop()
    with TrainDisplay(quiet=args.quiet) as display, stop_after_step(stop, display):

        def watch(step: SFTStep) -> None:
            display.show(step.step, step.of, format_sft_step(step))

        try:
            return sft_train(config, args.data, resume=args.resume, watch=watch, stop=stop)
        except TrainingError as error:
            raise InconclusiveError(f"{error}\n{_format_hint(args)}") from error


def _build_sft_config_from_options(args: Namespace) -> SFTConfig:
    given = {name: getattr(args, name) for name in _SFT_OPTIONS if getattr(args, name) is not None}
    try:
        if args.lora is not None:
            # The usual ratio of alpha to rank.
            given["lora"] = Lora(rank=args.lora, alpha=2 * args.lora)
        return SFTConfig(model_name=args.model, output=args.output, **given)
    except ValidationError as error:
        problem = error.errors()[0]
        # Named as the option, not as the setting behind it.
        name = str(problem["loc"][-1]) if problem["loc"] else ""
        option = f"--{name.replace('_', '-')}: " if name in _SFT_OPTIONS else ""
        raise ConfigError(f"{option}{problem['msg']}", where="assay train sft") from None


def format_sft_step(step: SFTStep) -> str:
    """Format a step in one line."""
    words = [f"loss {step.loss:.4f}", f"epoch {step.epoch:.2f}"]
    if step.held_out_loss is not None:
        words.append(f"held out {step.held_out_loss:.4f}")
    if step.seconds:
        words.append(f"{step.tokens / step.seconds:.0f} tokens/s")
    return ", ".join(words)


def format_sft_result(result: SFTResult) -> list[str]:
    """Return the report of a training as text."""
    data, steps = result.data, result.steps
    text = f"{data.samples} read, {len(data.train)} sequences to train on"
    lines = [format_field("samples", text)]
    for reason, times in sorted(data.left_out.items()):
        lines.append(format_field("", f"{times} left out: {reason}"))
    if data.retokenized:
        lines.append(format_field("", f"{data.retokenized} retokenized from text"))
    if data.untold:
        lines.append(format_field("", f"{data.untold} call tools without a definition"))
    lines.append(format_field("steps", len(steps)))
    if steps:
        text = f"{steps[0].loss:.4f} first, {steps[-1].loss:.4f} last"
        lines.append(format_field("loss", text))
    if result.held_out_before is not None:
        after = result.held_out_after
        then = "not measured" if after is None else f"{after:.4f}"
        text = f"{result.held_out_before:.4f} before, {then} after ({len(data.held_out)} sequences)"
        lines.append(format_field("held out", text))
    if result.model_path is not None:
        text = f"{result.model_path} (model string: local:{result.model_path})"
        lines.append(format_field("model", text))
    return lines


def sft_result_to_dict(result: SFTResult) -> dict[str, Any]:
    """Return the report as plain values."""
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
    """Build the command that resumes a training."""
    words = ["assay", "train", "sft", args.data, "--model", args.model, "-o", str(args.output)]
    return shlex.join([*words, *format_options(args, (*_SFT_OPTIONS, "lora")), "--resume"])


def _format_hint(args: Namespace) -> str:
    return format_resume_hint(build_sft_resume_command(args), kept="checkpoints")
