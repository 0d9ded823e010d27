"""A store for the pages: runs with repeats, failures, tool calls and hostile text, in one call."""

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from assay.store import Run, RunSpec, Store, sample_key
from assay.types import (
    Boundary,
    EvaluateResult,
    Failure,
    Message,
    Metric,
    ModelCall,
    Sample,
    Status,
    ToolCall,
    Trajectory,
    Usage,
)
from make import answered, asked, said
from store_runs import QUICK

HOSTILE_TEXTS = (
    "<script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "[click](javascript:document.title='owned') ![](http://127.0.0.1:9/pixel.png)",
    '<svg onload="document.title=\'owned\'"><a href="javascript:alert(1)">x</a></svg>',
    "</script><script>document.title='owned'</script>",
    "safe\u202egnp.exe\u2066 and \x1b[2J\x1b]0;owned\x07 and \u200b hidden",
    '=HYPERLINK("http://127.0.0.1:9/","click")',
    "{{ 7 * 7 }} {% raw %} ${7*7}",
)
"""Texts of models that must never run, load or reorder anything."""


@dataclass(frozen=True)
class RecordedPages:
    """The ids of the runs that `record_pages` made."""

    baseline: str = "tickets-1"
    """40 samples of the evaluation `support-bot`, all scored."""

    changed: str = "tickets-2"
    """The same samples with other answers: some better, some worse, three failed."""

    repeats: str = "sums-1"
    """Six samples with three repeats each."""

    hostile: str = "hostile-1"
    """One sample for each of `HOSTILE_TEXTS`, in every text field."""


def record_pages(store: Store) -> RecordedPages:
    """Record all runs into an empty store, oldest first."""
    pages = RecordedPages()
    record_run(store, pages.baseline, (ticket(index) for index in range(40)), name="support-bot")
    record_run(
        store,
        pages.changed,
        (ticket(index, changed=True) for index in range(40)),
        name="support-bot",
        agent="openai:gpt-5-mini",
    )
    sums = [(total(index, repeat), repeat) for index in range(6) for repeat in range(3)]
    record_run(store, pages.repeats, sums, name="sums", total=6, repeats=3)
    record_run(store, pages.hostile, map(hostile, range(len(HOSTILE_TEXTS))), name=HOSTILE_TEXTS[0])
    return pages


def record_run(
    store: Store,
    run_id: str,
    samples: Iterable[Sample | tuple[Sample, int]],
    *,
    name: str = "eval",
    finish: bool = True,
    **spec: Any,
) -> Run:
    """Record samples, or pairs of a sample and its repeat, as a new run.

    A run that is not finished is in progress for as long as the returned object is kept.
    """
    given = [each if isinstance(each, tuple) else (each, 0) for each in samples]
    agent = spec.pop("agent", "openai:gpt-5")
    run = store.start_run(
        RunSpec(
            run_id,
            name,
            spec.pop("config", {"agent": {"name": agent}}),
            "c1",
            spec.pop("dataset", f"{name[:20]}.jsonl"),
            dataset_fingerprint="d1",
            total=spec.pop("total", len(given)),
            **spec,
        )
    )

    async def work() -> None:
        async with run.writer(QUICK) as writer:
            for sample, repeat in given:
                key = sample_key(run_id, sample.id, repeat, "c1")
                if sample.failure is None:
                    await writer.record(key, sample, repeat=repeat)
                else:
                    await writer.record_failure(key, sample, repeat=repeat)

    # In a thread: an open browser occupies the event loop of this one.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work()).result()
    if finish:
        run.finish("completed")
    return run


PRODUCTS = ("lamp", "desk", "chair", "rug")


def ticket(index: int, *, changed: bool = False) -> Sample:
    """A question about an order, answered with a tool; `changed` is a later version of the bot."""
    question = f"Can I return the {PRODUCTS[index % 4]} of order {5100 + index}?"
    right = index % 5 != 0 if not changed else index % 4 != 0
    row = {
        "question": question,
        "answer": "Yes, within 30 days.",
        "product": PRODUCTS[index % 4],
        "price": 20 + index,
    }
    fields: dict[str, Any] = {
        "id": f"ticket-{index}",
        "index": index,
        "input": row,
        "prompt": question,
        "ground_truth": row["answer"],
        "metadata": {"test": "test_bot.py::test_tickets", "threshold": 0.85},
    }
    if changed and index in (7, 19, 31):
        failure = Failure(
            boundary=Boundary.ENDPOINT if index == 7 else Boundary.AGENT,
            kind="TimeoutError",
            message=f"no answer within {30 if index == 7 else 60} s",
        )
        return Sample(status=Status.FAILED, failure=failure, **fields)
    call = ToolCall(id="call_1", name="lookup_order", arguments={"order": 5100 + index})
    answer = "Yes, within 30 days." if right else "Yes, returns are accepted within 60 days."
    turns = [
        Message(role="system", content="You are a support agent. Follow the returns policy."),
        asked(question),
        said(None, call),
        answered('{"status": "delivered", "days": 12}'),
        said(answer),
    ]
    return Sample(
        trajectory=_trajectory(turns, seconds=0.8 + (index * 7 % 23) / 10, tokens=300 + index * 9),
        score=EvaluateResult(
            score=1.0 if right else 0.4 if index % 3 else 0.0,
            reason="all criteria met" if right else "contradicts policy §2: 30 days, not 60",
            metrics={
                "policy": Metric(score=float(right), reason="the answer names 30 days"),
                "tone": Metric(score=0.9 if right else 0.6, reason="polite"),
            },
        ),
        status=Status.COMPLETED,
        **fields,
    )


def total(index: int, repeat: int) -> Sample:
    """A sum that is right in some of its repeats."""
    question, right = f"What is {index} + {index}?", (index + repeat) % 3 != 0
    turns = [asked(question), said(str(2 * index if right else 2 * index + 1))]
    return Sample(
        id=f"sum-{index}",
        index=index,
        input={"question": question, "answer": str(2 * index)},
        prompt=question,
        ground_truth=str(2 * index),
        trajectory=_trajectory(turns, seconds=0.2 + repeat / 10, tokens=20),
        score=EvaluateResult(score=float(right), reason=None if right else "off by one"),
        status=Status.COMPLETED,
    )


def hostile(index: int) -> Sample:
    """A sample with a hostile text in every field that a page shows."""
    text = HOSTILE_TEXTS[index]
    call = ToolCall(id="call_1", name="lookup", arguments={"query": text})
    turns = [
        Message(role="system", content=text),
        asked(text),
        Message(role="assistant", content=None, tool_calls=[call], reasoning_content=text),
        answered(text),
        said(text),
    ]
    return Sample(
        id=f"hostile-{index}-{text}"[:60],
        index=index,
        input={"question": text, "answer": text, text[:40]: text},
        prompt=text,
        ground_truth=text,
        trajectory=_trajectory(turns, seconds=1.0, tokens=10),
        score=EvaluateResult(
            score=index / 10, reason=text, metrics={text[:40]: Metric(score=0.5, reason=text)}
        ),
        status=Status.COMPLETED,
        metadata={"note": text},
    )


def _trajectory(turns: list[Message], *, seconds: float, tokens: int) -> Trajectory:
    usage = Usage(input_tokens=tokens, output_tokens=tokens // 4, cost_usd=tokens * 1e-6)
    return Trajectory(
        messages=turns,
        calls=[ModelCall(usage=usage, latency_s=seconds)],
        duration=seconds,
        termination_reason="agent",
    )
