"""A base class for judges that close at the end of an `async with` block."""

from abc import ABC, abstractmethod
from typing import Self


class AsyncCloseable(ABC):
    """An async context manager that closes itself."""

    @abstractmethod
    async def close(self) -> None:
        """Close connections and threads."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
