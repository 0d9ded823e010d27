"""Tool calls that no message has answered yet, found in constant time."""

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

CallT = TypeVar("CallT")


class OpenCalls(Generic[CallT]):
    """Calls without an answer, in order.

    A search through all of them for each answer would be quadratic in long sessions.
    """

    def __init__(self) -> None:
        self._count = 0
        self._open: dict[int, CallT] = {}
        # The numbers of calls with something in common. Those of closed calls are removed when
        # they come first.
        self._numbers: dict[tuple[str | None, ...], deque[int]] = {}

    def __iter__(self) -> Iterator[CallT]:
        return iter(self._open.values())

    def add(self, call_id: str | None, call: CallT, *, name: str = "") -> None:
        """Add a call that waits for its answer."""
        number, self._count = self._count, self._count + 1
        self._open[number] = call
        for key in (("all",), ("id", call_id), ("name", name), ("both", call_id, name)):
            self._numbers.setdefault(key, deque()).append(number)

    def take(self, call_id: str | None) -> CallT | None:
        """Remove and return the call of an answer; without an id, the first open one."""
        number = self._find("id", call_id)
        if number is None and call_id is None:
            number = self._find("all")
        return None if number is None else self._open.pop(number)

    def take_named(self, call_id: str | None, name: str | None) -> CallT | None:
        """Remove and return the first call that an answer fits: by id, else by name.

        Ids are compared only where the answer and the call have one. Any name fits None.
        """
        if call_id is None:
            found = [self._find("all") if name is None else self._find("name", name)]
        else:
            without_id = ("id", None) if name is None else ("both", None, name)
            found = [self._find("id", call_id), self._find(*without_id)]
        number = min((each for each in found if each is not None), default=None)
        return None if number is None else self._open.pop(number)

    def get_named(self, name: str | None) -> CallT | None:
        """Return the first open call of a tool, of any tool for None."""
        number = self._find("all") if name is None else self._find("name", name)
        return None if number is None else self._open[number]

    def close(self, call_id: str | None) -> None:
        """Remove all calls with an id."""
        while (number := self._find("id", call_id)) is not None:
            del self._open[number]

    def _find(self, *key: str | None) -> int | None:
        numbers = self._numbers.get(key)
        while numbers:
            if numbers[0] in self._open:
                return numbers[0]
            numbers.popleft()
        return None
