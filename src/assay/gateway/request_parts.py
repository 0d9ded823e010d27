"""Recorded requests: each part is kept once, however often an agent sends it again.

An agent sends its whole conversation with every call. In memory, equal parts are shared. In a
trajectory, a request is written as its difference to an earlier one; `expand_request` reads it.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

from pydantic_core import from_json, to_json

from assay.errors import WireError
from assay.types import ModelCall

_LIKE, _SET, _UNSET, _KEPT, _ADDED = "like", "set", "unset", "kept", "added"


@dataclass(frozen=True, slots=True)
class RequestParts:
    """A request without secrets and NaN, as the JSON of its fields."""

    fields: dict[str, bytes]
    list_field: str
    """The field with the conversation, which is in `items` instead."""

    items: tuple[bytes, ...] | None
    """None: the conversation is not a list."""

    is_complete: bool = field(default=True, compare=False)
    """Whether nothing of the request was replaced: no secret, and no number that JSON lacks."""

    @property
    def key(self) -> Hashable:
        """The same for equal requests."""
        return frozenset(self.fields.items()), self.items

    def to_body(self) -> dict[str, Any]:
        """Return the request."""
        body = {name: from_json(value) for name, value in self.fields.items()}
        if self.items is not None:
            body[self.list_field] = [from_json(item) for item in self.items]
        return body

    def encode_changed(self, body: Mapping[str, Any], changed: Mapping[str, Any]) -> bytes:
        """Return `changed` as JSON: the body that was split, with other values of some fields.

        The conversation, which is nearly all of it, is not encoded again.
        """
        if not self.is_complete:
            return to_json(changed)
        members = []
        for name, value in changed.items():
            written = None
            if name in body and value is body[name]:
                written = self.fields.get(name)
                if name == self.list_field and self.items is not None:
                    written = b"[%s]" % b",".join(self.items)
            members.append(b"%s:%s" % (to_json(name), written or to_json(value)))
        return b"{%s}" % b",".join(members)


class PartPool:
    """The parts of all requests of one session."""

    def __init__(self, clean: Callable[[bytes], bytes]) -> None:
        self._clean = clean
        self._parts: dict[bytes, bytes] = {}
        self._last: tuple[bytes, ...] = ()
        """The conversation of the last request, which the next one mostly continues."""

    def split(self, body: Mapping[str, Any], list_field: str) -> RequestParts:
        """Split a request, without the secrets that `clean` removes and numbers that JSON lacks."""
        given = body.get(list_field)
        is_list = isinstance(given, list)
        values = {
            name: value
            for name, value in body.items()
            if name != list_field or not (is_list or value is None)
        }
        written = list(map(to_json, values.values()))
        fields = list(map(self._share, written))
        is_complete = fields == written
        items: tuple[bytes, ...] | None = None
        if isinstance(given, list):
            written = list(map(to_json, given))
            # Compared first: to hash and to search a whole conversation takes longer.
            items = tuple(
                old if old == item else self._share(item)
                for item, old in zip(written, chain(self._last, repeat(None)), strict=False)
            )
            self._last = items
            is_complete = is_complete and items == tuple(written)
        return RequestParts(dict(zip(values, fields, strict=True)), list_field, items, is_complete)

    def _share(self, part: bytes) -> bytes:
        """Return the known part that equals this one as it is recorded."""
        known = self._parts.get(part)
        if known is None:
            cleaned = write_finite_json(self._clean(part))
            known = self._parts.setdefault(cleaned, cleaned)
        return known


def write_finite_json(data: bytes) -> bytes:
    """Return JSON with null for numbers such as NaN, which no trajectory can contain."""
    if b"NaN" not in data and b"Infinity" not in data:
        return data
    return to_json(from_json(data), inf_nan_mode="null")


def write_difference(
    parts: RequestParts, like: int | None, earlier: RequestParts | None
) -> dict[str, Any]:
    """Write a request as its difference to the earlier one at position `like`."""
    if earlier is None or earlier.list_field != parts.list_field:
        return {_SET: parts.to_body()}
    changed = {
        name: from_json(value)
        for name, value in parts.fields.items()
        if earlier.fields.get(name) != value
    }
    written: dict[str, Any] = {_LIKE: like, _SET: changed}
    if unset := [name for name in earlier.fields if name not in parts.fields]:
        written[_UNSET] = unset
    if parts.items is not None:
        kept = count_common_prefix(parts.items, earlier.items or ())
        written[_KEPT] = kept
        written[_ADDED] = [from_json(item) for item in parts.items[kept:]]
    return written


def expand_request(calls: Sequence[ModelCall], index: int) -> dict[str, Any]:
    """Return the request of a recorded call as the agent sent it, without secrets.

    Raises `WireError` if the call has none.
    """
    # From the call to the one with a whole request, then back: no recursion over long sessions.
    chain: list[tuple[dict[str, Any], str]] = []
    place: int | None = index
    while place is not None:
        wire = calls[place].wire if 0 <= place < len(calls) else None
        written = (wire or {}).get("request")
        if not isinstance(written, dict) or len(chain) > len(calls):
            raise WireError("the call has no recorded request", where=f"call {index}")
        chain.append((written, str((wire or {}).get("list_field"))))
        place = written.get(_LIKE)
    body: dict[str, Any] = {}
    for written, list_field in reversed(chain):
        body = _apply_difference(body, written, list_field)
    return body


def expand_difference(
    written: object, earlier: Mapping[int, dict[str, Any]], list_field: object
) -> dict[str, Any]:
    """Return the request that was written as a difference to one of the earlier ones.

    Raises `WireError` if it is not a difference to one of them.
    """
    if not isinstance(written, dict) or not isinstance(written.get(_SET), dict):
        raise WireError("the call has no recorded request")
    like = written.get(_LIKE)
    if like is not None and like not in earlier:
        raise WireError(f"the request continues call {like!r}, which does not precede it")
    shapes = ((_UNSET, list), (_ADDED, list), (_KEPT, int))
    if any(name in written and not isinstance(written[name], kind) for name, kind in shapes):
        raise WireError("the request is not the difference to another one")
    if (_KEPT in written) != (_ADDED in written):
        raise WireError(f"the request has only one of `{_KEPT}` and `{_ADDED}`")
    before = {} if like is None else earlier[like]
    return _apply_difference(before, written, str(list_field))


def _apply_difference(
    earlier: Mapping[str, Any], written: Mapping[str, Any], list_field: str
) -> dict[str, Any]:
    before = earlier.get(list_field)
    unset = written.get(_UNSET, ())
    body: dict[str, Any] = {
        name: value for name, value in earlier.items() if name not in unset
    } | written[_SET]
    if _KEPT in written:
        kept = before[: written[_KEPT]] if isinstance(before, list) else []
        body[list_field] = [*kept, *written[_ADDED]]
    elif list_field not in written[_SET]:
        body.pop(list_field, None)
    return body


def count_common_prefix(left: Sequence[Any], right: Sequence[Any]) -> int:
    """Return how many items two sequences have in common from their start."""
    most = min(len(left), len(right))
    return next((n for n in range(most) if left[n] != right[n]), most)
