"""Shared code of the chat formats: reports of dropped fields, and checks of foreign data."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from assay.errors import WireError
from assay.types import ContentBlock, Message, ToolCall, replace_lone_surrogates

ValueT = TypeVar("ValueT")
ItemT = TypeVar("ItemT")
ModelT = TypeVar("ModelT", bound=BaseModel)

# Extras that belong to one format. `spelling` records how a message differed from the usual
# form of its source, so that writing it back restores the original.
FORMAT_NAMESPACES = frozenset(
    {"openai_chat", "openai_responses", "huggingface", "anthropic", "bedrock", "gemini", "spelling"}
)
# Fields of a message that no provider's format can represent.
UNSUPPORTED_FIELDS = ("provider", "api", "model", "details", "timestamp", "metadata")

# For a quick test that nearly every message passes.
_UNSUPPORTED_FIELD_SET = frozenset(UNSUPPORTED_FIELDS)
# Pydantic also puts names of union members into an error's path; only fields are shown.
_NAMED_IN_ERRORS = frozenset({*Message.model_fields, *ToolCall.model_fields})
# A long conversation may drop the same field in every message.
_MAX_SHOWN_DROPPED = 5


@dataclass(frozen=True)
class Dropped:
    """One value that a format cannot represent."""

    where: str
    """Such as `messages[2].reasoning`. Without a field: the whole message or block."""

    what: str
    """A note on the dropped value and on its replacement, if any."""


@dataclass(frozen=True)
class Converted(Generic[ValueT]):
    """A value in another format, with a report of the dropped parts."""

    value: ValueT
    dropped: tuple[Dropped, ...] = ()

    def exact(self) -> ValueT:
        """Return the value, or raise `WireError` if anything was dropped."""
        if not self.dropped:
            return self.value
        shown = "; ".join(
            f"{loss.where}: {loss.what}" for loss in self.dropped[:_MAX_SHOWN_DROPPED]
        )
        more = len(self.dropped) - _MAX_SHOWN_DROPPED
        raise WireError(
            f"the conversion is lossy: {shown}" + (f"; and {more} more" * (more > 0)),
            where=self.dropped[0].where,
            hint="take `.value` and `.dropped` if the loss is acceptable",
        )


def check_iterable(items: Iterable[ValueT], where: str) -> Iterable[ValueT]:
    """Return `items` if they are iterable, else raise `WireError`."""
    if isinstance(items, Iterable):
        return items
    raise build_type_error(items, "a list", where)


def expect_message(value: object, where: str) -> Message:
    """Return `value` if it is a message, else raise `WireError`."""
    if isinstance(value, Message):
        return value
    raise WireError(
        f"{type(value).__name__} is not a Message",
        where=where,
        hint="read foreign messages with one of the `from_…` functions first",
    )


def expect_mapping(value: object, where: str) -> Mapping[str, Any]:
    """Return `value` if it is an object with string keys, else raise `WireError`."""
    if not isinstance(value, Mapping):
        raise build_type_error(value, "an object", where)
    for key in value:
        if not isinstance(key, str):
            raise WireError(
                f"the key {key!r} is not a string", where=where, hint="use string keys, as in JSON"
            )
    return value


def expect_sequence(value: object, where: str) -> Sequence[Any]:
    """Return `value` if it is a list or a tuple, else raise `WireError`."""
    if isinstance(value, list | tuple):
        return value
    raise build_type_error(value, "a list", where)


def read_items(value: object, where: str, read: Callable[[Any, str], ItemT]) -> list[ItemT]:
    """Read each member of a list with `read(member, place)`. Raises `WireError` for others."""
    return [read(each, f"{where}[{n}]") for n, each in enumerate(expect_sequence(value, where))]


def write_blocks(
    content: Iterable[ContentBlock],
    where: str,
    dropped: list[Dropped],
    write: Callable[[ContentBlock, str, list[Dropped]], dict[str, Any] | None],
) -> list[dict[str, Any]]:
    """Write each block of a message, except those for which `write` returns None."""
    parts = (write(each, f"{where}.content[{n}]", dropped) for n, each in enumerate(content))
    return [part for part in parts if part is not None]


def expect_text(value: object, where: str) -> str:
    """Return `value` if it is a string, else raise `WireError`. Replaces lone surrogates."""
    if isinstance(value, str):
        return replace_lone_surrogates(value)
    raise build_type_error(value, "a string", where)


def expect_optional_text(value: object, where: str) -> str | None:
    """Return `value` if it is a string or None, else raise `WireError`."""
    return None if value is None else expect_text(value, where)


def build_type_error(value: object, wanted: str, where: str) -> WireError:
    """Return the error for a value that is not `wanted`, such as "a list"."""
    kind = "null" if value is None else f"of type {type(value).__name__}"
    return WireError(
        f"the value is {kind}, not {wanted}",
        where=where,
        hint=f"change it to {wanted}",
    )


def build_depth_error(where: str) -> WireError:
    """Return the error for data that exceeds Python's recursion limit."""
    return WireError(
        "the value is nested too deeply",
        where=where,
        hint="remove the message: no provider accepts such nesting",
    )


