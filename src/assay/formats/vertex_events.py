"""The turns and events of agents in the format of Vertex's evaluation service.

A turn begins with the user. One answer of the model, with its reasoning and calls, is one event;
the answers of its tools are the next. Events of a subagent have its own name, and precede the
answer of the call that started it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Any

from assay.errors import WireError
from assay.types import Message, Sample, TextBlock, ToolCall, Trajectory

from .conversion import (
    Dropped,
    expect_mapping,
    expect_optional_text,
    expect_sequence,
    get_namespace,
    get_opening_messages,
    read_items,
    validate_wire,
    write_plain_arguments,
)
from .eval_turns import UNANSWERED_RESPONSE, format_block_marker
from .gemini import from_gemini
from .open_calls import OpenCalls
from .output_limits import cut_text

# Recorded sessions may refer to each other in a circle.
_MAX_SUBAGENT_DEPTH = 8


@dataclass
class AgentHistory:
    """Collects the turns of a sample one message at a time."""

    max_output_chars: int | None = None
    """Longer tool outputs are cut, with a note. None: no limit."""

    reasoning: bool = True
    """Whether the agent's reasoning is included, marked as thought."""

    agents: dict[str, dict[str, Any]] = field(default_factory=dict)
    turns: list[list[dict[str, Any]]] = field(default_factory=list)
    instruction: list[str] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    call_numbers: Iterator[int] = field(default_factory=lambda: count(1))
    """Numbers for calls without an id, to match their answers."""

    _user_speaks: bool = False
    """Whether all events of the last turn are the user's."""

    def add_sample(self, sample: Sample) -> None:
        """Add the events of a sample and of its subagents."""
        source = _to_nonempty_text(sample.metadata.get("source")) or "agent"
        _AgentWriter(self, sample, _find_agent_name(sample, source)).write_events()

    def to_agent_data(self) -> dict[str, Any]:
        """Return the `agent_data` of a row."""
        turns = [
            {"turn_index": index, "turn_id": str(index), "events": events}
            for index, events in enumerate(self.turns)
        ]
        return {"agents": self.agents, "turns": turns}

    def add(self, event: dict[str, Any], *, begins: bool = False) -> None:
        """Append an event. `begins` opens a turn, unless the turn has only user events so far."""
        if not self.turns or (begins and not self._user_speaks):
            self.turns.append([])
            self._user_speaks = True
        self._user_speaks &= event["author"] == "user"
        self.turns[-1].append(event)


