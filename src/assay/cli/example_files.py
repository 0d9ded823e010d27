"""The files of `examples/` that are part of the package."""

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
# A wheel contains the files beside the units; a source tree has them beside `src`.
_EXAMPLE_FOLDERS = (_PACKAGE / "examples", _PACKAGE.parents[1] / "examples")


def list_examples(folder: str, pattern: str) -> list[Path]:
    """Return the files of a folder of `examples/` whose names match, sorted by name."""
    for root in _EXAMPLE_FOLDERS:
        if (root / folder).is_dir():
            return sorted((root / folder).glob(pattern))
    return []
