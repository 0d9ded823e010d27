"""The data types: one sample, and what it is made of."""

from .endpoint import Endpoint
from .failure import Boundary, Failure
from .identity import stable_id
from .message import ContentBlock, DataBlock, Message, Role, TextBlock, ToolCall
from .result import EvaluateResult, Metric, StepOutput
from .sample import Sample, Status
from .session import AgentSession
from .tool import ToolSpec
from .trajectory import ModelCall, Trajectory, Usage

EvaluationRow = Sample
MetricResult = Metric
Score = EvaluateResult

__all__ = [
    "AgentSession",
    "Boundary",
    "ContentBlock",
    "DataBlock",
    "Endpoint",
    "EvaluateResult",
    "EvaluationRow",
    "Failure",
    "Message",
    "Metric",
    "MetricResult",
    "ModelCall",
    "Role",
    "Sample",
    "Score",
    "Status",
    "StepOutput",
    "TextBlock",
    "ToolCall",
    "ToolSpec",
    "Trajectory",
    "Usage",
    "stable_id",
]
