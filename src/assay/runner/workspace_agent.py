"""Runs an agent in a folder of its own for each sample, and checks the folder afterwards."""

import asyncio
import time
from pathlib import Path

from assay.agents import (
    CHECK_FILES_FIELD,
    Agent,
    AgentFault,
    PreparationFailed,
    RunContext,
    build_trajectory,
    create_folder,
    hide_expected_answer,
    prepare_workspace,
    write_row_files,
)
from assay.errors import DatasetError, EnvironmentFault
from assay.types import Boundary, EvaluateResult, Sample, Trajectory, redact

from .eval_config import EvalConfig

_OUTPUT_TAIL_CHARS = 4000
# Code that an agent wrote may never end.
_CHECK_TIMEOUT_S = 600.0


class WorkspaceAgent:
    """Prepares the workspace of each sample, runs the agent in it, and runs the check."""

    def __init__(self, agent: Agent, config: EvalConfig, *, dataset_folder: Path | None) -> None:
        self._agent = agent
        self._config = config
        self._dataset_folder = dataset_folder
        self.name = agent.name
        self.identity = agent.identity
        self.boundary: Boundary = getattr(agent, "boundary", Boundary.AGENT)

    async def run(self, sample: Sample, context: RunContext) -> Trajectory:
        """Run the agent. The result of the check is the trajectory's `evaluation_result`."""
        with create_folder() as folder:
            workspace = Path(folder, "workspace")
            await self._prepare(sample, workspace)
            context.workspace = workspace
            started = time.perf_counter()
            answer = await self._agent.run(self.show_sample(sample, context), context)
            trajectory = build_trajectory(answer, context, time.perf_counter() - started)
            if self._config.check_command is None:
                return trajectory
            result = await self._check(sample, workspace)
        return trajectory.model_copy(update={"evaluation_result": result})

    def show_sample(self, sample: Sample, context: RunContext) -> Sample:
        """Return the sample as the agent may see it. The commands may use the expected answer."""
        config = self._config
        prepared = config.prepare_messages is not None or config.session is not None
        return hide_expected_answer(sample, context.messages if prepared else None)

    async def _prepare(self, sample: Sample, workspace: Path) -> None:
        config = self._config
        try:
            # Copying a folder takes long enough to hold up other samples.
            await asyncio.to_thread(
                prepare_workspace,
                sample,
                workspace,
                folder=None if config.workspace is None else Path(config.workspace),
                dataset_folder=self._dataset_folder,
            )
            for command in (config.setup_command, config.check_command):
                if command is not None:
                    command.fill(sample.input, workspace)
        except DatasetError as error:
            raise PreparationFailed(Boundary.DATASET) from error
        except OSError as error:
            raise PreparationFailed(Boundary.ENVIRONMENT) from error
        if config.setup_command is None:
            return
        try:
            end = await config.setup_command.run(sample.input, workspace)
            end.raise_for_status()
        except AgentFault as error:
            failure = EnvironmentFault(error.message, where="setup")
            raise PreparationFailed(Boundary.ENVIRONMENT) from failure

    async def _check(self, sample: Sample, workspace: Path) -> EvaluateResult:
        command = self._config.check_command
        assert command is not None
        try:
            await asyncio.to_thread(write_row_files, sample, CHECK_FILES_FIELD, workspace)
            async with asyncio.timeout(_CHECK_TIMEOUT_S):
                end = await command.run(sample.input, workspace)
        except AgentFault as error:
            # The agent may have removed the script, or its code prints without end.
            return EvaluateResult(score=0.0, reason=redact(f"the check failed: {error.message}"))
        except TimeoutError:
            return EvaluateResult(
                score=0.0, reason=f"the check did not end within {_CHECK_TIMEOUT_S:g} s"
            )
        output = (end.stdout + end.stderr).decode("utf-8", "replace").strip()
        cut = "…" if len(output) > _OUTPUT_TAIL_CHARS else ""
        shown = redact(output)[-_OUTPUT_TAIL_CHARS:]
        reason = "the check passed" if end.status == 0 else f"the check exited with {end.status}"
        return EvaluateResult(
            score=float(end.status == 0), reason=f"{reason}: {cut}{shown}" if shown else reason
        )
