"""Checks without a model: rules over the texts and tool calls of a conversation."""

from .checking import Checks, checks_from

__all__ = ["Checks", "checks_from"]
