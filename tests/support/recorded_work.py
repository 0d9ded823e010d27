"""Trainings and ingested sessions for the pages, in one call."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from assay.store import RunSpec, Store
from assay.types import (
    EvaluateResult,
    Message,
    ModelCall,
    Sample,
    Status,
    ToolCall,
    Trajectory,
    Usage,
)
from make import asked, said, sample
from recorded_pages import record_run
from store_runs import QUICK


def rollout(step: int, place: int, score: float | None, text: str = "answer") -> Sample:
    """One of two rollouts of a prompt in a step of a training."""
    result = EvaluateResult(score=score) if score is not None else EvaluateResult(reason="unclear")
    return sample(
        asked(f"question {place // 2}"),
        said(f"{text} {step}"),
        id=f"row-{place // 2}",
        group_index=(step - 1) * 2 + place // 2,
        score=result,
        status=Status.COMPLETED,
        metadata={"training_step": step},
    )


def record_training(
    store: Store, steps: list[list[float | None]], *, text: str = "answer", **settings: Any
) -> None:
    """Record the training `t`: the scores of four rollouts for each step."""
    given = {"prompts_per_step": 2, "group_size": 2, "zero_variance": "keep", **settings}
    run = store.start_run(
        RunSpec("t", "grpo" if text == "answer" else text, {"training": given}, "f", "d")
    )

    async def write() -> None:
        async with run.writer(QUICK) as writer:
            for step, scores in enumerate(steps, start=1):
                for place, score in enumerate(scores):
                    body = rollout(step, place, score, text)
                    await writer.record(f"{step}-{place}", body, repeat=2 * step + place % 2)

    # In a thread: an open browser occupies the event loop of this one.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, write()).result()
    for step in range(1, len(steps) + 1):
        run.record_step(step, {"kl": 0.1 * step, "entropy": None, "tokens_per_s": 50.0})
    run.finish("completed")


def session(index: int, *, title: str = "Fix the login", failed: bool = False) -> Sample:
    """An ingested session with one tool call."""
    call = ToolCall(id="a", name="Bash", arguments={})
    answer = Message(
        role="tool", tool_call_id="a", content="no such file", details={"failed": failed}
    )
    turns = [asked("Please."), said(None, call), answer, said("Done.")]
    usage = Usage(input_tokens=100, output_tokens=10, cost_usd=0.25)
    return Sample(
        id=f"ses-{index}",
        index=index,
        input={
            "title": title,
            "created": f"2026-02-{index + 1:02}T09:00:00Z",
            "project": "shop",
            "directory": f"/srv/me/shop-{index}",
        },
        prompt=turns,
        trajectory=Trajectory(messages=turns, calls=[ModelCall(usage=usage)]),
        status=Status.COMPLETED,
        metadata={"content_id": "c", "source": "claude-code"},
    )


def record_sessions(store: Store, sessions: list[Sample]) -> None:
    """Record sessions as one import."""
    config = {"ingest": "claude-code"}
    record_run(store, "claude-1", sessions, name="ingest claude-code", config=config)
