"""A check file read as plain data with the line of every value. Nothing in it is believed."""

from pathlib import Path

from assay.types import parse_yaml, read_limited_text

from .yaml_node import Node


def read_check_file(path: Path) -> Node:
    """The contents of a check file. Raises `ConfigError` naming the line of what is wrong."""
    document = parse_yaml(read_limited_text(path), file=str(path))
    return Node(document.value, document.file, (), document.lines)