@contextmanager
def refuse_deep_nesting(where: str) -> Iterator[None]:
    """Raise `WireError` for data in the block that exceeds Python's recursion limit."""
    try:
        yield
    except RecursionError as error:
        raise build_depth_error(where) from error


def validate_wire(model: type[ModelT], data: Mapping[str, Any], where: str) -> ModelT:
    """Return `data` as a `model`, or raise `WireError` with the path of the first problem."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        for part in first["loc"]:
            if isinstance(part, str) and part not in _NAMED_IN_ERRORS:
                break  # the name of a union member or validator, not of a field
            where += f"[{part}]" if isinstance(part, int) else f".{part}"
        raise WireError(
            f"the data cannot be read as a {model.__name__}: {first['msg']}",
            where=where,
            hint="correct the value, or remove the message",
        ) from error


def read_document(value: object, where: str) -> dict[str, Any]:
    """Return a whole foreign object in a form that can be stored. Raises `WireError`."""
    with refuse_deep_nesting(where):
        return make_storable(dict(expect_mapping(value, where)))


def make_storable(value: ValueT) -> ValueT:
    """Return `value`, or a copy with lone surrogates replaced, which JSON cannot contain."""
    # Serializing is faster than walking the value in Python, and nearly always succeeds.
    try:
        to_json(value)
    except ValueError:
        repaired: ValueT = _repair_strings(value)
        return repaired
    return value


def _repair_strings(value: Any) -> Any:
    if isinstance(value, str):
        return replace_lone_surrogates(value)
    if isinstance(value, Mapping):
        return {_repair_strings(key): _repair_strings(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_repair_strings(inner) for inner in value]
    return value


def is_same_json(left: object, right: object) -> bool:
    """Whether two values are the same JSON; `True`, `1` and `1.0` are different values."""
    # Python's `==` would treat the three as equal.
    if type(left) is not type(right):
        return (
            isinstance(left, list | tuple)
            and isinstance(right, list | tuple)
            and (is_same_json(list(left), list(right)))
        )
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(
            is_same_json(left[key], right[key]) for key in left
        )
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(is_same_json, left, right))
    return left is right or left == right


def write_json_object(value: Mapping[str, Any], where: str) -> str:
    """Return `value` as JSON text, or raise `WireError` if JSON cannot represent it."""
    try:
        text = to_json(value).decode()
    except ValueError as error:
        raise WireError(
            f"the value cannot be written as JSON: {error}",
            where=where,
            hint="use plain JSON values",
        ) from error
    return text


def report_unsupported_fields(message: Message, where: str, dropped: list[Dropped]) -> None:
    """Report the fields of a message that no format can represent."""
    if _UNSUPPORTED_FIELD_SET.isdisjoint(message.__pydantic_fields_set__):
        return
    for name in UNSUPPORTED_FIELDS:
        value = getattr(message, name)
        if value is not None and not (name == "metadata" and not value):
            dropped.append(Dropped(f"{where}.{name}", f"no place for `{name}`; left out"))


def report_extras(
    extra: Mapping[str, Any] | None, own: str, where: str, dropped: list[Dropped]
) -> None:
    """Report the extras that are not in the namespace `own`."""
    # A null carries no information, and a spelling only restores a foreign notation.
    if not extra:
        return
    for name, value in extra.items():
        if name in (own, "spelling") or value is None:
            continue
        if name in FORMAT_NAMESPACES and isinstance(value, Mapping):
            if any(inner is not None and inner != {} for inner in value.values()):
                keys = ", ".join(f"`{key}`" for key in value)
                dropped.append(Dropped(f"{where}.{name}", f"{keys} as read from {name}; left out"))
        else:
            dropped.append(Dropped(f"{where}.{name}", f"no place for the extra `{name}`; left out"))


def report_unused(
    extra: Mapping[str, Any] | None,
    own: str,
    used: tuple[str, ...],
    where: str,
    dropped: list[Dropped],
) -> None:
    """Report the extras of format `own` that a message of this role does not use."""
    kept = extra.get(own) if extra else None
    if kept is None:
        return
    if not isinstance(kept, Mapping):
        dropped.append(Dropped(f"{where}.{own}", f"not something read from {own}; left out"))
        return
    for key, value in kept.items():
        if key not in used and value is not None:
            dropped.append(Dropped(f"{where}.{own}.{key}", "no place in such a message; left out"))


def report_unsupported_by_role(
    message: Message, where: str, dropped: list[Dropped], names: tuple[str, ...]
) -> None:
    """Report the set fields in `names`, which a message of this role cannot have."""
    for name in names:
        if getattr(message, name) not in (None, ()):
            note = f"a {message.role} message has no place for `{name}`; left out"
            dropped.append(Dropped(f"{where}.{name}", note))


def join_reasoning(texts: Iterable[object]) -> str | None:
    """Join several pieces of thinking; None when none of them is text."""
    found = [text for text in texts if isinstance(text, str)]
    return "\n\n".join(found) if found else None


def write_plain_arguments(call: ToolCall, where: str, dropped: list[Dropped]) -> dict[str, Any]:
    """Return the arguments as an object; report the model's own text of them as dropped."""
    if call.raw_arguments is not None:
        what = (
            "the arguments are not a JSON object; written as {}"
            if call.malformed
            else "the model's own spelling of the arguments; written as an object"
        )
        dropped.append(Dropped(f"{where}.raw_arguments", what))
    return call.arguments


