"""`assay train`: train a model on samples, or on the scores of its own rollouts."""

from argparse import ArgumentParser, Namespace

from . import train_grpo, train_sft
from .arguments import Command, add_actions

_TRAIN_ACTIONS: dict[str, tuple[Command, str]] = {
    "sft": (train_sft, "fine-tune a model on samples (supervised fine-tuning)"),
    "grpo": (train_grpo, "train a model on the scores of its own rollouts (GRPO)"),
}


def configure(parser: ArgumentParser) -> None:
    """Declare the training methods."""
    add_actions(parser, _TRAIN_ACTIONS, metavar="sft|grpo")


def main(args: Namespace) -> int:
    """Run the training method; each has its own exit status."""
    return _TRAIN_ACTIONS[args.action][0].main(args)
