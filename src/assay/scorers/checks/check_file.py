"""Read a check file as plain data with the line of every value."""

from pathlib import Path

from assay.types import parse_yaml, read_limited_text

from .yaml_node import Node


def read_check_file(path: Path) -> Node:
    """Read a check file. Raises `ConfigError` with the line of the problem."""
    document = parse_yaml(read_limited_text(path), file=str(path))
    return Node(document.value, document.file, (), document.lines)