@dataclass
class _AgentWriter:
    """Writes the events of one agent into the history."""

    history: AgentHistory
    sample: Sample
    name: str
    caller: str = "user"
    at: str = ""
    depth: int = 0
    _open: OpenCalls[tuple[ToolCall, str]] = field(default_factory=OpenCalls)
    """Calls that no tool has answered yet, with the ids they are written with."""

    _author: str = ""
    """The last agent: a session may be handed from one agent to another."""

    def write_events(self) -> None:
        self._author = self.name
        self.history.agents.setdefault(self.name, {"agent_id": self.name})
        for index, message in enumerate(self.sample.messages):
            where = f"{self.at}messages[{index}]"
            if message.role in ("tool", "function"):
                self._add_tool_message(message, where)
                continue
            self._close_calls()
            if message.role == "user":
                event = self._build_event(
                    self.caller, "user", self._write_text_parts(message, where), message
                )
                self.history.add(event, begins=self.caller == "user")
            elif message.role == "assistant":
                self._add_assistant_message(message, where)
            elif index or message.role not in ("system", "developer"):
                what = f"no place for a {message.role} message here; left out"
                self.history.dropped.append(Dropped(where, what))
            else:
                self.history.agents[self.name]["instruction"] = message.text
                if not self.depth:
                    self.history.instruction.append(message.text)
        self._close_calls()
        found = self.sample.metadata.get("subagents")
        linked = {(each.details or {}).get("subagent") for each in self.sample.messages}
        for place, each in enumerate(found if isinstance(found, list) else []):
            if not isinstance(each, Mapping) or each.get("id") not in linked:
                where = f"{self.at}metadata.subagents[{place}]"
                what = "no call started this subagent; left out"
                self.history.dropped.append(Dropped(where, what))

    def _add_assistant_message(self, message: Message, where: str) -> None:
        named = _to_nonempty_text((message.details or {}).get("agent")) if not self.depth else None
        self._author = named or self.name
        self.history.agents.setdefault(self._author, {"agent_id": self._author})
        parts: list[dict[str, Any]] = []
        if message.reasoning and self.history.reasoning:
            parts.append({"text": message.reasoning, "thought": True})
        elif message.reasoning:
            self.history.dropped.append(Dropped(f"{where}.reasoning", "left out as asked"))
        parts += [part for part in self._write_text_parts(message, where) if part["text"]]
        for place, call in enumerate(message.tool_calls):
            call_id = call.id or f"call_{next(self.history.call_numbers)}"
            at = f"{where}.tool_calls[{place}]"
            arguments = write_plain_arguments(call, at, self.history.dropped)
            function = {"id": call_id, "name": call.name, "args": arguments}
            parts.append({"function_call": function})
            self._open.add(call.id, (call, call_id))
        event = self._build_event(self._author, "model", parts or [{"text": ""}], message)
        self.history.add(event)

    def _write_text_parts(self, message: Message, where: str) -> list[dict[str, Any]]:
        words = [message.text] if message.text else []
        blocks = () if isinstance(message.content, str) else message.content or ()
        for position, block in enumerate(blocks):
            if not isinstance(block, TextBlock):
                words.append(format_block_marker(block))
                at = f"{where}.content[{position}]"
                self.history.dropped.append(Dropped(at, f"written as {words[-1]!r}"))
        return [{"text": "\n\n".join(words)}]

    def _add_tool_message(self, message: Message, where: str) -> None:
        found = self._open.take(message.tool_call_id)
        if found is None:
            self.history.dropped.append(Dropped(where, "an answer without a call; left out"))
            return
        call, call_id = found
        details = message.details or {}
        if child := _to_nonempty_text(details.get("subagent")):
            self._add_subagent(child, where)
        response = details.get("response")
        if not isinstance(response, Mapping):
            failed = bool(details.get("failed", details.get("is_error", False)))
            text = "\n\n".join(part["text"] for part in self._write_text_parts(message, where))
            limit = self.history.max_output_chars
            if limit is not None and len(text) > limit:
                self.history.dropped.append(
                    Dropped(f"{where}.content", f"cut to {limit} characters")
                )
            response = {"error" if failed else "output": cut_text(text, limit)}
            if type(code := details.get("exit_code")) is int:
                response["exit_code"] = code
        self._add_tool_response(call, call_id, dict(response), message)

    def _add_tool_response(
        self, call: ToolCall, call_id: str, response: dict[str, Any], message: Message | None
    ) -> None:
        function = {"id": call_id, "name": call.name, "response": response}
        part = {"function_response": function}
        last = self.history.turns[-1][-1] if self.history.turns else None
        # The answers to parallel calls share one event, as Gemini requires.
        beside = last is not None and is_tool_response(last) and last["author"] == self._author
        if last is not None and beside:
            last["content"]["parts"].append(part)
        else:
            self.history.add(self._build_event(self._author, "user", [part], message))

    def _close_calls(self) -> None:
        for call, call_id in self._open:
            self._add_tool_response(call, call_id, {"error": UNANSWERED_RESPONSE}, None)
        self._open = OpenCalls()

    def _add_subagent(self, child: str, where: str) -> None:
        # The child's events come before the answer of the call that started it.
        found = self.sample.metadata.get("subagents")
        for place, each in enumerate(found if isinstance(found, list) else []):
            if not isinstance(each, Mapping) or each.get("id") != child:
                continue
            at = f"{self.at}metadata.subagents[{place}]"
            if self.depth >= _MAX_SUBAGENT_DEPTH:
                self.history.dropped.append(
                    Dropped(at, "subagents are nested too deeply; left out")
                )
                return
            sample = validate_wire(Sample, each, at)
            name = f"{_find_agent_name(sample, 'subagent')}:{child}"
            children = self.history.agents[self._author].setdefault("sub_agents", [])
            children.append(name)
            _AgentWriter(
                self.history, sample, name, self._author, f"{at}.", self.depth + 1
            ).write_events()
            return
        self.history.dropped.append(Dropped(where, f"the session {child} of a subagent is missing"))

    def _build_event(
        self, author: str, role: str, parts: list[dict[str, Any]], message: Message | None
    ) -> dict[str, Any]:
        event = {"author": author, "content": {"role": role, "parts": parts}}
        if message is not None and (moment := to_zoned_timestamp(message.timestamp)) is not None:
            event["event_time"] = moment
        return event


def _find_agent_name(sample: Sample, otherwise: str) -> str:
    names = (_to_nonempty_text((each.details or {}).get("agent")) for each in sample.messages)
    return next((name for name in names if name), otherwise)


def _to_nonempty_text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def to_zoned_timestamp(text: str | None) -> str | None:
    """Return `text` if it is a timestamp with a time zone, which the service requires."""
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return text if moment is not None and moment.tzinfo is not None else None


