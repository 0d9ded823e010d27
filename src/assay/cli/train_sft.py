"""`assay train sft`: supervised fine-tuning on samples."""

from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from assay.errors import ConfigError, TrainingError
from assay.runner import Stop
from assay.train import Lora, SFTConfig, SFTResult, SFTStep, sft_train

from .arguments import add_flag, add_report_options, add_report_to_option, parse_count
from .exit_status import EXIT_INTERRUPTED, EXIT_PASS, InconclusiveError
from .output import format_fields, print_message, print_report
from .resume import format_options, format_resume_hint, join_command
from .train_display import TrainDisplay, stop_after_step

_COUNT: dict[str, Any] = {"type": parse_count, "metavar": "N"}
_NUMBER: dict[str, Any] = {"type": float, "metavar": "X"}
# Named like their setting: one that is not given keeps the setting's default, which help shows.
_SFT_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "num_steps": (_COUNT, "number of weight updates, instead of epochs"),
    "epochs": (_COUNT, "passes over the data"),
    "learning_rate": (_NUMBER, "learning rate"),
    "schedule": ({"choices": ("constant", "linear", "cosine")}, "schedule of the learning rate"),
    "warmup_steps": ({"type": int, "metavar": "N"}, "steps of linear warmup"),
    "batch_tokens": (_COUNT, "tokens of one weight update"),
    "micro_batch_tokens": (_COUNT, "tokens of one forward pass"),
    "checkpoint_every": (_COUNT, "save a checkpoint every N steps"),
    "lora": ({"type": parse_count, "metavar": "RANK"}, "train a LoRA adapter of this rank"),
    "seed": ({"type": int, "metavar": "N"}, "random seed"),
    "device": ({"metavar": "NAME"}, "device (default: a GPU if available)"),
    "dtype": ({"choices": ("float32", "bfloat16")}, "type of the weights"),
    "max_length": (_COUNT, "drop samples with more tokens"),
    "min_score": (_NUMBER, "drop samples that score less"),
    "held_out": (
        {"type": float, "metavar": "SHARE"},
        "share of the prompts for evaluation instead of training",
    ),
    "eval_every": (_COUNT, "evaluate every N steps"),
    "patience": (_COUNT, "stop after N evaluations without a lower loss, and keep the best model"),
    "tokens": (
        {"choices": ("recorded", "text")},
        "text: retokenize the text although token ids are recorded, as for another model",
    ),
    "demonstrations": (
        {"choices": ("all", "last")},
        "answers to train on in a conversation without a rollout",
    ),
    "chat_template": (
        {"type": Path, "metavar": "FILE"},
        "use this chat template instead of the tokenizer's own",
    ),
    "skip_unusable": (
        {"action": "store_true", "default": None},
        "drop and count samples that cannot be tokenized",
    ),
}


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
    for name, (kind, text) in _SFT_OPTIONS.items():
        default = SFTConfig.model_fields[name].default
        if default is not None and default is not False:
            shown = f"{default:g}" if isinstance(default, float) else default
            text += f" (default: {shown})"
        parser.add_argument(f"--{name.replace('_', '-')}", **kind, help=text)
    # The name of `--num-steps` in release 0.2.0.
    parser.add_argument("--steps", **_COUNT, help=SUPPRESS)
    add_report_to_option(parser)
    add_flag(parser, "--resume", "resume the training in the output folder")
    add_report_options(parser, quiet=True)


def main(args: Namespace) -> int:
    """Exit status: 0 trained, 3 aborted, 130 interrupted with a checkpoint."""
    config, stop = _build_sft_config_from_options(args), Stop()
    hint = format_resume_hint(build_sft_resume_command(args), kept="checkpoints")
    with TrainDisplay(quiet=args.quiet) as display, stop_after_step(stop, display):

        def watch(step: SFTStep) -> None:
            display.show(step.step, step.of, format_sft_step(step))

        try:
            result = sft_train(config, args.data, resume=args.resume, watch=watch, stop=stop)
        except TrainingError as error:
            raise InconclusiveError(f"{error}\n{hint}") from error
    print_report(args, format_sft_result(result), sft_result_to_dict(result))
    if not result.interrupted:
        return EXIT_PASS
    print_message(f"interrupted; {hint}")
    return EXIT_INTERRUPTED


def _build_sft_config_from_options(args: Namespace) -> SFTConfig:
    names = (*_SFT_OPTIONS, "steps")
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    try:
        if args.lora is not None:
            # The usual ratio of alpha to rank.
            given["lora"] = Lora(rank=args.lora, alpha=2 * args.lora)
        if args.report_to is not None:
            given["report_to"] = args.report_to
        return SFTConfig(model_name=args.model, output=args.output, **given)
    except ValidationError as error:
        # One at a time: later problems often follow from the first.
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
    samples = [f"{data.samples} read, {len(data.train)} sequences to train on"]
    samples += [f"{times} left out: {reason}" for reason, times in sorted(data.left_out.items())]
    if data.retokenized:
        samples.append(f"{data.retokenized} retokenized from text")
    if data.untold:
        samples.append(f"{data.untold} call tools without a definition")
    held_out, model = None, None
    if (before := result.held_out_before) is not None:
        after = result.held_out_after
        then = "not measured" if after is None else f"{after:.4f}"
        held_out = f"{before:.4f} before, {then} after ({len(data.held_out)} sequences)"
    if result.model_path is not None:
        model = f"{result.model_path} (model string: local:{result.model_path})"
    return format_fields(
        {
            "samples": samples,
            "steps": len(steps),
            "loss": f"{steps[0].loss:.4f} first, {steps[-1].loss:.4f} last" if steps else None,
            "held out": held_out,
            "stopped": "early: the held-out loss stopped falling" if result.stopped_early else None,
            "best model": result.best_model_path,
            "model": model,
        }
    )


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
        "best_model": None if result.best_model_path is None else str(result.best_model_path),
        "stopped_early": result.stopped_early,
        "output": str(result.output),
        "model": None if result.model_path is None else str(result.model_path),
        "interrupted": result.interrupted,
    }


def build_sft_resume_command(args: Namespace) -> str:
    """Build the command that resumes a training."""
    words = ["assay", "train", "sft", args.data, "--model", args.model, "-o", str(args.output)]
    options = format_options(args, (*_SFT_OPTIONS, "steps", "report_to"))
    return join_command([*words, *options, "--resume"])
