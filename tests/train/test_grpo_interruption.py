"""Ctrl-C while a training blocks a running event loop, as in a notebook."""

import asyncio
import os
import signal
from typing import Any

import pytest

from assay.train import grpo_train
from misbehaving import PATIENCE_S


def test_ctrl_c_ends_a_training_inside_a_running_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    async def train(*given: object, **settings: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.wait_for(asyncio.Event().wait(), PATIENCE_S)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def run_cell() -> None:
        config: Any = object()
        grpo_train(config, [], None)

    monkeypatch.setattr("assay.train.grpo.grpo_train_async", train)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run_cell())

    assert ended == ["cancelled"]
    assert signal.getsignal(signal.SIGINT) is before
