"""Checks without a model: rules over the texts and tool calls of a conversation."""
