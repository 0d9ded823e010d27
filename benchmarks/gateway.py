"""What the gateway adds to a call, beside a bare aiohttp proxy in the same run.

The model's server, the proxy and the agents run in processes of their own. The server sends the
first event of a stream after a fixed latency and the rest at once. The gateway records every call,
and seals each session after a few: the figures include the building of trajectories. `translated`
is the same gateway for agents of Anthropic's API, whose requests and streams it translates.

    python benchmarks/gateway.py [--loads 1:20,100:100,500:250] [--rounds N] [--memory N] [--json]

A load is the agents at once and the conversations of ten calls. The more agents, the slower the
model, so that the machine is busy but not overloaded: a queue would be all that is measured.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
from aiohttp import web

from assay.gateway import Gateway, GatewaySession, RecordedCall
from assay.providers import ClientSettings, connect
from assay.types import Endpoint

LOADS = "1:20,100:100,500:250"
KEY = "benchmark-key-0123456789"
CALLS_PER_SESSION = 10
CPU_BUDGET_MS = 0.6
FIRST_BYTE_BUDGET_MS = 5.0
CALLS_PER_S = 150
"""The rate at which agents ask, at most."""

MIN_LATENCY_S = 0.05
_LATENCY = re.compile(rb"latency=([0-9.]+);")


def _chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"data: " + json.dumps({**head, "choices": choices, **more}).encode() + b"\n\n"


FIRST = _chunk({"role": "assistant", "content": ""})
USAGE = {"prompt_tokens": 24, "completion_tokens": 20, "total_tokens": 44}
REST = b"".join(
    [
        *(_chunk({"content": f"word {number} "}) for number in range(20)),
        _chunk({}, "stop"),
        b"data: "
        + json.dumps(
            {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": USAGE}
        ).encode()
        + b"\n\n",
        b"data: [DONE]\n\n",
    ]
)
ANSWER = "".join(f"word {number} " for number in range(20))


def build_requests(in_flight: int, *, translated: bool = False) -> list[bytes]:
    """Build the requests of one conversation. The first one has the size of a small agent's."""
    latency_s = max(in_flight / CALLS_PER_S, MIN_LATENCY_S)
    # In the conversation, which also reaches the model in another API.
    system = "You are an agent. " * 250 + f"latency={latency_s:.3f};"
    messages: list[dict[str, str]] = []
    bodies = []
    for turn in range(CALLS_PER_SESSION):
        messages.append({"role": "user", "content": f"turn {turn}: " + "some words " * 20})
        body: dict[str, Any] = {"model": "m", "stream": True}
        if translated:
            body |= {"max_tokens": 100, "system": system, "messages": messages}
        else:
            first = {"role": "system", "content": system}
            options = {"include_usage": True}
            body |= {"messages": [first, *messages], "stream_options": options}
        bodies.append(json.dumps(body).encode())
        messages.append({"role": "assistant", "content": ANSWER})
    return bodies


@dataclass(frozen=True)
class Figures:
    """One load of one proxy."""

    proxy: str
    in_flight: int
    calls: int
    cpu_ms: float
    """Of the proxy's process, per call."""

    first_byte_ms: float
    """Median, from the request to the first byte of the stream."""

    calls_per_s: float


async def _serve_model() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        found = _LATENCY.search(await request.read())
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await asyncio.sleep(float(found[1]) if found else MIN_LATENCY_S)
        await response.prepare(request)
        await response.write(FIRST)
        await response.write(REST)
        await response.write_eof()
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    await _run_until_closed(app)


async def _serve_bare(upstream: str) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def forward(request: web.Request) -> web.StreamResponse:
            body = await request.read()
            url = f"{upstream}/chat/completions"
            async with http.post(url, data=body) as answer:
                response = web.StreamResponse(headers={"Content-Type": answer.content_type})
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response

        app = web.Application()
        app.router.add_post("/s/{name}/v1/chat/completions", forward)
        await _run_until_closed(app)


async def _run_until_closed(app: web.Application) -> None:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=2048).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


