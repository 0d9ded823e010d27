"""`assay gateway`: record the model calls of any agent as sessions."""

import asyncio
import os
import secrets
import shlex
import signal
import time
from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from assay.errors import ConfigError
from assay.gateway import (
    Gateway,
    GatewayLimits,
    GatewaySession,
    GatewaySettings,
    OfflineClient,
    RecordedCall,
    Replay,
    build_recorded_trajectory,
)
from assay.providers import ModelClient, connect, parse_model
from assay.runner import open_recording
from assay.stats import format_plural
from assay.store import Store
from assay.types import AgentSession, CallPurpose, Status, Trajectory

from .arguments import add_count, parse_seconds
from .eval_overrides import add_endpoint_options, add_replay_options, apply_endpoint_options
from .exit_status import EXIT_INCONCLUSIVE, EXIT_PASS
from .output import (
    cut,
    measure_line_width,
    print_json,
    print_lines,
    print_message,
    sanitize_to_line,
)
from .resume import build_next_command
from .store_option import add_store_option, find_store_location

TOKEN_VARIABLE = "ASSAY_GATEWAY_TOKEN"
_SESSION_NAME = "local"
# Sessions are stored while the agent works, but not after each of many quick calls.
_SAVE_DELAY_S = 0.5
# The pause after saving, in times of its duration.
_SAVE_SHARE = 20
# A conversation is continued within this time, or counts as another one.
_FORGET_AFTER_S = 3600.0


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "--upstream",
        metavar="PROVIDER:MODEL[@URL]",
        help="answer all calls with this model, whatever model the agent asks for",
    )
    add_endpoint_options(parser)
    add_replay_options(parser)
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="listen on this address (default: 127.0.0.1, this machine only)",
    )
    parser.add_argument(
        "--port", type=int, default=0, help="listen on this port (default: any free port)"
    )
    add_count(parser, "--max-turns", "refuse calls after this many answers, in all")
    add_count(
        parser, "--max-tokens", "refuse calls after this many tokens, read or written, in all"
    )
    parser.add_argument(
        "--max-seconds",
        type=parse_seconds,
        metavar="SECONDS",
        help="refuse calls this long after the start",
    )
    parser.add_argument(
        "--max-cost-usd",
        type=float,
        metavar="USD",
        help="refuse calls after this much was spent, in all",
    )
    add_store_option(parser)
    parser.add_argument("--json", action="store_true", help="print JSON objects instead of text")
    parser.epilog = (
        f"The key is that of ${TOKEN_VARIABLE}, else a new one. Ctrl-C ends the gateway."
    )


def main(args: Namespace) -> int:
    """Exit status: 0 after SIGINT or SIGTERM, 2 when the gateway cannot start, 3 when a call was
    not recorded.
    """
    limits = GatewayLimits(
        max_turns=args.max_turns,
        max_tokens=args.max_tokens,
        max_seconds=args.max_seconds,
        max_cost_usd=args.max_cost_usd,
    )
    with Store.open(find_store_location(args)) as store, ExitStack() as stack:
        replay = _open_replay(args, store, stack)
        client = _connect_upstream(args, replay)
        return asyncio.run(_serve_gateway(args, client, limits, store, replay))


def _open_replay(args: Namespace, store: Store, stack: ExitStack) -> Replay | None:
    if args.replay is None:
        if args.replay_missing is not None:
            raise ConfigError("--replay-missing has no effect without --replay")
        return None
    recording = stack.enter_context(open_recording(args.replay, store))
    return Replay(recording, missing=args.replay_missing or "fail")


def _connect_upstream(args: Namespace, replay: Replay | None) -> ModelClient:
    if args.upstream is not None:
        endpoint = apply_endpoint_options(parse_model(args.upstream), args)
        return connect(endpoint) if replay is None or replay.asks_model else OfflineClient(endpoint)
    if replay is None or replay.asks_model:
        raise ConfigError(
            "no model answers the calls",
            where="assay gateway",
            hint="name one with --upstream, such as openai:gpt-5, or a recording with --replay",
        )
    return OfflineClient(parse_model(replay.recording.header.model or "mock:echo"))


async def _serve_gateway(
    args: Namespace,
    client: ModelClient,
    limits: GatewayLimits,
    store: Store,
    replay: Replay | None,
) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    recorder = SessionRecorder(store, client, quiet=args.json)
    settings = GatewaySettings(host=args.host, port=args.port)
    try:
        async with Gateway(client, settings, limits=limits, observe=recorder.observe) as gateway:
            replayed = None if replay is None else replay.open_all()
            session = gateway.open_session(
                _SESSION_NAME, key=os.environ.get(TOKEN_VARIABLE) or None, replay=replayed
            )
            _print_variables(args, session)
            await stop.wait()
            await session.seal()
            recorder.save(session)
    finally:
        await client.close()
    _print_summary(args, recorder)
    if replayed is not None and replayed.difference is not None:
        print_message(replayed.difference.message)
        return EXIT_INCONCLUSIVE
    return EXIT_PASS


def _print_variables(args: Namespace, session: GatewaySession) -> None:
    if args.json:
        print_json({"base_url": session.base_url, "variables": session.variables})
        return
    for name, value in session.variables.items():
        print_lines([f"export {name}={shlex.quote(value)}"])
    print_message(
        f"answering with {sanitize_to_line(_name_upstream(args))}; start your agent with these "
        "variables, and press Ctrl-C to stop"
    )


