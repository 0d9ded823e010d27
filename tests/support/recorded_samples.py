"""Samples with everything that the page of a sample shows, and a run of them."""

import base64
import struct
import zlib
from typing import Any

from assay.store import Run, Store
from assay.types import (
    Boundary,
    EvaluateResult,
    Failure,
    Message,
    Metric,
    ModelCall,
    Sample,
    Status,
    StepOutput,
    Trajectory,
    Usage,
)
from make import answered, asked, called, said
from recorded_pages import HOSTILE_TEXTS, record_run

RUN, REPEATS = "samples-1", "repeats-1"
LONG_TURNS = 10_000


def record_samples(store: Store) -> None:
    """Record the run `RUN` with one sample of each kind."""
    makers = (judged, checked, steps, nested, branched, files, tokens, markdown, long)
    samples = [make(index) for index, make in enumerate(makers)]
    record_run(store, RUN, samples, name="kinds of samples")
    repeats = [
        (build(0, "twice", [asked("Which?"), said(f"answer {repeat}")], score=result), repeat)
        for repeat, result in enumerate((EvaluateResult(score=1.0), EvaluateResult(score=0.0)))
    ]
    broken = build(1, "retried", [asked("Again?"), said("half an")])
    broken.status, broken.failure = Status.FAILED, failure("no answer within 30 s")
    again = build(1, "retried", [asked("Again?"), said("whole answer")])
    gone = build(2, "failed", [asked("Anyone?")])
    gone.status, gone.failure = Status.FAILED, failure("the server is gone")
    rows = [*repeats, (broken, 0), (again, 0), (gone, 0)]
    record_run(store, REPEATS, rows, name="repeats", total=3, repeats=2)


def failure(message: str) -> Failure:
    return Failure(
        boundary=Boundary.ENDPOINT, kind="TimeoutError", message=message, traceback="line 1\nline 2"
    )


def find_key(run: Run, sample_id: str) -> str:
    """Return the key of the first result of a sample."""
    return next(run.results(sample_id=sample_id)).key


