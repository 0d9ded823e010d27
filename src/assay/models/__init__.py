"""The data types: one sample, and what it is made of."""

from .endpoint import Endpoint
from .identity import stable_id
from .message import ContentBlock, DataBlock, Message, Role, TextBlock, ToolCall
from .result import EvaluateResult, Metric, StepOutput
from .sample import Sample, Status
from .session import AgentSession
from .trajectory import ModelCall, Trajectory, Usage

EvaluationRow = Sample
MetricResult = Metric
Score = EvaluateResult

__all__ = [
    "AgentSession",
    "ContentBlock",
    "DataBlock",
    "Endpoint",
    "EvaluateResult",
    "EvaluationRow",
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
    "Trajectory",
    "Usage",
    "stable_id",
]