def _name_upstream(args: Namespace) -> str:
    if args.replay is None:
        return str(args.upstream)
    live = f", and {args.upstream} for other calls" if args.replay_missing == "live" else ""
    return f"the recorded calls of {args.replay}{live}"


@dataclass
class SessionRecorder:
    """Stores the conversations of a gateway as sessions, and shows its calls."""

    store: Store
    client: ModelClient
    quiet: bool
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The summary of each session, by its id."""

    _saved: dict[str, list[tuple[bool, CallPurpose]]] = field(default_factory=dict)
    """Of each session in memory, which calls had ended when it was stored, and their purposes."""

    _timer: asyncio.TimerHandle | None = None
    _save_s: float = 0.0
    _prefix: str = field(
        # Gateways that start in the same second have sessions of their own.
        default_factory=lambda: (
            datetime.now(UTC).strftime("gateway-%Y%m%d-%H%M%S-") + secrets.token_hex(2)
        )
    )

    def observe(self, session: GatewaySession, call: RecordedCall) -> None:
        """Show a call that ended, and store its conversation soon."""
        if not self.quiet:
            print_message(format_call(call, measure_line_width()))
        if self._timer is None:
            loop = asyncio.get_running_loop()
            # Saving reads all calls: with many of them, it is done less often.
            delay_s = max(_SAVE_DELAY_S, _SAVE_SHARE * self._save_s)
            self._timer = loop.call_later(delay_s, self.save, session)

    def save(self, session: GatewaySession) -> None:
        """Store the conversations that have changed, and forget those that rest for long."""
        started = time.perf_counter()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for calls in session.split_conversations():
            name = f"{self._prefix}-{calls[0].number + 1}"
            # Also a call that was stored while its answer was on the way.
            state = [(call.done.is_set(), call.purpose) for call in calls]
            if self._saved.get(name) != state:
                trajectory = build_recorded_trajectory(calls)
                self.store.save_session(self._build_session(name, trajectory))
                self.rows[name] = summarize_session(name, trajectory)
                self._saved[name] = state
            if min(call.idle_s for call in calls) > _FORGET_AFTER_S:
                session.drop_calls(calls)
                self._saved.pop(name, None)
        self._save_s = time.perf_counter() - started

    def _build_session(self, name: str, trajectory: Trajectory) -> AgentSession:
        plain = trajectory.to_dict()
        plain.pop("messages", None)
        return AgentSession(
            id=name,
            endpoint=self.client.endpoint,
            messages=trajectory.messages,
            status=Status.COMPLETED if trajectory.messages else Status.FAILED,
            tags={"source": "gateway"},
            metadata={"trajectory": plain},
        )


def format_call(call: RecordedCall, width: int) -> str:
    """Describe one call in a line: number, purpose, time, tokens and its answer."""
    head = f"{call.number + 1:>4}  {call.purpose:<12} {call.latency_s or 0.0:>6.1f} s"
    if call.error is not None:
        status = "" if call.status is None else f"{call.status} "
        head += f"  failed: {status}"
        return head + cut(sanitize_to_line(call.error), max(width - len(head), 20))
    usage = None if call.reply is None else call.reply.call.usage
    if usage is not None and usage.input_tokens is not None:
        head += f"  {usage.input_tokens:>7,} in {usage.output_tokens or 0:>6,} out  "
    else:
        head += "  tokens unknown  "
    message = None if call.reply is None else call.reply.message
    shown = "" if message is None else message.text
    if message is not None and message.tool_calls:
        shown = f"{shown} [{', '.join(each.name for each in message.tool_calls)}]".strip()
    return head + cut(sanitize_to_line(shown), max(width - len(head), 20))


def summarize_session(name: str, trajectory: Trajectory) -> dict[str, Any]:
    """Return the figures of a session. The cost is None if that of a call is unknown."""
    usages = [call.usage for call in trajectory.calls]
    costs = [None if usage is None else usage.cost_usd for usage in usages]
    return {
        "session": name,
        "calls": len(trajectory.calls),
        "failed": sum(call.error is not None for call in trajectory.calls),
        "input_tokens": sum(usage.input_tokens or 0 for usage in usages if usage is not None),
        "output_tokens": sum(usage.output_tokens or 0 for usage in usages if usage is not None),
        "cost_usd": None if None in costs else sum(cost for cost in costs if cost is not None),
    }


def _print_summary(args: Namespace, recorder: SessionRecorder) -> None:
    rows = list(recorder.rows.values())
    if args.json:
        print_json({"store": recorder.store.where, "sessions": rows})
        return
    if not rows:
        print_lines(["no call was recorded"])
        return
    for row in rows:
        cost = "cost unknown" if row["cost_usd"] is None else f"${row['cost_usd']:.4f}"
        failed = f", {row['failed']} failed" if row["failed"] else ""
        line = (
            f"{row['session']}  {format_plural(row['calls'], 'call')}{failed}, "
            f"{row['input_tokens']:,} {'token' if row['input_tokens'] == 1 else 'tokens'} in, "
            f"{row['output_tokens']:,} out, {cost}"
        )
        print_lines([line])
    last = str(rows[-1]["session"])
    print_message(f"next: {build_next_command(args, 'sessions', 'show', last)}")
