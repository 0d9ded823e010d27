"""What TRL changes in a model besides its weights, and in the process, is put back."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def as_it_was(model: Any) -> Iterator[None]:
    """Inside of it the model has no dropout; after it, only the weights are others.

    With dropout, no logprob could be compared with the recorded one.
    """
    import numpy

    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    forward, training = base.__dict__.get("forward"), model.training
    states = random.getstate(), numpy.random.get_state()
    rates = list(_dropout_rates(model))
    for module, name, _ in rates:
        setattr(module, name, 0.0)
    try:
        yield
    finally:
        for module, name, rate in rates:
            setattr(module, name, rate)
        random.setstate(states[0])
        numpy.random.set_state(states[1])
        model.train(training)
        base.__dict__.pop("forward", None)
        if forward is not None:
            base.forward = forward


def _dropout_rates(model: Any) -> Iterator[tuple[Any, str, float]]:
    """Every number by which a module drops out: of its own, or handed to a function."""
    import torch

    for module in model.modules():
        names = [name for name in vars(module) if "dropout" in name]
        if isinstance(module, torch.nn.Dropout):
            names.append("p")
        for name in names:
            rate = getattr(module, name)
            if isinstance(rate, float) and rate > 0:
                yield module, name, rate
