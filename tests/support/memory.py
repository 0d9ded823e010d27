"""The most memory a process had, counted by itself."""

import resource
import subprocess
import sys
from pathlib import Path


def peak_bytes() -> int:
    """The most memory this process had, not counting what its parent had before it.

    Linux hands the parent's peak on to a child in `ru_maxrss`: beside a large parent it would be
    the same whatever the child did.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def peak_of(code: str, *arguments: object, folder: Path) -> int:
    """The most memory that a process needs to run this code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{_TELL}", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return int(done.stdout.split()[-1])


_TELL = f"""
import sys
sys.path.append({str(Path(__file__).parent)!r})
from memory import peak_bytes
print(peak_bytes())
"""
