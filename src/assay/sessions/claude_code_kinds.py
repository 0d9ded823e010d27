"""Kinds of records in transcripts of Claude Code, up to version 2.1.325.

A kind is a record's `type`. For types that are a family it includes the member, as in
`system/api_error`, `attachment/date` or `content/image`.
"""

from collections.abc import Iterator
from typing import Any

_CLAUDE_RECORDS = frozenset(
    """
    agent-color agent-name agent-setting ai-title api-request api-request-blob api-request-shape
    artifact-autoreact-ledger artifact-comment-monitor atis-latch attribution-snapshot
    bridge-session content-replacement continued-in cost-state custom-title data-flow-incomplete
    data-flow-records derived-from dev-mods ended-by-model file-history-delta
    file-history-snapshot fork-context-ref frame-link history-suppression isolation-latch
    last-prompt memory-mode mode observer-ref permission-mode pr-link progress queue-operation
    relocated repl-mode resume-head-vouch session-owner summary tag tools-used worktree-state
    """.split()
)
_SYSTEM_SUBTYPES = frozenset(
    """
    agents_killed api_error api_retry away_summary background_tasks_changed bridge_state
    bridge_status checkpoint_done compact_boundary elicitation_complete file_attachments_missing
    file_snapshot hook_progress hook_response hook_started informational inherited_asks_settled
    init instruction_size_warning local_command memory_recall memory_saved microcompact_boundary
    mirror_error model_consent_fallback model_fallback model_refusal_fallback
    model_refusal_no_fallback notification per_turn_effort_changed permission_denied
    permission_retry plugin_install post_turn_summary read_divider rewind_stand_in
    scheduled_task_fire session_metadata session_state_changed session_title_changed
    session_writes_lost status stop_hook_summary task_notification task_progress task_started
    task_summary task_updated thinking thinking_tokens tool_host_result turn_duration
    turn_preempted
    """.split()
)
_ATTACHMENTS = frozenset(
    """
    account_memory_recall advisor_stripped advisor_tool agent_listing_delta agent_mention
    already_read_file artifact_opening_prefetch async_hook_response async_hook_response_batch
    at_mention_reference attention_budget auto_mode auto_mode_exit batching_reminder
    batching_reminder_sent bash_notification budget_usd claude_app_notice command_permissions
    compact_file_reference compaction_reminder context_efficiency context_sections
    coordinator_context cowork_memory_context critical_system_reminder current_session_memory date
    date_change deferred_tools_delta deferred_tools_record diagnostics dir_sync_notice directory
    document dynamic_skill edited_image_file edited_text_file environment file fork_briefing
    hook_additional_context hook_blocking_error hook_cancelled hook_deferred_tool
    hook_error_during_execution hook_non_blocking_error hook_permission_decision
    hook_stopped_continuation hook_success hook_system_message image inlined_image_paths
    instruction_files_not_loaded instructions invoked_skills language mcp_dropped_tools_delta
    mcp_instructions_delta mcp_resource memory_update message_pdf_reads model max_turns_reached
    nested_memory opened_file_in_ide output_limit_note output_style output_style_instructions
    output_token_usage pdf_reference peer_mention plan_file_reference plan_mode plan_mode_exit
    plan_mode_reentry poll_events project_doc_reads projects_thread_ask prompt_render_point
    prompt_snapshot queued_command read_truncation_notice relevant_memories remote_session_change
    repl_mcp_needs_auth sandbox_instructions secondary_reminder secondary_reminder_sent
    selected_lines_in_ide session_context session_cron_carry silent_turn_reminder skill_discovery
    skill_listing structured_output task_reminder task_status team_context teammate_mailbox
    teammate_shutdown_batch thinking_stripped todo todo_reminder token_usage tool_host_result_lines
    tool_hosts_notice tool_search_usage_reminder total_tokens_reminder ultra_effort_enter
    ultra_effort_exit ultrathink_effort verify_plan_reminder workflow_size_guideline_change
    """.split()
)
_CONTENT_BLOCKS = frozenset(
    """
    advisor_tool_result bash_code_execution_tool_result code_execution_tool_result
    container_upload document image mcp_tool_result mcp_tool_use redacted_thinking search_result
    server_tool_use text text_editor_code_execution_tool_result thinking tool_reference
    tool_result tool_search_tool_result tool_use web_fetch_tool_result web_search_tool_result
    """.split()
)


def kind_of(record: dict[str, Any]) -> str:
    """Return the kind of a record that is not a message."""
    name = str(record.get("type"))
    if name == "system":
        return f"system/{record.get('subtype')}"
    if name == "attachment":
        return f"attachment/{attachment_of(record).get('type')}"
    return name


def attachment_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return the attachment of a record; empty for records of other types."""
    attached = record.get("attachment") if record.get("type") == "attachment" else None
    return attached if isinstance(attached, dict) else {}


def is_known_kind(kind: str) -> bool:
    """Whether records of this kind are known, used or not."""
    family, _, member = kind.partition("/")
    if family == "system":
        return member in _SYSTEM_SUBTYPES
    if family == "attachment":
        return member in _ATTACHMENTS
    return kind in _CLAUDE_RECORDS


def find_unknown_blocks(content: Any) -> Iterator[str]:
    """Yield the unknown kinds of content blocks, including those inside tool results."""
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict):
            yield "content/" + type(block).__name__
            continue
        if block.get("type") not in _CONTENT_BLOCKS:
            yield f"content/{block.get('type')}"
        elif block["type"] == "tool_result":
            yield from find_unknown_blocks(block.get("content"))