async def _serve_gateway(upstream: str) -> None:
    endpoint = Endpoint(
        provider="openai-compatible", model="m", api_base=upstream, api_key="upstream-key-1"
    )
    sealing: set[asyncio.Task[None]] = set()

    def observe(session: GatewaySession, call: RecordedCall) -> None:
        if len(session.calls) == CALLS_PER_SESSION:
            # A new session at the same address: agents of a benchmark know no other.
            gateway.forget(session)
            gateway.open_session(session.id, key=KEY)
            task = asyncio.get_running_loop().create_task(seal(session))
            sealing.add(task)
            task.add_done_callback(sealing.discard)

    async def seal(session: GatewaySession) -> None:
        await asyncio.gather(*(call.done.wait() for call in session.calls))
        (await session.seal()).to_json()

    client = connect(endpoint, ClientSettings(concurrency=2000))
    async with client, Gateway(client, observe=observe) as gateway:
        for number in range(500):
            gateway.open_session(f"s{number}", key=KEY)
        print(gateway.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


@contextmanager
def _start(kind: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, __file__, "--serve", kind, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def _read_cpu_s(process: "subprocess.Popen[str]") -> float:
    # Nanoseconds of each thread: the ticks of `stat` are longer than several calls.
    threads = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in threads) / 1e9


def _read_memory_mb(process: "subprocess.Popen[str]") -> float:
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def _ask(url: str, *, in_flight: int, conversations: int) -> tuple[list[float], float]:
    """Return the times to the first byte, and the time of all calls."""
    translated = url.endswith("/messages")
    bodies = build_requests(in_flight, translated=translated)
    last = b"message_stop" if translated else b"[DONE]"
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    left = iter(range(conversations))
    times: list[float] = []

    async def work(number: int) -> None:
        target = url.replace("NAME", f"s{number}")
        # Spread over one latency: in step, agents would measure the queue that they make.
        await asyncio.sleep(number / CALLS_PER_S)
        for data in (data for _ in left for data in bodies):
            started = time.perf_counter()
            async with http.post(target, data=data, headers=headers) as response:
                first = await response.content.readany()
                times.append(time.perf_counter() - started)
                assert last in first + await response.read(), response.status

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        started = time.perf_counter()
        await asyncio.gather(*(work(number) for number in range(in_flight)))
        return times, time.perf_counter() - started


def measure(
    kind: str, process: "subprocess.Popen[str]", url: str, *, in_flight: int, conversations: int
) -> Figures:
    """Measure one load."""
    paths = {"direct": "/chat/completions", "translated": "/s/NAME/v1/messages"}
    path = url + paths.get(kind, "/s/NAME/v1/chat/completions")
    asyncio.run(_ask(path, in_flight=5, conversations=5))
    before = _read_cpu_s(process)
    times, spent_s = asyncio.run(_ask(path, in_flight=in_flight, conversations=conversations))
    calls = len(times)
    cpu_ms = (_read_cpu_s(process) - before) / calls * 1000
    return Figures(kind, in_flight, calls, cpu_ms, median(times) * 1000, calls / spent_s)


def run_loads(loads: str, rounds: int) -> list[Figures]:
    """Measure the model's server directly, a bare proxy and the gateway twice, at each load.

    The rounds are interleaved, and the least of each is kept.
    """
    figures: list[Figures] = []
    with _start("model") as (model, root):
        upstream = f"{root}/v1"
        with (
            _start("bare", upstream) as (bare, bare_url),
            _start("gateway", upstream) as (
                gateway,
                gateway_url,
            ),
        ):
            for load in loads.split(","):
                in_flight, conversations = map(int, load.split(":"))
                best: dict[str, Figures] = {}
                for kind, process, url in (
                    ("direct", model, upstream),
                    ("bare", bare, bare_url),
                    ("gateway", gateway, gateway_url),
                    ("translated", gateway, gateway_url),
                ) * rounds:
                    found = measure(
                        kind, process, url, in_flight=in_flight, conversations=conversations
                    )
                    last = best.get(kind, found)
                    best[kind] = replace(
                        found,
                        cpu_ms=min(found.cpu_ms, last.cpu_ms),
                        first_byte_ms=min(found.first_byte_ms, last.first_byte_ms),
                    )
                figures += best.values()
    return figures


def run_memory(calls: int) -> list[float]:
    """Return the memory of the gateway after each fifth of the calls, in MB."""
    found: list[float] = []
    with _start("model") as (_, root), _start("gateway", f"{root}/v1") as (gateway, url):
        path = f"{url}/s/NAME/v1/chat/completions"
        for _ in range(5):
            conversations = calls // 5 // CALLS_PER_SESSION
            asyncio.run(_ask(path, in_flight=min(conversations, 30), conversations=conversations))
            found.append(_read_memory_mb(gateway))
    return found


def report(figures: list[Figures], memory: list[float]) -> None:
    """Print the figures, and what the gateway adds to those of the bare proxy."""
    print(f"{'proxy':<12}{'in flight':>10}{'calls':>8}{'CPU ms/call':>13}{'first byte ms':>15}")
    for each in figures:
        print(
            f"{each.proxy:<12}{each.in_flight:>10}{each.calls:>8}{each.cpu_ms:>13.2f}"
            f"{each.first_byte_ms:>15.1f}"
        )
    for start in range(0, len(figures), 4):
        direct, bare, gateway, translated = figures[start : start + 4]
        first = direct.first_byte_ms
        print(
            f"at {gateway.in_flight} in flight the gateway adds "
            f"{gateway.cpu_ms - bare.cpu_ms:.2f} ms CPU to a bare proxy (budget {CPU_BUDGET_MS}; "
            f"translated {translated.cpu_ms - bare.cpu_ms:.2f}), and "
            f"{gateway.first_byte_ms - first:.1f} ms to the model's first byte (budget "
            f"{FIRST_BYTE_BUDGET_MS:g}; translated {translated.first_byte_ms - first:.1f}, bare "
            f"proxy {bare.first_byte_ms - first:.1f})"
        )
    if memory:
        print("memory of the gateway, MB:", " ".join(f"{each:.0f}" for each in memory))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loads", default=LOADS)
    parser.add_argument("--rounds", type=int, default=2, metavar="N")
    parser.add_argument("--memory", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve = {"model": _serve_model, "bare": _serve_bare, "gateway": _serve_gateway}
        asyncio.run(serve[args.serve[0]](*args.serve[1:]))  # type: ignore[operator]  # by name
        return
    figures = run_loads(args.loads, args.rounds)
    memory = run_memory(args.memory) if args.memory else []
    if args.json:
        plain = {"loads": [asdict(each) for each in figures], "memory_mb": memory}
        print(json.dumps(plain, indent=2))
    else:
        report(figures, memory)


if __name__ == "__main__":
    main()
