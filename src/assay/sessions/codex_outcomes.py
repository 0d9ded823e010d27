"""Determine whether a tool call of a Codex session failed.

Codex's own records of the execution decide. The text sent to the model is used only where there
are none.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from .foreign_values import dict_or_empty

_CODEX_EXIT_CODE = re.compile(r"(?:^|\n)(?:Exit code:|Process exited with code) (-?\d+)")
# Prefixes of Codex's own answers to calls that it did not complete.
_REFUSED_CALL = re.compile(
    r"(?:Wall time: [\d.]+ seconds\n)?"
    r"(?:unsupported (?:custom tool )?call: |failed to parse (?:function arguments|apply_patch)"
    r"|apply_patch verification failed|(?:command )?aborted(?: by user\b.*)?$|tool call error: "
    r"|(?:exec_command|write_stdin|collab tool|collab spawn|resources/\w+) failed\b"
    r"|exec(?:ution)? error: |patch rejected|(?:exec )?command rejected|rejected by user)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class CallOutcome:
    """The outcome of a call."""

    failed: bool
    """The tool did not complete. A command that ran did, whatever its exit code."""

    exit_code: int | None = None

    def to_details(self) -> dict[str, Any]:
        """Return the outcome as `details` of the message that answers the call."""
        details: dict[str, Any] = {"status": "error" if self.failed else "completed"}
        details["failed"] = self.failed
        details["is_error"] = self.failed or self.exit_code not in (None, 0)
        if self.exit_code is not None:
            details["exit_code"] = self.exit_code
        return details


def read_event_outcome(event: dict[str, Any]) -> tuple[str, CallOutcome] | None:
    """Return the id of a call and its outcome, or None for other events."""
    item = event.get("item")
    if event.get("type") == "item_completed" and isinstance(item, dict):
        call_id, outcome = item.get("id"), _read_item_outcome(item)
    else:
        call_id, outcome = event.get("call_id"), _read_old_event_outcome(event)
    return (call_id, outcome) if outcome is not None and isinstance(call_id, str) else None


def _read_item_outcome(item: dict[str, Any]) -> CallOutcome | None:
    kind, status = item.get("type"), item.get("status")
    if status not in ("completed", "failed", "declined"):
        return None
    if kind == "CommandExecution":
        return _read_command_outcome(item)
    if kind == "McpToolCall":
        refused = dict_or_empty(item.get("result")).get("isError") is True
        return CallOutcome(status != "completed" or refused or item.get("error") is not None)
    if kind in ("FileChange", "CollabAgentToolCall"):
        return CallOutcome(status != "completed")
    if kind == "DynamicToolCall":
        return CallOutcome(status != "completed" or item.get("success") is False)
    return None


def _read_command_outcome(command: dict[str, Any]) -> CallOutcome:
    code, status = command.get("exit_code"), command.get("status")
    # Codex writes -1 for a command that it killed, which has no exit code.
    known = code if type(code) is int and code != -1 else None
    # For a command that ran, "failed" only means that its exit code is not 0.
    refused = status == "failed" and known in (None, 0)
    return CallOutcome(status == "declined" or refused or code == -1, known)


def _read_old_event_outcome(event: dict[str, Any]) -> CallOutcome | None:
    # Older versions wrote one kind of event per kind of tool.
    kind = event.get("type")
    if kind == "exec_command_end":
        return _read_command_outcome(event)
    if kind in ("patch_apply_end", "dynamic_tool_call_response"):
        success = event.get("success")
        return CallOutcome(not success) if isinstance(success, bool) else None
    if kind == "mcp_tool_call_end":
        result = event.get("result")
        if not isinstance(result, dict):
            return None
        answer = dict_or_empty(result.get("Ok"))
        refused = True in (answer.get("is_error"), answer.get("isError"))
        return CallOutcome("Err" in result or refused)
    return None


def parse_text_outcome(text: str) -> CallOutcome:
    """Derive the outcome from the text that was sent to the model."""
    code: int | None = None
    # Outputs report the exit code either as JSON metadata or in their first lines.
    if text.startswith("{"):
        try:
            found = dict_or_empty(dict_or_empty(json.loads(text)).get("metadata")).get("exit_code")
        except (ValueError, RecursionError):
            found = None
        code = found if type(found) is int else None
    elif match := _CODEX_EXIT_CODE.search(text[:400]):
        code = int(match[1])
    return CallOutcome(_REFUSED_CALL.match(text) is not None, code)
