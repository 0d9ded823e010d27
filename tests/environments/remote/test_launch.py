"""`launch_server`: waits for a server, shows its log on failure, and leaves no process behind."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import pytest

from assay.environments import ServerProcess, launch_server, wait_until_ready
from assay.errors import ConfigError, EnvironmentFault
from misbehaving import PATIENCE_S, refused_port

URL = "http://127.0.0.1:{port}"

SERVER = """
import http.server, subprocess, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response({status}); self.send_header("Content-Length", "0"); self.end_headers()
    def log_message(self, *words): pass
print("child", subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid)
print("ready \\x1b[31m soon", flush=True)
{more}
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Page).serve_forever()
"""


def program(*, status: int = 200, more: str = "") -> list[str]:
    return [sys.executable, "-c", SERVER.format(status=status, more=more), "{port}"]


def is_gone(pid: int) -> bool:
    """Whether a process has ended, if only waiting to be reaped by whoever adopted it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_gone(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.01)


def child_in(log: tuple[str, ...]) -> int:
    return int(next(line.split()[1] for line in log if line.startswith("child ")))


async def read_child(server: ServerProcess) -> int:
    # A thread reads the output, perhaps after the server is ready.
    while not any(line.startswith("child ") for line in server.log):
        await asyncio.sleep(0.01)
    return child_in(server.log)


def test_a_server_is_ready_inside_and_gone_with_its_children_afterwards() -> None:
    async def test() -> tuple[int, int]:
        async with launch_server(program(), URL) as server:
            async with aiohttp.ClientSession() as http, http.get(server.url) as response:
                assert response.status == 200
            assert server.log[-1] == "ready  [31m soon"
            assert os.getpgid(server.pid) == server.pid
            return server.pid, await read_child(server)

    for pid in asyncio.run(test()):
        wait_until_gone(pid)


def test_a_server_without_a_health_page_is_ready_when_it_says_so() -> None:
    async def test() -> None:
        async with (
            launch_server(program(status=404), URL) as server,
            aiohttp.ClientSession() as http,
            http.get(server.url) as response,
        ):
            assert response.status == 404

    asyncio.run(test())


def test_a_server_that_dies_is_reported_at_once_with_its_last_lines() -> None:
    more = "print('\\n'.join(f'line {n}' for n in range(300)), flush=True); sys.exit(7)"

    async def test() -> None:
        async with launch_server(program(more=more), URL, deadline_s=3600):
            pass

    with pytest.raises(EnvironmentFault, match="exited with status 7") as failed:
        asyncio.run(test())
    shown = [line for line in str(failed.value).splitlines() if line.startswith("  | ")]
    assert len(shown) == 100
    assert shown[-1] == "  | line 299"


def test_a_server_that_never_gets_ready_is_ended_at_the_deadline() -> None:
    async def test(deadline_s: float) -> None:
        async with launch_server(program(status=503), URL, deadline_s=deadline_s):
            pass

    # On a busy machine the first deadlines may pass before the process has started.
    for deadline_s in (1.5, 6.0, 60.0):
        with pytest.raises(
            EnvironmentFault, match=f"the server was not ready within {deadline_s:g} s"
        ) as failed:
            asyncio.run(test(deadline_s))
        if "HTTP 503" in str(failed.value):
            break

    assert "HTTP 503" in str(failed.value)
    wait_until_gone(child_in(tuple(line[4:] for line in str(failed.value).splitlines())))


def test_a_server_that_ignores_the_request_to_stop_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("assay.environments.remote.launch._STOP_GRACE_S", 0.2)
    more = """
import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("child", subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid)
sys.stdout.flush()
"""

    async def test() -> list[int]:
        async with launch_server(program(more=more), URL) as server:
            children = [int(line.split()[1]) for line in server.log if line.startswith("child ")]
            return [server.pid, *children]

    pids = asyncio.run(test())
    assert len(pids) == 3
    for pid in pids:
        wait_until_gone(pid)


def test_cancellation_ends_the_server() -> None:
    pids: list[int] = []

    async def serve() -> None:
        async with launch_server(program(), URL) as server:
            pids.extend((server.pid, await read_child(server)))
            await asyncio.Event().wait()

    async def test() -> None:
        task = asyncio.create_task(serve())
        while len(pids) < 2:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(test())
    for pid in pids:
        wait_until_gone(pid)


USER = """
import asyncio, json, os, sys, threading
from assay.environments import launch_server
async def show(server):
    # The output of a server may be read after it is ready.
    while not (found := [line for line in server.log if line[:6] == "child "]):
        await asyncio.sleep(0.01)
    print(server.pid, found[0].split()[1], flush=True)
async def main():
    async with launch_server(json.loads(sys.argv[1]), "http://127.0.0.1:{port}") as server:
        await show(server)
        if sys.argv[2] == "exit":
            asyncio.get_running_loop().call_soon(sys.exit, 3)
        await asyncio.Event().wait()
if sys.argv[2] == "abandon":
    server = launch_server(json.loads(sys.argv[1]), "http://127.0.0.1:{port}")
    loop = asyncio.new_event_loop()
    child = loop.run_until_complete(server.__aenter__())
    loop.run_until_complete(show(child))
    sys.exit(3)
asyncio.run(main())
"""


@pytest.mark.parametrize("ending", ["interrupt", "exit", "abandon"])
def test_the_server_ends_with_the_program_that_launched_it(ending: str) -> None:
    user = subprocess.Popen(
        [sys.executable, "-c", USER, json.dumps(program()), ending],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with user:
        assert user.stdout is not None
        pids = [int(word) for word in user.stdout.readline().split()]
        if ending == "interrupt":
            user.send_signal(signal.SIGINT)
        assert user.wait(20) != 0

    assert len(pids) == 2
    for pid in pids:
        wait_until_gone(pid)


def test_a_noisy_server_is_not_held_up_and_its_log_stays_bounded() -> None:
    more = "sys.stdout.write('x' * 3_000_000); print('\\n' * 5, 'y' * 5000, flush=True)"

    async def test() -> tuple[str, ...]:
        async with launch_server(program(more=more), URL) as server:
            return server.log

    log = asyncio.run(test())
    assert max(map(len, log)) == 1000


@pytest.mark.parametrize(
    "command", [[], "", "python 'server.py", ["no-such-program-here", "{port}"]]
)
def test_a_command_that_cannot_be_started_is_refused(command: list[str] | str) -> None:
    async def test() -> None:
        async with launch_server(command, URL):
            pass

    with pytest.raises(ConfigError):
        asyncio.run(test())


def test_a_command_may_be_one_line() -> None:
    async def test() -> None:
        line = f"{sys.executable} -m http.server --bind 127.0.0.1 {{port}}"
        async with launch_server(line, URL) as server:
            assert "{" not in server.url

    asyncio.run(test())


def test_waiting_for_an_address_where_nobody_answers_says_so() -> None:
    with refused_port() as port:
        url = f"http://127.0.0.1:{port}/mcp"
        with pytest.raises(
            EnvironmentFault, match=r"the server was not ready within 0.2 s: Connect"
        ) as failed:
            asyncio.run(wait_until_ready(url, deadline_s=0.2))

    assert failed.value.where == url.replace("/mcp", "/health")
