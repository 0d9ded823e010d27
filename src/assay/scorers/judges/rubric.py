"""Rubrics: named criteria with weights that a judge grades by."""

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
    """The meaning of some scores, which anchors judges to the same scale."""

    weight: FiniteFloat = Field(default=1.0, gt=0)
    """Share in the sample's score."""

    optional: bool = False
    """Excluded from the score when the judges find that it does not apply."""


class Rubric(BaseModel):
    """The instructions and criteria that a judge grades by."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, max_length=100)
    description: str = Field(min_length=1)
    guidance: str = ""
    """Instructions for all criteria."""

    criteria: tuple[Criterion, ...] = Field(min_length=1, max_length=50)
    threshold: Share = 0.5
    """Scores of at least this are a pass, for split votes and for calibration."""

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
        """A hash of the rubric, which changes with its version."""
        # Without the default value, so that rubrics written before this field keep their digest.
        left_out = {"subagents"} if self.subagents else None
        return stable_id(self.model_dump(mode="json", exclude=left_out))[:8]
