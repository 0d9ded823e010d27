"""A base class for judges that close at the end of an `async with` block."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class AsyncCloseable(ABC):
    """An async context manager that closes itself."""

    @abstractmethod
    async def close(self) -> None:
        """Close connections and threads."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
