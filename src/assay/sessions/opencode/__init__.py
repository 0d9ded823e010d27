"""Recorded OpenCode sessions of every version, streamed as samples."""
