"""The judge of a certification: one model, and a rubric for each criterion."""

import re

import rfc8785

from assay.providers import ClientSettings, connect, format_endpoint_name
from assay.scorers import Criterion, Judge, JudgeSettings, Rubric, build_grading_prompt, judge
from assay.stats import Direction
from assay.types import Endpoint, SuccessCriterion, compute_sha256

_INVALID_NAME_CHARACTERS = re.compile(r"[^a-z0-9_]+")
# Guidance and levels are part of the judge's prompt, whose digest certificates contain: rewording
# them makes every judged certificate fail verification.
_GUIDANCE = """\
Grade the last answer of the assistant, beside the reference where one is given. What the
assistant was not asked for does not count for or against it."""
_LEVELS: dict[Direction, dict[float, str]] = {
    "max": {0.0: "it does not meet the description at all", 1.0: "it meets it fully"},
    "min": {0.0: "nothing of what is described occurs", 1.0: "what is described occurs throughout"},
}


class JudgeModel:
    """The judge's model, and the scorers that ask it."""

    def __init__(self, endpoint: Endpoint) -> None:
        # Connect now, to find a missing key before the agent is called.
        self.endpoint = endpoint
        self.name = format_endpoint_name(endpoint)
        self._client = connect(endpoint, ClientSettings())

    def scorer(self, criterion: SuccessCriterion, direction: Direction) -> Judge:
        """Return a scorer that grades one criterion by its description."""
        # A mock returns a fixed answer, and cannot copy the key of a prompt.
        settings = JudgeSettings(require_key=self.endpoint.provider != "mock")
        return judge(build_criterion_rubric(criterion, direction), self._client, settings=settings)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def build_criterion_rubric(criterion: SuccessCriterion, direction: Direction) -> Rubric:
    """Build the rubric of one criterion."""
    # A criterion whose low values are good is graded by how much of it occurs.
    name = (
        _INVALID_NAME_CHARACTERS.sub("_", criterion.name.lower()).strip("_0123456789")[:64]
        or "criterion"
    )
    return Rubric(
        name=criterion.name[:100],
        description=criterion.description,
        guidance=_GUIDANCE,
        criteria=(
            Criterion(name=name, description=criterion.description, levels=_LEVELS[direction]),
        ),
        reference=True,
    )


def digest_judge_prompt(rubric: Rubric) -> str:
    """Digest the judge's prompt without the transcript."""
    asked = build_grading_prompt(rubric, ())
    # Code and key are drawn at random for each prompt.
    texts = [
        message.text.replace(asked.code, "<code>").replace(asked.key, "<key>")
        for message in asked.messages
    ]
    return compute_sha256(rfc8785.dumps(texts))


def count_prompt_characters() -> int:
    """Estimate the length of the judge's prompt without transcript and description."""
    criterion = Criterion(name="criterion", description="?")
    asked = build_grading_prompt(
        Rubric(name="criterion", description="?", criteria=(criterion,)), ()
    )
    return sum(len(message.text) for message in asked.messages)
