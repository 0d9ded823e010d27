"""Judges for tests: what they answer, in one line."""

import json
from collections.abc import Callable, Sequence

from assay.providers import Reply
from assay.scorers import Rubric
from assay.types import Endpoint, Message, ModelCall, Sample, ToolSpec, Usage
from make import asked, said, sample

DONE = Rubric.model_validate(
    {
        "name": "done",
        "description": "Is it done?",
        "criteria": [{"name": "done", "description": "Is it?"}],
    }
)


def graded(reason: str = "because", *quotes: str, **scores: float | None) -> Message:
    """An answer that gives these criteria these scores."""
    criteria = {
        name: {"reason": reason, "evidence": list(quotes), "score": score}
        for name, score in scores.items()
    }
    return said(json.dumps({"criteria": criteria}))


def conversation(answer: str = "All done.", **fields: str) -> Sample:
    return sample(asked("Do it."), said(answer), **fields)


class Reading:
    """A judge that makes its answer from the question."""

    def __init__(self, answer: Callable[[str, str], str], name: str = "reading") -> None:
        self.endpoint = Endpoint(provider="mock", model=name)
        self._answer = answer
        self.closed = False

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        seed: int | None = None,
    ) -> Reply:
        text = self._answer(messages[0].text, messages[1].text)
        usage = Usage(input_tokens=1, output_tokens=1, cost_usd=0.01)
        return Reply(said(text), ModelCall(usage=usage, finish_reason="stop"))

    async def close(self) -> None:
        self.closed = True
