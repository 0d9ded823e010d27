"""The data types: one sample, what it is made of, and the manifest that it is held to.

The manifest's types are loaded when they are first asked for: most uses need none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .endpoint import Endpoint
from .failure import Boundary, Failure
from .identity import stable_id
from .message import ContentBlock, DataBlock, Message, Role, TextBlock, ToolCall
from .result import EvaluateResult, Metric, StepOutput
from .sample import Sample, Status
from .session import AgentSession
from .tool import ToolSpec
from .trajectory import ModelCall, Trajectory, Usage
from .wire.atif import from_atif, to_atif
from .wire.eval_record import eval_record_schema, from_eval_record, to_eval_record
from .wire.message_metadata import (
    attach_result,
    attach_trajectory_result,
    read_result,
    read_trajectory_result,
)
from .wire.result_info import info_schema
from .wire.vertex import from_vertex, to_vertex

if TYPE_CHECKING:
    from .manifest import (
        AgentDefinition,
        EvaluationProfile,
        InlineTool,
        Manifest,
        ManifestMetadata,
        McpResourceDefinition,
        PlaceholderDefinition,
        RemoteTool,
        SkillDefinition,
        SourceFile,
        SuccessCriterion,
        ToolDefinition,
        ToolPackDefinition,
        Workflow,
        WorkflowStep,
    )

EvaluationRow = Sample
MetricResult = Metric
Score = EvaluateResult

__all__ = [
    "AgentDefinition",
    "AgentSession",
    "Boundary",
    "ContentBlock",
    "DataBlock",
    "Endpoint",
    "EvaluateResult",
    "EvaluationProfile",
    "EvaluationRow",
    "Failure",
    "InlineTool",
    "Manifest",
    "ManifestMetadata",
    "McpResourceDefinition",
    "Message",
    "Metric",
    "MetricResult",
    "ModelCall",
    "PlaceholderDefinition",
    "RemoteTool",
    "Role",
    "Sample",
    "Score",
    "SkillDefinition",
    "SourceFile",
    "Status",
    "StepOutput",
    "SuccessCriterion",
    "TextBlock",
    "ToolCall",
    "ToolDefinition",
    "ToolPackDefinition",
    "ToolSpec",
    "Trajectory",
    "Usage",
    "Workflow",
    "WorkflowStep",
    "attach_result",
    "attach_trajectory_result",
    "eval_record_schema",
    "from_atif",
    "from_eval_record",
    "from_vertex",
    "info_schema",
    "read_result",
    "read_trajectory_result",
    "stable_id",
    "to_atif",
    "to_eval_record",
    "to_vertex",
]

_OF_MANIFEST = frozenset(
    """
    AgentDefinition EvaluationProfile InlineTool Manifest ManifestMetadata McpResourceDefinition
    PlaceholderDefinition RemoteTool SkillDefinition SourceFile SuccessCriterion ToolDefinition
    ToolPackDefinition Workflow WorkflowStep
    """.split()
)

if not TYPE_CHECKING:
    # Hidden from type checkers, which would otherwise believe that every name exists.
    def __getattr__(name: str) -> object:
        if name not in _OF_MANIFEST:
            raise AttributeError(f"module 'assay.models' has no attribute {name!r}")
        value = getattr(import_module("assay.models.manifest"), name)
        globals()[name] = value
        return value
