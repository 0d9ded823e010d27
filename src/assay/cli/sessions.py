"""`assay sessions`: list, show and continue stored conversations with models."""

import asyncio
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import asdict

from rich.cells import cell_len

from assay.agents import RolloutFailed, run_agent
from assay.environments import BasicEnvironment
from assay.errors import ConfigError
from assay.providers import connect, parse_model
from assay.store import SessionRow, Store
from assay.types import AgentSession, Message, Status

from .arguments import add_count, add_report_options
from .eval_overrides import add_endpoint_options, apply_endpoint_options
from .exit_status import InconclusiveError
from .output import cut, measure_line_width, print_report, sanitize_to_line
from .store_option import add_store_option, open_store

_SESSIONS_COLUMNS = "{:<12}{:>9}  {:<17}{}"


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add_count(parser, "--limit", "list the N sessions changed last", default=20)
    parser.add_argument(
        "--status", choices=[str(each) for each in Status], help="list only sessions of this status"
    )
    add_store_option(parser)
    add_report_options(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    show = actions.add_parser(
        "show", help="show a session", description="Show a session.", allow_abbrev=False
    )
    show.add_argument("session", metavar="ID", help="id of the session")
    add_store_option(show, action=True)
    add_report_options(show, action=True)
    purpose = "send a message and store the answer"
    resume = actions.add_parser(
        "continue", help=purpose, description=f"{purpose.capitalize()}.", allow_abbrev=False
    )
    resume.add_argument("session", metavar="ID", help="id of the session")
    resume.add_argument("message", metavar="TEXT", help="user message to send")
    resume.add_argument(
        "--model", metavar="PROVIDER:MODEL[@URL]", help="use this model instead of the session's"
    )
    resume.add_argument(
        "--branch",
        metavar="NEW_ID",
        help="continue a copy of the session and leave the session unchanged",
    )
    add_endpoint_options(resume)
    add_store_option(resume, action=True)
    add_report_options(resume, action=True)


def main(args: Namespace) -> int:
    """Exit status: 0 done, 3 the model call failed."""
    with open_store(args) as store:
        if args.action == "show":
            return _show_session(store.load_session(args.session), args)
        if args.action == "continue":
            return _continue_session(store, args)
        return _list_stored_sessions(store, args)


def _list_stored_sessions(store: Store, args: Namespace) -> int:
    status = None if args.status is None else Status(args.status)
    # One more than is shown, to detect whether there are more.
    found = store.list_sessions(status=status, limit=args.limit + 1)
    shown, more = found[: args.limit], len(found) > args.limit
    labels = store.read_session_labels(row.id for row in shown)
    lines = format_sessions(shown, labels)
    if more:
        lines.append("older sessions are not shown; pass --limit to show more")
    if not shown:
        lines = ["the store has no sessions yet; `assay eval FILE.py --save-sessions` stores some"]
        if status is not None:
            lines = [f"the store has no session of status {status}"]
    rows = [{**asdict(row), "label": labels[row.id]} for row in shown]
    print_report(args, lines, {"store": store.where, "sessions": rows, "more": more})
    return 0


def format_sessions(rows: list[SessionRow], labels: Mapping[str, str]) -> list[str]:
    """Format two lines for each session. Ids are never cut: users copy them."""
    width = measure_line_width()
    lines = [_SESSIONS_COLUMNS.format("status", "messages", "changed (UTC)", "model")]
    for row in rows:
        changed = row.updated_at[:16].replace("T", " ")
        model = cut(sanitize_to_line(f"{row.provider}:{row.model}"), 40)
        branch = "" if row.parent_id is None else f"  branch of {sanitize_to_line(row.parent_id)}"
        name = f"{sanitize_to_line(row.id)}{branch}"
        room = width - cell_len(name) - 2
        label = labels.get(row.id, "")
        lines.append(f"{name}  {cut(label, room)}" if label and room > 1 else name)
        lines.append(_SESSIONS_COLUMNS.format(row.status, str(row.messages), changed, model))
    return lines


def _show_session(session: AgentSession, args: Namespace) -> int:
    endpoint = session.endpoint
    lines = [
        f"session   {session.id}",
        f"model     {endpoint.provider}:{endpoint.model}",
        f"status    {session.status}",
    ]
    if session.parent_id is not None:
        lines.append(f"branch of {session.parent_id}, after message {session.branch_point}")
    for number, message in enumerate(session.messages):
        lines += ["", f"--- {number} {message.role}"]
        lines += [message.text] if message.text else []
        lines += [f"calls {call.name}({call.arguments})" for call in message.tool_calls]
    print_report(args, lines, session.to_dict())
    return 0


def _continue_session(store: Store, args: Namespace) -> int:
    session = store.load_session(args.session)
    if args.branch is not None and store.has_session(args.branch):
        raise ConfigError(f"session {args.branch!r} already exists", where=store.where)
    endpoint = session.endpoint if args.model is None else parse_model(args.model)
    session.endpoint = apply_endpoint_options(endpoint, args)
    # The store refuses the answer if another process has continued the session meanwhile.
    seen = len(session.messages)
    if session.environment is not None:
        raise ConfigError(
            f"session {session.id!r} uses an environment, which this command cannot open",
            hint="continue it in Python: run_agent(client, environment, messages, session=session)",
        )
    try:

        async def ask() -> None:
            client = connect(session.endpoint)
            try:
                question = [Message(role="user", content=args.message)]
                await run_agent(client, BasicEnvironment(), question, session=session)
            finally:
                await client.close()

        asyncio.run(ask())
    except RolloutFailed as error:
        raise InconclusiveError(
            f"the model call failed and the session is unchanged: {error}"
        ) from error
    added, continued = session.messages[seen:], session.id
    if args.branch is not None:
        # Branched after the call: a question without an answer must leave no branch behind.
        continued = store.branch_session(session.id, args.branch, at=seen).id
    store.continue_session(continued, added, after=seen, status=session.status)
    messages = [message.to_dict() for message in added]
    plain = {"session": continued, "messages": messages, "status": session.status}
    print_report(args, [added[-1].text], plain)
    return 0
