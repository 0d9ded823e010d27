"""A manifest: agent definitions with their certification criteria."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, PrivateAttr, StrictBool

from assay.errors import ManifestError

from .definitions import (
    AgentDefinition,
    Definition,
    EvaluationProfile,
    InlineTool,
    McpResourceDefinition,
    Name,
    NonBlankText,
    PlaceholderDefinition,
    RemoteTool,
    SkillDefinition,
    SuccessCriterion,
    ToolDefinition,
    ToolPackDefinition,
)
from .frozen_models import ExtensibleModel, FrozenDict, FrozenJson, FrozenModel, FrozenOpenModel
from .guarded_yaml import write_yaml
from .manifest_references import SourceFile, read_manifest
from .model_problems import validate_document

__all__ = [
    "AgentDefinition",
    "Definition",
    "EvaluationProfile",
    "InlineTool",
    "Manifest",
    "ManifestMetadata",
    "McpResourceDefinition",
    "PlaceholderDefinition",
    "RemoteTool",
    "SkillDefinition",
    "SourceFile",
    "SuccessCriterion",
    "ToolDefinition",
    "ToolPackDefinition",
    "Workflow",
    "WorkflowStep",
]


class ManifestMetadata(FrozenOpenModel):
    """The name, version and description of a manifest."""

    name: NonBlankText
    version: Name = "0.1.0"
    description: NonBlankText | None = None
    created: Name | None = None
    requires_auth: StrictBool | None = None
    tested_models: tuple[Name, ...] = ()


class WorkflowStep(FrozenOpenModel):
    """One step of a workflow. Workflows are read and written; assay does not run them."""

    type: Literal["agent", "logic", "council", "switch", "placeholder"]


class Workflow(FrozenModel):
    """The steps that agents take together."""

    start: Name
    steps: FrozenDict[WorkflowStep]


class Manifest(ExtensibleModel):
    """The definitions of one manifest, complete or as the `definitions` fragment alone."""

    api_version: Literal["coreason.ai/v2"] = Field(default="coreason.ai/v2", alias="apiVersion")
    kind: Literal["Recipe", "Agent"] | None = None
    metadata: ManifestMetadata | None = None
    interface: FrozenDict[FrozenJson] | None = None
    state: FrozenDict[FrozenJson] | None = None
    policy: FrozenDict[FrozenJson] | None = None
    definitions: FrozenDict[Definition]
    workflow: Workflow | None = None

    _files: tuple[SourceFile, ...] = PrivateAttr(default=())
    _root: Path | None = PrivateAttr(default=None)

    @classmethod
    def load(
        cls,
        source: str | PathLike[str] | Mapping[str, Any],
        *,
        root: str | PathLike[str] | None = None,
    ) -> Self:
        """Read a manifest from a YAML or JSON file, or from plain values.

        References may only lead to files inside `root`, by default the manifest's folder. Raises
        `ManifestError` that lists every problem with file, line and path.
        """
        document = read_manifest(source, root)
        manifest = validate_document(document, cls, kind=ManifestError)
        manifest._files = document.files
        manifest._root = document.root
        return manifest

    def dump(self) -> str:
        """Return the manifest as YAML. Reading it returns an equal manifest."""
        return write_yaml(self.model_dump(mode="json", by_alias=True, exclude_defaults=True))

    @property
    def agents(self) -> dict[str, AgentDefinition]:
        """The definitions that are agents, by their key."""
        found = self.definitions.items()
        return {key: each for key, each in found if isinstance(each, AgentDefinition)}

    def select_agents(self, name: str | None) -> dict[str, AgentDefinition]:
        """Return the agents with this key or id, by their key. None: all agents."""
        return {key: each for key, each in self.agents.items() if name in (None, key, each.id)}

    @property
    def path(self) -> Path | None:
        """The file it was read from; None for a manifest from memory."""
        return self._files[0].path if self._files else None

    @property
    def root(self) -> Path | None:
        """The folder that contains its references and its local datasets."""
        return self._root

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """The manifest's own file, then those it refers to, each with its digest."""
        return self._files

    # The source files are not part of a manifest's content, so private attributes are ignored.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Manifest) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))
