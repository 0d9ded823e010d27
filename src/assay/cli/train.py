"""`assay train`: train a model on samples, or on the scores of its own rollouts."""

from argparse import ArgumentParser, Namespace
from typing import Protocol

from . import train_grpo, train_sft


class _TrainCommand(Protocol):
    """The interface of a training method's module."""

    def configure(self, parser: ArgumentParser) -> None: ...

    def main(self, args: Namespace) -> int: ...


_TRAIN_ACTIONS: dict[str, tuple[_TrainCommand, str]] = {
    "sft": (train_sft, "fine-tune a model on samples (supervised fine-tuning)"),
    "grpo": (train_grpo, "train a model on the scores of its own rollouts (GRPO)"),
}


def configure(parser: ArgumentParser) -> None:
    """Declare the training methods."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="sft|grpo")
    for name, (module, purpose) in _TRAIN_ACTIONS.items():
        action = actions.add_parser(
            name,
            help=purpose,
            description=f"{purpose[0].upper()}{purpose[1:]}.",
            allow_abbrev=False,
        )
        module.configure(action)


def main(args: Namespace) -> int:
    """Run the training method; each has its own exit status."""
    return _TRAIN_ACTIONS[args.action][0].main(args)
