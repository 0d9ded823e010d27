"""A process that learns from what the first one rolled out. It records nothing and prints nothing.

It reads checkpoints from the output folder, which it must be able to see.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from .trl_learner import TrlLearner, TrlStart, write_checkpoint
from .trl_processes import Place, from_first
from .trl_rows import TrlRows


class TrlFollower(TrlLearner):
    """Every process but the first."""

    async def run(self) -> tuple[TrlStart, bool]:
        """What the first process began with, and whether all steps are done."""
        return await asyncio.to_thread(self._follow)

    def _follow(self) -> tuple[TrlStart, bool]:
        start: TrlStart = from_first()
        return start, self.train(start)

    def rows(self, step: int, trainer: Any, here: Place) -> TrlRows | None:
        rows: TrlRows | None = from_first()
        return rows

    def updated(self, step: int, trainer: Any, logs: dict[str, Any]) -> None:
        return None

    def save(self, step: int, trainer: Any) -> None:
        """The first process writes the checkpoint; the others take part in what TRL adds up."""
        due: bool = from_first()
        if due:
            with tempfile.TemporaryDirectory() as folder:
                write_checkpoint(trainer, Path(folder))
