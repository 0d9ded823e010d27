"""Converts samples to and from ATIF, the interchange format of agent harnesses.

One answer of the model is one step, with the answers of its tools as its observation. Values that
ATIF has no field for are stored in its `extra` objects, so that a sample round-trips.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from pydantic_core import to_jsonable_python

from assay.errors import WireError
from assay.types import (
    DataBlock,
    Message,
    ModelCall,
    Sample,
    TextBlock,
    ToolCall,
    Trajectory,
    Usage,
)

from .conversion import (
    Converted,
    Dropped,
    expect_mapping,
    expect_optional_text,
    expect_sequence,
    expect_text,
    get_opening_messages,
    read_document,
    read_items,
    validate_wire,
)

ATIF_VERSION = "ATIF-v1.8"
# The key under which assay writes into `extra` objects, beside the keys of other tools.
_EXTRA_NAMESPACE = "assay"

ATIF_DOCUMENT_FIELDS = frozenset(
    "schema_version session_id trajectory_id agent steps notes final_metrics "
    "continued_trajectory_ref extra subagent_trajectories".split()
)
ATIF_STEP_FIELDS = frozenset(
    "step_id timestamp source message reasoning_content reasoning_effort model_name tool_calls "
    "observation metrics llm_call_count is_copied_context extra".split()
)
ATIF_CALL_FIELDS = frozenset("tool_call_id function_name arguments extra".split())
ATIF_RESULT_FIELDS = frozenset("source_call_id content subagent_trajectory_ref extra".split())
ATIF_METRIC_FIELDS = frozenset(
    "prompt_tokens completion_tokens cached_tokens cost_usd prompt_token_ids "
    "completion_token_ids logprobs extra".split()
)
# Fields of a step that a message has no field for.
_EXTRA_STEP_FIELDS = ("reasoning_effort", "is_copied_context")

_SOURCES_BY_ROLE = {"system": "system", "developer": "system", "user": "user", "assistant": "agent"}
_ROLES_BY_SOURCE = {"system": "system", "user": "user", "agent": "assistant"}
# Fields of a message that no step has a place for: kept in its `extra`.
_MESSAGE_FIELDS = ("name", "provider", "api", "details", "metadata")
# Written in other places of the document, not among the remaining fields.
_SAMPLE_FIELDS = {"id", "trajectory", "prompt", "metadata"}
_CALL_METRICS = {
    "prompt_ids": "prompt_token_ids",
    "completion_ids": "completion_token_ids",
    "logprobs": "logprobs",
}
_USAGE_METRICS = {
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "cached_tokens": "cached_tokens",
    "cost_usd": "cost_usd",
}
# Fields of `final_metrics`, and the fields of `Usage` that they sum up.
_TOTALS = {
    "total_prompt_tokens": "input_tokens",
    "total_completion_tokens": "output_tokens",
    "total_cached_tokens": "cached_tokens",
    "total_cost_usd": "cost_usd",
}


def to_atif(sample: Sample) -> Converted[dict[str, Any]]:
    """Return the ATIF document of a sample, with the sessions of its subagents embedded."""
    writer = _AtifWriter(sample)
    return Converted(writer.document(), tuple(writer.dropped))


class _AtifWriter:
    def __init__(self, sample: Sample) -> None:
        self.dropped: list[Dropped] = []
        self._sample = sample
        self._calls = sample.trajectory.calls if sample.trajectory is not None else []
        # By the position of the answer. The others, such as calls for a title, have no step.
        self._answers = {call.message_index: place for place, call in enumerate(self._calls)}
        self._written: set[int] = set()
        self._steps: list[dict[str, Any]] = []
        self._embedded: list[dict[str, Any]] = []
        self._names: set[str] = set()  # ids of embedded subagents
        self._asked: dict[str, None] = {}  # ids of the last step's calls, in order

    def document(self) -> dict[str, Any]:
        found = self._sample.metadata.get("subagents")
        for place, each in enumerate(found if isinstance(found, list) else []):
            where = f"metadata.subagents[{place}]"
            if not isinstance(each, Mapping) or "trajectory" not in each:
                self.dropped.append(Dropped(where, "not a sample; left out"))
                continue
            converted = to_atif(validate_wire(Sample, each, where))
            self._embedded.append(converted.value)
            self._names.add(converted.value["trajectory_id"])
            self.dropped += [
                Dropped(f"{where}.{loss.where}", loss.what) for loss in converted.dropped
            ]
        for index, message in enumerate(self._sample.messages):
            self._add_message(index, message)
        models = [step["model_name"] for step in self._steps if "model_name" in step]
        agent = {
            "name": str(self._sample.metadata.get("source", "unknown")),
            "version": str(self._sample.input.get("version", "unknown")),
        }
        document: dict[str, Any] = {
            "schema_version": ATIF_VERSION,
            "session_id": self._sample.id,
            "trajectory_id": self._sample.id,
            "agent": {**agent, "model_name": models[-1]} if models else agent,
            "steps": self._steps,
            "final_metrics": self._sum_metrics(),
            "extra": {_EXTRA_NAMESPACE: self._collect_remaining_fields()},
        }
        if self._embedded:
            document["subagent_trajectories"] = self._embedded
        return document

    def _add_message(self, index: int, message: Message) -> None:
        where = f"messages[{index}]"
        if message.role in ("tool", "function"):
            self._add_observation(message, where)
            return
        source = _SOURCES_BY_ROLE.get(message.role)
        if source is None:
            self.dropped.append(Dropped(where, f"no step for a {message.role} message; left out"))
            return
        step: dict[str, Any] = {"step_id": len(self._steps) + 1, "source": source}
        extra = _collect_message_extra(message)
        if message.timestamp is not None:
            # A timestamp that is not ISO 8601 would make the document invalid.
            holder = extra
            with suppress(ValueError):
                datetime.fromisoformat(message.timestamp.replace("Z", "+00:00"))
                holder = step
            holder["timestamp"] = message.timestamp
        step["message"] = self._write_text(message, where, extra)
        self._asked = {}
        if source == "agent":
            self._fill_agent_step(step, message, index)
        elif message.reasoning or message.tool_calls:
            self.dropped.append(Dropped(where, "only an agent thinks and calls tools; left out"))
        if extra:
            step["extra"] = {_EXTRA_NAMESPACE: extra}
        self._steps.append(step)

    def _write_text(self, message: Message, where: str, extra: dict[str, Any]) -> str:
        if message.content is None or isinstance(message.content, str):
            return message.content or ""
        # ATIF has parts for text and for media in separate files only; our blocks contain more.
        extra["content"] = to_jsonable_python(message.content)
        return message.text

    def _fill_agent_step(self, step: dict[str, Any], message: Message, index: int) -> None:
        if message.model is not None:
            step["model_name"] = message.model
        if message.reasoning is not None:
            step["reasoning_content"] = message.reasoning
        if message.tool_calls:
            step["tool_calls"] = [
                _write_atif_call(call, f"call_{len(self._steps) + 1}_{n}")
                for n, call in enumerate(message.tool_calls)
            ]
            self._asked = dict.fromkeys(call["tool_call_id"] for call in step["tool_calls"])
        place = self._answers.get(index)
        if place is not None:
            self._written.add(place)
            step |= {"llm_call_count": 1, "metrics": _write_call_metrics(self._calls[place])}

    def _add_observation(self, message: Message, where: str) -> None:
        step = self._steps[-1] if self._steps else {}
        calls = step.get("tool_calls", ())
        results = step.get("observation", {}).get("results", [])
        source = message.tool_call_id
        if source is None and len(results) < len(calls):
            source = calls[len(results)]["tool_call_id"]
        if source not in self._asked:
            self.dropped.append(
                Dropped(where, "an answer without a call in the preceding step; left out")
            )
            return
        extra = _collect_message_extra(message)
        result: dict[str, Any] = {"source_call_id": source}
        result["content"] = self._write_text(message, where, extra)
        if message.timestamp is not None:
            extra["timestamp"] = message.timestamp
        child = (message.details or {}).get("subagent")
        if isinstance(child, str) and child in self._names:
            result["subagent_trajectory_ref"] = [{"trajectory_id": child, "session_id": child}]
        if extra:
            result["extra"] = {_EXTRA_NAMESPACE: extra}
        step.setdefault("observation", {"results": []})["results"].append(result)

    def _sum_metrics(self) -> dict[str, Any]:
        # A sum is written only if every call reports its part: a partial one would look complete.
        totals: dict[str, Any] = {"total_steps": len(self._steps)}
        usages = [call.usage or Usage() for call in self._calls]
        for name, part in _TOTALS.items():
            values = [getattr(usage, part) for usage in usages]
            if values and None not in values:
                totals[name] = sum(values)
        whole = self._sample.trajectory.cost_usd if self._sample.trajectory is not None else None
        return totals if whole is None else {**totals, "total_cost_usd": whole}

    def _collect_remaining_fields(self) -> dict[str, Any]:
        sample = self._sample
        rest = sample.model_dump(mode="json", exclude=_SAMPLE_FIELDS, exclude_defaults=True)
        metadata = {k: v for k, v in sample.metadata.items() if k != "subagents"}
        if metadata:
            rest["metadata"] = metadata
        apart = [
            {"place": place, "call": call.model_dump(mode="json", exclude_defaults=True)}
            for place, call in enumerate(self._calls)
            if place not in self._written
        ]
        if apart:
            rest["calls"] = apart
        if isinstance(sample.prompt, list):
            same = sample.prompt == sample.messages[: len(sample.prompt)]
            rest["prompt"] = len(sample.prompt) if same else to_jsonable_python(sample.prompt)
        else:
            rest["prompt"] = sample.prompt
        if sample.trajectory is not None:
            rest["trajectory"] = sample.trajectory.model_dump(
                mode="json", exclude={"messages", "calls"}, exclude_defaults=True
            )
        return rest


def _collect_message_extra(message: Message) -> dict[str, Any]:
    extra = {name: getattr(message, name) for name in _MESSAGE_FIELDS if getattr(message, name)}
    if message.role in ("developer", "function"):
        extra["role"] = message.role
    if message.role != "assistant" and message.model is not None:
        extra["model"] = message.model
    if message.__pydantic_extra__:
        extra["fields"] = dict(message.__pydantic_extra__)
    return extra


def _write_atif_call(call: ToolCall, made_id: str) -> dict[str, Any]:
    written: dict[str, Any] = {
        "tool_call_id": call.id or made_id,
        "function_name": call.name,
        "arguments": call.arguments,
    }
    extra = dict(call.__pydantic_extra__ or {})
    if call.raw_arguments is not None:
        extra["raw_arguments"] = call.raw_arguments
    if call.id is None:
        extra["id"] = None
    if extra:
        written["extra"] = {_EXTRA_NAMESPACE: extra}
    return written


def _write_call_metrics(call: ModelCall) -> dict[str, Any]:
    rest = call.model_dump(mode="json", exclude={"message_index"}, exclude_defaults=True)
    metrics: dict[str, Any] = {}
    for own, name in _CALL_METRICS.items():
        if own in rest:
            metrics[name] = rest.pop(own)
    usage = rest.pop("usage", None)
    counted = {n: usage.pop(own) for own, n in _USAGE_METRICS.items() if own in (usage or ())}
    metrics |= counted
    # An empty usage differs from a missing one, unless counts restore it when read.
    if usage or (usage is not None and not counted):
        rest["usage"] = usage
    if rest:
        metrics["extra"] = {_EXTRA_NAMESPACE: rest}
    return metrics


def from_atif(document: Mapping[str, Any]) -> Sample:
    """Read an ATIF document of any 1.x version. Raises `WireError` for anything else."""
    data = read_document(document, "document")
    version = expect_text(data.get("schema_version"), "schema_version")
    if not version.startswith("ATIF-v1."):
        raise WireError(
            f"{version!r} is not a supported version of ATIF; use ATIF-v1.x",
            where="schema_version",
        )
    messages: list[Message] = []
    calls: list[ModelCall] = []
    for place, each in enumerate(expect_sequence(data.get("steps"), "steps")):
        step = expect_mapping(each, f"steps[{place}]")
        if (call := _read_metrics(step, len(messages), f"steps[{place}]")) is not None:
            calls.append(call)
        messages += _read_step(step, f"steps[{place}]")
    return _build_atif_sample(data, messages, calls)


def _split_extra(value: Mapping[str, Any], where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    # Returns assay's own part of `extra`, and the part of other tools.
    extra = value.get("extra")
    if extra is None:
        return {}, {}
    given = dict(expect_mapping(extra, f"{where}.extra"))
    own = given.pop(_EXTRA_NAMESPACE, {})
    return dict(expect_mapping(own, f"{where}.extra.{_EXTRA_NAMESPACE}")), given


def _collect_unknown_fields(
    value: Mapping[str, Any], known: frozenset[str], foreign: dict[str, Any]
) -> dict[str, Any]:
    # Fields of later versions and foreign extras, so that nothing is dropped when read.
    rest = {key: each for key, each in value.items() if key not in known}
    return {**rest, **({"extra": foreign} if foreign else {})}


def _read_step(step: Mapping[str, Any], where: str) -> list[Message]:
    role = _ROLES_BY_SOURCE.get(str(step.get("source")))
    if role is None:
        raise WireError(
            f"{step.get('source')!r} is not a step source",
            where=f"{where}.source",
            hint=f"use one of {', '.join(_ROLES_BY_SOURCE)}",
        )
    own, foreign = _split_extra(step, where)
    calls = read_items(step.get("tool_calls") or [], f"{where}.tool_calls", _read_atif_call)
    content = _read_atif_content(step.get("message"), f"{where}.message")
    data: dict[str, Any] = {
        "role": role,
        "content": None if calls and content == "" else content,
        "tool_calls": calls,
        "reasoning": expect_optional_text(
            step.get("reasoning_content"), f"{where}.reasoning_content"
        ),
        "model": step.get("model_name"),
        "timestamp": step.get("timestamp"),
    }
    beside = {
        key: step[key] for key in step if key in _EXTRA_STEP_FIELDS or key not in ATIF_STEP_FIELDS
    }
    if foreign or beside:
        data["atif"] = {**beside, **({"extra": foreign} if foreign else {})}
    message = validate_wire(Message, {**data, **own.pop("fields", {}), **own}, where)
    return [message, *_read_results(step, calls, where)]


def _read_atif_content(value: object, where: str) -> str | tuple[TextBlock | DataBlock, ...]:
    if isinstance(value, str):
        return expect_text(value, where)

    def read(part: object, at: str) -> TextBlock | DataBlock:
        present = {k: v for k, v in expect_mapping(part, at).items() if v is not None}
        if present.get("type") == "text":
            return validate_wire(TextBlock, present, at)
        return validate_wire(DataBlock, present, at)

    return tuple(read_items(value, where, read))


def _read_atif_call(value: object, where: str) -> ToolCall:
    call = expect_mapping(value, where)
    own, foreign = _split_extra(call, where)
    data: dict[str, Any] = {
        "id": call.get("tool_call_id"),
        "name": call.get("function_name"),
        "arguments": call.get("arguments"),
    }
    if beside := _collect_unknown_fields(call, ATIF_CALL_FIELDS, foreign):
        data["atif"] = beside
    return validate_wire(ToolCall, {**data, **own}, where)


def _read_results(step: Mapping[str, Any], calls: list[ToolCall], where: str) -> list[Message]:
    observation = step.get("observation")
    if observation is None:
        return []
    results = expect_mapping(observation, f"{where}.observation").get("results")
    names = {call.id: call.name for call in calls}
    messages = []
    for n, each in enumerate(expect_sequence(results, f"{where}.observation.results")):
        at = f"{where}.observation.results[{n}]"
        result = expect_mapping(each, at)
        own, foreign = _split_extra(result, at)
        source = result.get("source_call_id")
        content = result.get("content")
        data: dict[str, Any] = {
            "role": "tool",
            "tool_call_id": source if source in names else None,
            "name": names.get(source),
            "content": None if content is None else _read_atif_content(content, f"{at}.content"),
        }
        reference = result.get("subagent_trajectory_ref")
        beside = _collect_unknown_fields(result, ATIF_RESULT_FIELDS, foreign)
        if reference is not None and not own:
            beside["subagent_trajectory_ref"] = reference
        if beside:
            data["atif"] = beside
        # Only the first reference: a tool result of ours starts at most one subagent.
        first = reference[0] if isinstance(reference, list) and reference else None
        ids = (
            [first.get(key) for key in ("trajectory_id", "session_id")]
            if isinstance(first, Mapping)
            else []
        )
        if child := next((each for each in ids if isinstance(each, str) and each), None):
            data["details"] = {"subagent": child}
        messages.append(validate_wire(Message, {**data, **own.pop("fields", {}), **own}, at))
    return messages


def _read_metrics(step: Mapping[str, Any], index: int, where: str) -> ModelCall | None:
    if step.get("metrics") is None:
        return None
    where = f"{where}.metrics"
    metrics = expect_mapping(step["metrics"], where)
    own, foreign = _split_extra(metrics, where)
    usage = dict(own.get("usage", {}))
    usage |= {o: metrics[n] for o, n in _USAGE_METRICS.items() if metrics.get(n) is not None}
    data: dict[str, Any] = {"model": step.get("model_name"), **own, "message_index": index}
    data |= {o: metrics[n] for o, n in _CALL_METRICS.items() if metrics.get(n) is not None}
    if usage or "usage" in own:
        data["usage"] = usage
    if beside := _collect_unknown_fields(metrics, ATIF_METRIC_FIELDS, foreign):
        data["atif"] = beside
    return validate_wire(ModelCall, data, where)


def _build_atif_sample(
    data: Mapping[str, Any], messages: list[Message], calls: list[ModelCall]
) -> Sample:
    own, foreign = _split_extra(data, "document")
    # Documents of assay contain the exact prompt and fields; those of others are interpreted.
    ours = _EXTRA_NAMESPACE in (data.get("extra") or ())
    happened = not ours or "trajectory" in own
    apart = read_items(own.pop("calls", []), "document.extra.assay.calls", expect_mapping)
    # In ascending order, each has its place among those before it.
    for place, each in enumerate(apart):
        where = f"document.extra.assay.calls[{place}]"
        at = each.get("place")
        call = validate_wire(ModelCall, expect_mapping(each.get("call"), where), where)
        calls.insert(at if isinstance(at, int) else len(calls), call)
    fields = {"messages": messages, "calls": calls, **own.pop("trajectory", {})}
    opening = own.pop("prompt", None)
    if opening is None:
        opening = len(get_opening_messages(messages))
    metadata = dict(own.pop("metadata", {}))
    known = ("schema_version", "session_id", "trajectory_id", "steps", "final_metrics", "extra")
    if not ours:
        cost = expect_mapping(data.get("final_metrics") or {}, "final_metrics").get(
            "total_cost_usd"
        )
        costs = [None if call.usage is None else call.usage.cost_usd for call in calls]
        if not costs or None in costs:
            # The calls do not add up to the total, so it is kept.
            fields["cost_usd"] = cost
        rest = {k: v for k, v in data.items() if k not in (*known, "subagent_trajectories")}
        metadata["atif"] = {**rest, **({"extra": foreign} if foreign else {})}
        metadata["source"] = expect_mapping(data.get("agent", {}), "agent").get("name", "unknown")
    embedded = expect_sequence(data.get("subagent_trajectories") or [], "subagent_trajectories")
    if embedded:
        metadata["subagents"] = [from_atif(each).to_dict() for each in embedded]
    name = data.get("trajectory_id") or data.get("session_id") or ""
    built = {
        **own,
        "id": name,
        "prompt": messages[:opening] if isinstance(opening, int) else opening,
        "trajectory": validate_wire(Trajectory, fields, "document") if happened else None,
        "metadata": metadata,
    }
    return validate_wire(Sample, built, "document")
