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
