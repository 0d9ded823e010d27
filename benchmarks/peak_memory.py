"""The most memory a process had."""

import resource
import sys
from pathlib import Path


def peak_bytes() -> int:
    """The most memory this process ever had.

    Linux hands the parent's peak on to a child in `ru_maxrss`; its own count does not.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