class AgentDataReader:
    """Reads the messages of an `agent_data`, separately for each subagent."""

    def __init__(self, agent_data: Mapping[str, Any]) -> None:
        self.messages: list[Message] = []
        self._agents = expect_mapping(agent_data.get("agents") or {}, "agent_data.agents")
        self._below = {
            str(name)
            for agent in self._agents.values()
            for name in expect_mapping(agent, "agent_data.agents").get("sub_agents") or ()
        }
        self._spoken: dict[str, list[Message]] = {}
        self._last_below: str | None = None
        for place, turn in enumerate(expect_sequence(agent_data.get("turns"), "agent_data.turns")):
            at = f"agent_data.turns[{place}]"
            events = expect_mapping(turn, at).get("events") or []
            read = read_items(events, f"{at}.events", expect_mapping)
            for number, event in enumerate(read):
                self._add_event(event, read[number + 1 :], f"{at}.events[{number}]")

    def _add_event(
        self, event: Mapping[str, Any], later: list[Mapping[str, Any]], where: str
    ) -> None:
        author = str(event.get("author") or "agent")
        answers = is_tool_response(event)
        owner = author
        content = event.get("content")
        role = content.get("role") if isinstance(content, Mapping) else None
        if author != "user" and not answers and role == "user" and later:
            # The prompt of a subagent is an event of the agent that called it.
            owner = str(later[0].get("author") or "agent")
        read = read_event(event, author, where)
        below = owner in self._below
        if answers and self._last_below is not None and self._last_below != owner:
            session = self._last_below.partition(":")[2] or self._last_below
            linked = {**(read[0].details or {}), "subagent": session}
            read[0] = read[0].model_copy(update={"details": linked})
        (self._spoken.setdefault(owner, []) if below else self.messages).extend(read)
        self._last_below = owner if below else None

    def subagents(self) -> list[Sample]:
        """Return a sample for each subagent, in the order of their calls."""
        return [self._build_subagent(name, messages) for name, messages in self._spoken.items()]

    def _build_subagent(self, name: str, messages: list[Message]) -> Sample:
        agent, _, session = name.partition(":")
        said = [
            each.model_copy(update={"details": {"agent": agent}})
            if each.role == "assistant"
            else each
            for each in messages
        ]
        config = expect_mapping(self._agents.get(name, {}), "agent_data.agents")
        if isinstance(config.get("instruction"), str):
            said.insert(0, Message(role="system", content=config["instruction"]))
        trajectory = Trajectory(messages=said)
        return Sample(id=session or name, prompt=get_opening_messages(said), trajectory=trajectory)


def is_tool_response(event: Mapping[str, Any]) -> bool:
    """Whether an event contains tool responses."""
    content = event.get("content")
    parts = content.get("parts") if isinstance(content, Mapping) else None
    return any(
        "function_response" in part or "functionResponse" in part
        for part in (parts if isinstance(parts, list) else ())
        if isinstance(part, Mapping)
    )


def read_event(event: Mapping[str, Any], author: str, where: str) -> list[Message]:
    """Read the messages of one event; one for each tool response."""
    content = expect_mapping(event.get("content"), f"{where}.content")
    moment = event.get("event_time") or event.get("creation_timestamp")
    moment = expect_optional_text(moment, f"{where}.event_time")
    try:
        read = from_gemini([content])
    except WireError as error:
        raise WireError(error.message, where=f"{where}.{error.where}", hint=error.hint) from error
    return [to_session_message(message, author, moment) for message in read]


def to_session_message(message: Message, author: str | None, moment: str | None) -> Message:
    """Return a message with the details that session sources give: agent, time, tool status."""
    extra = message.__pydantic_extra__ or {}
    update: dict[str, Any] = {"timestamp": moment}
    if message.role == "assistant" and author is not None:
        update["details"] = {"agent": author}
    elif message.role == "tool":
        result = get_namespace(get_namespace(extra, "gemini"), "result")
        response = get_namespace(result, "response")
        text, failed, code = _read_outcome(response)
        status = "error" if failed else "completed"
        update["details"] = {"status": status, "failed": failed, "is_error": failed or bool(code)}
        if text is not None:
            update["content"] = text
        elif response:
            update["details"]["response"] = dict(response)
        if code is not None:
            update["details"]["exit_code"] = code
    # Gemini's extras and spelling are implied by this format.
    fields = message.model_dump(exclude_defaults=True, exclude={"gemini", "spelling"})
    return validate_wire(Message, {**fields, **update}, "content")


def _read_outcome(response: Mapping[str, Any]) -> tuple[str | None, bool, int | None]:
    # Returns the text of a tool response, whether it failed, and its exit code.
    code = response.get("exit_code")
    known = type(code) is int and len(response) == 2
    said = {key: text for key, text in response.items() if not known or key != "exit_code"}
    failed = said.keys() == {"error"} and isinstance(said["error"], str)
    if failed:
        return said["error"], True, code if known else None
    if known and isinstance(said.get("output"), str):
        return said["output"], False, code
    return None, False, None
