"""The place in the user's code where an exception was raised."""

import re
from pathlib import Path

# Tracebacks are stored as text with the sample, so frames are found by their format.
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+)', re.MULTILINE)
_PACKAGE_FOLDER = Path(__file__).parents[1]
_STANDARD_LIBRARY = Path(re.__file__).parents[1]


def find_place(traceback: str | None) -> str | None:
    """Return file and line of the innermost frame in the user's code, relative to the cwd.

    Frames of assay, the standard library and installed packages are skipped. None without others.
    """
    for frame in reversed(list(_FRAME.finditer(traceback or ""))):
        path = Path(frame["file"])
        libraries = (_PACKAGE_FOLDER, _STANDARD_LIBRARY)
        if (
            path.is_file()
            and "site-packages" not in path.parts
            and not any(path.is_relative_to(library) for library in libraries)
        ):
            shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
            return f"{shown}:{frame['line']}"
    return None
