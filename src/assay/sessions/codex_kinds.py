"""Kinds of records that Codex has written up to the newest tested version.

Kinds that are irrelevant for a sample are listed as well: all others are reported as unknown.
Checked against the binary of 0.166.0 and the events of older versions.
"""

from collections import Counter
from typing import Any

# Kinds come from untrusted files; longer ones are truncated.
_MAX_KIND_LENGTH = 80

_CODEX_RECORDS = frozenset(
    "session_meta dynamic_tools_updated response_item inter_agent_communication"
    " inter_agent_communication_metadata compacted turn_context token_usage_record world_state"
    " security_risk_score event_msg realtime_item".split()
)
_RESPONSE_ITEMS = frozenset(
    "message agent_message reasoning local_shell_call function_call function_call_output"
    " custom_tool_call custom_tool_call_output tool_search_call tool_search_output web_search_call"
    " image_generation_call compaction compaction_summary compaction_trigger context_compaction"
    " configuration_update additional_tools ghost_snapshot other".split()
)
_CODEX_EVENTS = frozenset(
    "error warning guardian_warning realtime_conversation_started realtime_conversation_realtime"
    " realtime_conversation_closed realtime_conversation_sdp model_reroute model_verification"
    " turn_moderation_metadata safety_buffering context_compacted thread_rolled_back task_started"
    " turn_started thread_settings_applied task_complete turn_complete token_count agent_message"
    " user_message agent_reasoning agent_reasoning_raw_content agent_reasoning_section_break"
    " session_configured environment_connected environment_disconnected thread_goal_updated"
    " thread_queue_changed mcp_startup_update mcp_startup_complete mcp_tool_call_begin"
    " mcp_tool_call_end web_search_begin web_search_end image_generation_begin"
    " image_generation_end exec_command_begin exec_command_output_delta terminal_interaction"
    " exec_command_end view_image_tool_call exec_approval_request request_permissions"
    " request_user_input dynamic_tool_call_request dynamic_tool_call_response elicitation_request"
    " elicitation_abandoned apply_patch_approval_request guardian_assessment deprecation_notice"
    " stream_error patch_apply_begin patch_apply_updated patch_apply_end turn_diff"
    " realtime_conversation_list_voices_response plan_update turn_aborted shutdown_complete"
    " entered_review_mode exited_review_mode raw_response_item raw_response_completed item_started"
    " item_completed hook_started hook_completed agent_message_content_delta plan_delta"
    " reasoning_content_delta reasoning_raw_content_delta collab_agent_spawn_begin"
    " collab_agent_spawn_end collab_agent_interaction_begin collab_agent_interaction_end"
    " collab_waiting_begin collab_waiting_end collab_close_begin collab_close_end"
    " collab_resume_begin collab_resume_end sub_agent_activity"
    # Of versions before 0.166.
    " agent_message_delta agent_reasoning_delta agent_reasoning_raw_content_delta background_event"
    " conversation_path get_history_entry_response list_custom_prompts_response"
    " list_skills_response mcp_list_tools_response skills_update_available thread_name_updated"
    " undo_completed undo_started".split()
)
_TURN_ITEMS = frozenset(
    "UserMessage FunctionCallOutput HookPrompt AgentMessage Plan Reasoning CommandExecution"
    " DynamicToolCall CollabAgentToolCall SubAgentActivity WebSearch ImageView Extension"
    " ImageGeneration EnteredReviewMode ExitedReviewMode FileChange McpToolCall"
    " ContextCompaction".split()
)
_CODEX_PARTS = frozenset(
    "text input_text output_text summary_text reasoning_text refusal input_image input_audio"
    " input_file encrypted_content".split()
)


def count_unknown_records(record: dict[str, Any], unknown: Counter[str]) -> None:
    """Count a record, and its inner items and parts, if their kinds are unknown."""
    kind, payload = record["type"], record["payload"]
    if kind == "response_item":
        _count_if_unknown(unknown, "response_item/", payload.get("type"), _RESPONSE_ITEMS)
        for key in ("content", "output", "summary"):
            content = payload.get(key)
            for part in content if isinstance(content, list) else ():
                if isinstance(part, dict):
                    _count_if_unknown(unknown, "content/", part.get("type"), _CODEX_PARTS)
    elif kind == "event_msg":
        _count_if_unknown(unknown, "event_msg/", payload.get("type"), _CODEX_EVENTS)
        item = payload.get("item")
        if payload.get("type") == "item_completed" and isinstance(item, dict):
            _count_if_unknown(unknown, "item_completed/", item.get("type"), _TURN_ITEMS)
    elif kind == "unknown":
        # Versions before 0.32 wrote lines that are not items; all of them record a state.
        if payload.get("record_type") != "state":
            unknown["a line without type and payload"] += 1
    else:
        _count_if_unknown(unknown, "", kind, _CODEX_RECORDS)


def _count_if_unknown(
    unknown: Counter[str], prefix: str, kind: object, known: frozenset[str]
) -> None:
    if not isinstance(kind, str) or kind not in known:
        unknown[f"{prefix}{str(kind)[:_MAX_KIND_LENGTH]}"] += 1
