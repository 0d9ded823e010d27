"""A sample as a transcript: everything that happened, nothing that acts on the terminal."""

import unicodedata
from typing import Any

import pytest

from assay.cli.sample_transcript import Transcript
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
    ToolCall,
    Trajectory,
)
from make import answered, asked, called, said, sample, steps


def shown(given: Sample, **options: Any) -> str:
    transcript = Transcript(given, **{"repeat": 0, "repeats": 1, **options})
    return "\n".join(part.plain for part in transcript.parts())


def test_the_outcome_of_a_background_task_names_its_call_and_a_total_cost_is_shown() -> None:
    outcome = Message(role="user", content="It ended.", metadata={"tool_call_id": "call_1"})
    given = sample(asked("Go."), said("Started."), outcome)
    assert given.trajectory is not None
    given.trajectory.cost_usd = 0.0022

    lines = shown(given).splitlines()

    assert "--- 2 user (answers call_1)" in lines
    assert "steps     unknown, 0 model calls, $0.0022" in lines


def test_a_forked_session_says_what_it_repeats() -> None:
    origin = {"session_id": "ses_1", "inherited_messages": 12}
    recorded = {"source": "claude-code", "content_id": "c"}

    given = sample(asked("Go."), said("Gone."), metadata={**recorded, "forked_from": origin})

    assert "fork of   ses_1: 12 messages are from it" in shown(given).splitlines()


def test_a_conversation_is_shown_turn_by_turn() -> None:
    given = sample(
        asked("Where is order 7?"),
        Message(role="assistant", reasoning="look it up", tool_calls=[called("lookup", order="7")]),
        answered("at the desk"),
        said("At the desk."),
        id="order-7",
        ground_truth="desk",
        status=Status.COMPLETED,
        score=EvaluateResult(
            reason="names the place",
            metrics=[Metric("right", 1.0, weight=1.0, reason="same word"), Metric("short", 0.5)],
        ),
    )

    assert shown(given).splitlines() == [
        "sample    order-7",
        "status    completed",
        "ended by  unknown",
        "steps     unknown, 0 model calls",
        "expected  desk",
        "",
        "--- 0 user",
        "Where is order 7?",
        "",
        "--- 1 assistant",
        "look it up",
        '-> lookup [call_1]: {"order":"7"}',
        "",
        "--- 2 tool (answers call_1)",
        "at the desk",
        "",
        "--- 3 assistant",
        "At the desk.",
        "",
        "--- result",
        "score     1",
        "reason    names the place",
        "metric    right 1, weight 1: same word",
        "metric    short 0.5",
    ]


def test_how_a_rollout_ended_and_its_steps_are_shown() -> None:
    trajectory = Trajectory(
        messages=[asked("go")],
        calls=[ModelCall(), ModelCall()],
        steps=2,
        duration=1.5,
        termination_reason="environment",
    )
    given = Sample(prompt="go", trajectory=trajectory, score=steps(0.25, 0.5))

    text = shown(given, repeat=1, repeats=4)

    assert "repeat    1 of 4; --repeat N shows another" in text
    assert "ended by  environment\nsteps     2, 1.500 s, 2 model calls" in text
    assert "step      0: reward 0.25\nstep      1: reward 0.5, terminated\nscore     0.75" in text


def test_a_failure_is_shown_with_its_traceback() -> None:
    failure = Failure(
        boundary=Boundary.ENDPOINT,
        kind="EndpointError",
        message="no answer",
        traceback="Traceback\n  File x\nEndpointError: no answer\n",
        retryable=False,
    )
    given = sample(asked("?"), failure=failure, score=EvaluateResult(error="EndpointError: no"))

    text = shown(given)

    assert "score     not judged\nerror     EndpointError: no\n" in text
    assert text.endswith(
        "--- failed: endpoint\nEndpointError: no answer (not retryable)\n"
        "Traceback\n  File x\nEndpointError: no answer"
    )


def test_a_sample_without_a_result_is_not_judged() -> None:
    assert shown(Sample(prompt="hello")).endswith("--- result\nscore     not judged")


def test_a_score_that_is_not_valid_is_marked() -> None:
    result = EvaluateResult(
        score=0.5, is_score_valid=False, metrics=[Metric(name="x", score=1, is_score_valid=False)]
    )

    text = shown(Sample(prompt="a", score=result))

    assert "score     0.5 (not valid: not judged)\nmetric    x 1 (not valid)" in text


def test_blocks_that_are_no_text_are_named() -> None:
    blocks = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "x"}}]

    text = shown(Sample(prompt=[{"role": "user", "content": blocks}]))

    assert "--- 0 user\nsee\n[image_url: not shown]\n" in text


def test_arguments_that_are_no_json_are_marked() -> None:
    call = ToolCall.model_validate({"name": "f", "arguments": "{broken"})

    assert "-> f (not a JSON object): {broken" in shown(sample(asked("?"), said(None, call)))


@pytest.mark.parametrize("text", ["word " * 2000, "line\n" * 2000])
def test_long_text_is_cut_with_a_note(text: str) -> None:
    given = sample(asked(text), id="long")
    missing = len(text.rstrip()) - (2000 if " " in text else len("line\n" * 40) - 1)

    cut, full = shown(given), shown(given, full=True)

    assert f"[{missing} more characters; --full shows them]" in cut
    assert len(cut) < 2500
    assert text.rstrip() in full
    assert "--full" not in full


def test_of_a_long_traceback_the_end_is_kept() -> None:
    failure = Failure(
        boundary=Boundary.SCORER, kind="E", message="m", traceback="frame\n" * 100 + "E: m"
    )

    text = shown(sample(asked("?"), failure=failure))

    assert "more characters; --full shows them]\nframe\n" in text
    assert text.endswith("frame\nE: m")


def test_a_step_whose_reward_is_unknown_says_so() -> None:
    steps = [StepOutput(step_index=0, base_reward=None)]

    text = shown(Sample(score=EvaluateResult(step_outputs=steps, error="unknown")))

    assert "0: reward unknown" in text


def test_many_steps_are_cut_with_a_note() -> None:
    given = Sample(prompt="a", score=steps(*[0.5] * 60))

    assert "and 10 more steps; --full shows all" in shown(given)
    assert "more steps" not in shown(given, full=True)


HOSTILE = "\x1b[2J\x1b]0;x\x07\x9b2J\u202e\r\x08"


def test_no_text_of_a_sample_reaches_the_terminal_as_it_is() -> None:
    failure = Failure(boundary=Boundary.SCORER, kind=HOSTILE, message=HOSTILE, traceback=HOSTILE)
    message = Message(
        role=HOSTILE,
        content=HOSTILE,
        name=HOSTILE,
        tool_call_id=HOSTILE,
        reasoning=HOSTILE,
        tool_calls=[ToolCall(id=HOSTILE, name=HOSTILE, arguments={HOSTILE: HOSTILE})],
    )
    given = Sample(
        id=HOSTILE,
        prompt=HOSTILE,
        ground_truth=HOSTILE,
        trajectory=Trajectory(messages=[message], termination_reason=HOSTILE),
        failure=failure,
        score=EvaluateResult(
            score=1.0,
            reason=HOSTILE,
            error=HOSTILE,
            metrics=[Metric(HOSTILE, 1.0, reason=HOSTILE)],
            step_outputs=[{"step_index": HOSTILE, "base_reward": 1, "reason": HOSTILE}],  # type: ignore[list-item]  # pydantic reads it
        ),
    )

    for full in (False, True):
        text = shown(given, full=full).replace("\n", "")
        assert not {each for each in text if unicodedata.category(each)[0] == "C"}
