"""`assay train`: learn from recorded answers, or from the scores of new ones."""

from argparse import ArgumentParser, Namespace
from typing import Protocol

from . import train_grpo, train_sft


class _TrainCommand(Protocol):
    """What the module of each way of training offers."""

    def configure(self, parser: ArgumentParser) -> None: ...

    def main(self, args: Namespace) -> int: ...


_TRAIN_ACTIONS: dict[str, tuple[_TrainCommand, str]] = {
    "sft": (train_sft, "learn to say what samples say: supervised fine-tuning"),
    "grpo": (train_grpo, "learn from the scores of the model's own rollouts"),
}


def configure(parser: ArgumentParser) -> None:
    """Declare the two ways of training."""
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
    """Exit status: that of the way of training."""
    return _TRAIN_ACTIONS[args.action][0].main(args)