def get_opening_messages(messages: list[Message]) -> list[Message]:
    """Return the messages before the first assistant message."""
    roles = [message.role for message in messages]
    return messages[: roles.index("assistant") if "assistant" in roles else len(roles)]


def get_namespace(extra: Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    """Return the extras of one format; empty when they are missing or not an object."""
    kept = extra.get(name) if extra else None
    return kept if isinstance(kept, Mapping) else {}


def get_mappings(value: object) -> list[Mapping[str, Any]]:
    """Return the objects in a list; none when the value is not a list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def extend_namespace(message: Message, name: str, more: dict[str, Any]) -> Message:
    """Return the message with `more` added to its extras of format `name`."""
    kept = get_namespace(message.__pydantic_extra__, name)
    return message.model_copy(update={name: {**kept, **more}})


def find_spelling(message: Message, name: str) -> Mapping[str, Any] | None:
    """Return the recorded spelling of a message that was read from format `name`, or None."""
    extra = message.__pydantic_extra__
    if not extra or "spelling" not in extra:
        return None
    spelling = extra["spelling"]
    return spelling if isinstance(spelling, Mapping) and spelling.get("format") == name else None


def compute_spelling(
    wire: Mapping[str, Any], usual: Mapping[str, Any], name: str
) -> dict[str, Any] | None:
    """Return how `wire` differs from the usual form of the same message, or None."""
    given = {key: value for key, value in wire.items() if not _has_same_value(usual, key, value)}
    absent = [key for key in usual if key not in wire]
    # Repairing surrogates may have removed the difference.
    if given:
        given = {k: v for k, v in make_storable(given).items() if not _has_same_value(usual, k, v)}
    if not given and not absent:
        return None
    return {"format": name, "set": given, "unset": absent}


def _has_same_value(usual: Mapping[str, Any], key: str, value: object) -> bool:
    return key in usual and is_same_json(usual[key], value)


def apply_spelling(usual: dict[str, Any], spelling: Mapping[str, Any]) -> dict[str, Any]:
    """Return the usual form with the differences of `compute_spelling` applied."""
    given, absent = spelling.get("set"), spelling.get("unset")
    changed = {**usual, **given} if isinstance(given, Mapping) else dict(usual)
    for key in absent if isinstance(absent, list | tuple) else ():
        if isinstance(key, str):
            changed.pop(key, None)
    return changed
