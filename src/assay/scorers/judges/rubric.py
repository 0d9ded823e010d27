"""What a judge is asked to look at: a rubric of named criteria."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from assay.types import stable_id

Share = Annotated[FiniteFloat, Field(ge=0, le=1)]
"""A number from 0 to 1."""


class Criterion(BaseModel):
    """One question of a rubric, answered with a number from 0 to 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)
    """Becomes the name of the metric."""

    description: str = Field(min_length=1)
    levels: dict[Share, str] = Field(default_factory=dict)
    """What some scores mean, so that two judges mean the same by them."""

    weight: FiniteFloat = Field(default=1.0, gt=0)
    """Share in the sample's score."""

    optional: bool = False
    """Left out of the score where the judge finds that it does not apply."""


class Rubric(BaseModel):
    """What makes a transcript good, in words that a judge is shown."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, max_length=100)
    description: str = Field(min_length=1)
    guidance: str = ""
    """How to go about it, for all criteria."""

    criteria: tuple[Criterion, ...] = Field(min_length=1, max_length=50)
    threshold: Share = 0.5
    """Scores from here on count as a pass: where votes are split, and beside human labels."""

    reasoning: bool = False
    """Whether the judge is shown the model's own reasoning."""

    reference: bool = False
    """Whether the judge is shown the sample's ground truth, where there is one."""

    subagents: bool = True
    """Whether the judge is shown the sessions of subagents that are recorded in the sample."""

    @model_validator(mode="after")
    def _names_are_different(self) -> Self:
        names = [criterion.name for criterion in self.criteria]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two criteria are named {name!r}")
        return self

    @property
    def digest(self) -> str:
        """Tells two versions of a rubric apart."""
        # Without the default, so that rubrics from before there was a choice keep their digest.
        left_out = {"subagents"} if self.subagents else None
        return stable_id(self.model_dump(mode="json", exclude=left_out))[:8]
