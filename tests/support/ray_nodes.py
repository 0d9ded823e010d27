"""Ray nodes as processes of this machine, each with a loopback address of its own."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_START_S = 180.0


class RayNodes:
    """A cluster. The second node cannot see the folder in which a driver is started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        with socket.socket() as free:
            free.bind(("127.0.0.2", 0))
            self.address = f"127.0.0.2:{free.getsockname()[1]}"
        self.environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def start(self, *, cpus: int = 2, **environment: str) -> subprocess.Popen[bytes]:
        """Start the head node, or another node once there is one, and wait until it is up."""
        number = len(self._processes) + 2
        head = not self._processes
        port = self.address.rpartition(":")[2]
        where = ["--head", f"--port={port}"] if head else [f"--address={self.address}"]
        home = self._folder / f"node-{number}"
        home.mkdir()
        log = home / "log.txt"
        command = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", *where),
            *(f"--node-ip-address=127.0.0.{number}", f"--num-cpus={cpus}", "--block"),
            "--object-store-memory=100000000",
            *(["--include-dashboard=false"] if head else []),
        ]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=home,
                env={**os.environ, **self.environment, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        deadline = time.monotonic() + _START_S
        while b"Ray runtime started" not in log.read_bytes():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the node did not start: {log.read_text()}")
            time.sleep(0.05)  # a process has no other way to tell
        return process

    @property
    def last(self) -> subprocess.Popen[bytes]:
        """The node that was started last."""
        return self._processes[-1]

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a node with all its processes, as a machine that fails."""
        for pid in (process.pid, *list_descendants(process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def find_workers(self) -> list[int]:
        """Return the worker processes of assay on all nodes."""
        return [
            pid for node in self._processes for pid in list_descendants(node.pid) if _is_worker(pid)
        ]

    def stop_all(self) -> None:
        for process in reversed(self._processes):
            self.stop(process)


def list_descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                # The name, in brackets, may contain spaces.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        children = parents.get(left.pop(), [])
        found += children
        left += children
    return found


@contextmanager
def run_ray_nodes(folder: Path) -> Iterator[RayNodes]:
    """Yield a cluster without nodes, and stop those that were started."""
    nodes = RayNodes(folder)
    try:
        yield nodes
    finally:
        nodes.stop_all()


def _is_worker(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::RayWorker")
    return False