def png(width: int = 2, height: int = 2) -> bytes:
    """A valid image of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress((b"\0" + b"\x30\x49\xc5" * width) * height)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def data_url(content: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def build(index: int, name: str, turns: list[Message], **fields: Any) -> Sample:
    question = next(each.text for each in turns if each.role == "user")
    trajectory = Trajectory(
        messages=turns,
        calls=fields.pop("calls", []),
        duration=2.4,
        termination_reason="agent",
        **fields.pop("trajectory", {}),
    )
    return Sample(
        id=name,
        index=index,
        input={"question": question, "topic": "returns"},
        prompt=question,
        ground_truth=fields.pop("ground_truth", "No, returns are accepted within 30 days."),
        trajectory=trajectory,
        status=Status.COMPLETED,
        **fields,
    )


def judged(index: int) -> Sample:
    """A wrong answer with a tool call, reasoning, and quotes of two judges."""
    wrong = "Yes, **returns** are accepted\nwithin 60 days of delivery (policy §4)."
    turns = [
        Message(role="system", content="You are a support agent.\n" + "Follow the policy. " * 40),
        asked("Can I return a lamp after 40 days?"),
        Message(
            role="assistant",
            content=None,
            tool_calls=[called("search_policy", query="return period", limit=3)],
            reasoning_content="The user asks about returns. I should look the policy up first.",
        ),
        answered("§2 Returns within 30 days of delivery.\n§4 Exchanges within 60 days."),
        said(wrong),
    ]
    evidence = [
        {"quote": "returns** are accepted within 60 days", "turns": [5]},
        {"quote": "Returns within 30 days", "turns": [4]},
        {"quote": "we never take lamps back", "turns": []},
    ]
    usage = Usage(input_tokens=412, output_tokens=38, cost_usd=0.002)
    opinions = [
        {"judge": f"judge-{name}", "score": 0.0, "reason": "it contradicts §2"} for name in "abc"
    ]
    metrics = {
        "factual": Metric(
            score=0.0,
            reason="The answer names 60 days. The policy allows 30. [1 of 3 quotes not found]",
            evidence=evidence,
            agreement=1.0,
            opinions=opinions,
        ),
        "polite": Metric(score=1.0, reason="It is polite.", evidence=[]),
    }
    result = EvaluateResult(
        score=0.0,
        metrics=metrics,
        reason="factual 0.00; polite 1.00",
        judgement={"rubric": "support", "judges": ["judge-a", "judge-b"], "votes": 3, "usable": 3},
    )
    calls = [
        ModelCall(message_index=2, usage=usage, latency_s=1.1),
        ModelCall(message_index=4, usage=usage, latency_s=0.8, finish_reason="stop"),
    ]
    return build(index, "judged", turns, score=result, calls=calls)


def checked(index: int) -> Sample:
    """A failed command, found by a check that names turn and words."""
    turns = [
        Message(role="system", content="You may run commands."),
        asked("Delete the old logs."),
        said("I will look first.", called("bash", command="ls /var/log\nrm -rf /var/log/old")),
        Message(
            role="tool",
            content="rm: cannot remove '/var/log/old': Permission denied",
            tool_call_id="call_1",
            details={"exit_code": 1, "is_error": True},
        ),
        said("They are deleted."),
    ]
    metrics = {
        "no_failed_command": Metric(
            score=0.0, reason="a tool call failed in turn 2: 'Permission denied'"
        ),
        "answers": Metric(score=1.0, reason="the answer in turn 2 is not empty", passed=True),
    }
    return build(index, "checked", turns, score=EvaluateResult(metrics=metrics))


def steps(index: int) -> Sample:
    """An episode with rewards of all signs, and an unknown one."""
    rewards = [0.0, 0.5, -0.25, 1.0, None, 0.0, 2.0]
    outputs = [
        StepOutput(
            step_index=number,
            base_reward=reward,
            terminated=number == len(rewards) - 1,
            reason=f"square {number}",
        )
        for number, reward in enumerate(rewards)
    ]
    turns = [asked("Reach the goal.")]
    for number in range(len(rewards)):
        turns += [said(None, called("move", f"call_{number}", to=f"s{number}"))]
        turns += [answered(f"You are on s{number}.", f"call_{number}")]
    result = EvaluateResult(score=0.75, step_outputs=outputs, reason="goal reached late")
    return build(index, "steps", turns, score=result, trajectory={"steps": len(rewards)})


def nested(index: int) -> Sample:
    """A subagent that starts a subagent, and one that is not recorded."""
    inner = build(0, "agent-b", [asked("Count the files."), said("There are 12 files.")])
    outer = build(
        0,
        "agent-a",
        [
            asked("Research the folder."),
            said(None, called("task", "call_b", prompt="Count the files.")),
            Message(
                role="tool",
                content="12",
                tool_call_id="call_b",
                details={"subagent": "agent-b", "failed": False},
            ),
            said("The folder has 12 files."),
        ],
        metadata={"subagents": [inner.to_dict()]},
    )
    turns = [
        asked("How many files are there?"),
        said(None, called("task", "call_a", prompt="Research the folder.")),
        Message(
            role="tool",
            content="The folder has 12 files.",
            tool_call_id="call_a",
            details={"subagent": "agent-a", "failed": False},
        ),
        said("There are 12."),
    ]
    evidence = [{"quote": "There are 12 files.", "turns": [10]}]
    result = EvaluateResult(metrics={"found": Metric(score=1.0, evidence=evidence)})
    metadata = {"subagents": [outer.to_dict(), {"id": "lost"}]}
    return build(index, "nested", turns, score=result, metadata=metadata)


def branched(index: int) -> Sample:
    """A trajectory with a compaction, a subagent and an edited history."""
    branches = [
        {"reason": "root"},
        {
            "reason": "subagent",
            "parent": 0,
            "parent_call": 0,
            "name": "research",
            "decided_by": "declared",
            "messages": [{"role": "user", "content": "Look it up."}],
        },
        {
            "reason": "compaction",
            "parent": 1,
            "parent_call": 1,
            "decided_by": "tokens",
            "ambiguous": True,
            "messages": [{"role": "user", "content": "Summary so far."}],
        },
    ]
    calls = [ModelCall(message_index=1), ModelCall(branch=1), ModelCall(branch=2)]
    turns = [asked("What is new?"), said("Nothing.")]
    return build(index, "branched", turns, calls=calls, trajectory={"branches": branches})


def files(index: int) -> Sample:
    """Images and files: valid ones, wrong ones, and remote ones."""
    blocks = [
        {"type": "text", "text": "Look at these files."},
        {"type": "image_url", "image_url": {"url": data_url(png(), "image/png")}},
        {"type": "image_url", "image_url": {"url": data_url(b"<script>", "image/png")}},
        {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/pixel.png"}},
        {"type": "file", "file": {"file_data": data_url(b"a,b\n1,2", "text/csv"), "filename": "t"}},
        {"type": "image_url", "image_url": {"url": data_url(SVG, "image/svg+xml")}},
        {"type": "image_url", "image_url": {"url": data_url(png(60_000, 1000), "image/png")}},
        {"type": "file", "file": {"file_data": data_url(b"\0\1", "application/x-thing")}},
        {"type": "hologram", "depth": 3},
    ]
    turns = [Message(role="user", content=blocks), said("Seen.")]
    return build(index, "files", turns)


SVG = b'<svg xmlns="http://www.w3.org/2000/svg" onload="document.title=\'owned\'"/>'


def tokens(index: int) -> Sample:
    """Two calls with token ids, the second of which continues the first."""
    calls = [
        ModelCall(
            prompt_ids=(1, 2, 3),
            completion_ids=(4, 5),
            logprobs=(-0.01, -1.2),
            message_index=1,
        ),
        ModelCall(
            prompt_ids=(1, 2, 3, 4, 5, 6),
            completion_ids=(7, 8, 9),
            logprobs=(-0.3, -4.0, -0.0),
            message_index=3,
        ),
    ]
    turns = [asked("Say hi."), said("hi"), asked("Again."), said("hi hi hi")]
    return build(index, "tokens", turns, calls=calls, score=EvaluateResult(score=0.5))


def markdown(index: int) -> Sample:
    """Markdown with all that must stay inert."""
    text = "\n\n".join(
        (
            "# Title",
            "A **bold** [link](https://example.invalid/x) and ![alt](http://127.0.0.1:9/p.png).",
            "| a | b |\n|:--|--:|\n| 1 | `2` |",
            "- one\n- two",
            "```html\n<b>code</b>\n```",
            *HOSTILE_TEXTS,
        )
    )
    return build(index, "markdown", [asked("Show me."), said(text)])


def long(index: int) -> Sample:
    """10,000 turns, one of them very long."""
    turns = [asked("Count to ten thousand.")]
    for number in range(1, LONG_TURNS):
        role = "assistant" if number % 2 else "user"
        turns.append(Message(role=role, content=f"number {number}"))
    turns[5] = said("begin " + "x" * 300_000 + " the-end")
    return build(index, "long", turns, score=EvaluateResult(score=1.0))
