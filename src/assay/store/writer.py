"""Write samples in batches from a background thread; acknowledge each after its commit."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Self

from assay.errors import AssayError, ConfigError, StoreError

from .insert_rows import InsertRow, build_failure_row, build_result_row

if TYPE_CHECKING:
    from assay.types import Sample

WriteCallback = Callable[[list[bool] | AssayError], None]
"""Called in the event loop with the outcome of a submission: for each entry True if it was inserted
and False if its key already existed, or the write error. Must not raise."""

# Entries that were submitted together, the bytes of their bodies, and their callback.
_Submission = tuple[Sequence[InsertRow], int, WriteCallback]


@dataclass(frozen=True)
class WriterSettings:
    """Batch sizes, delays and limits of a writer."""

    batch_samples: int = 1000
    flush_s: float = 0.1
    """The longest time that a sample waits for others to join its batch."""

    quiet_s: float = 0.002
    """While a caller awaits a sample, a batch that did not grow for this long is written at once:
    with few rollouts in flight the batch never fills."""

    waiting_samples: int = 2000
    """Back-pressure: callers wait when so many samples are queued."""

    waiting_bytes: int = 64_000_000
    """Back-pressure: callers wait when the queued samples take so many bytes."""

    heartbeat_s: float = 5.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ConfigError(f"{name} must be above 0, not {value!r}")


class Writer:
    """Records samples of one run, for the tasks of one event loop.

    After a write error every call raises it, including `close`. Samples acknowledged before are
    in the store; others may be lost.
    """

    def __init__(
        self,
        write: Callable[[Sequence[InsertRow]], list[bool]],
        *,
        renew: Callable[[], None],
        closed: Callable[[], None],
        settings: WriterSettings,
        where: str,
    ) -> None:
        self._write = write
        self._renew = renew
        self._on_close = closed
        self._settings = settings
        self._where = where
        self._queue: SimpleQueue[_Submission | None] = SimpleQueue()
        self._submitted = 0
        self._taken = 0
        self._settled = 0
        self._waiting_bytes = 0
        self._awaited = 0
        self._room: asyncio.Event = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._error: AssayError | None = None
        self._closing = False
        self._call = threading.Event()
        """Set when the thread should no longer wait for a batch to grow."""
        self._ended = threading.Event()
        # A daemon: a writer that was never closed must not keep an exiting process alive.
        self._thread = threading.Thread(
            target=self._write_batches, name="assay-writer", daemon=True
        )
        self._thread.start()

    async def record(self, key: str, sample: "Sample", *, repeat: int = 0) -> bool:
        """Write a completed sample, and return once it is committed.

        Returns True if it was inserted, False if the key already existed. The sample may be
        written even if the task is cancelled while it waits.
        """
        await self.wait_for_room()
        return await self._submit_and_wait(build_result_row(key, sample, repeat))

    async def record_failure(self, key: str, sample: "Sample", *, repeat: int = 0) -> None:
        """Record a failed sample as an attempt, which is retried on resume."""
        await self.wait_for_room()
        await self._submit_and_wait(build_failure_row(key, sample, repeat))

    def submit(self, entries: Sequence[InsertRow], settled: WriteCallback) -> None:
        """Queue entries without waiting; `settled` is called with their outcome.

        For callers in one event loop that call `wait_for_room` themselves.
        """
        self._check_open()
        if not entries:
            return
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        size = sum([len(entry.body) for entry in entries])
        self._submitted += len(entries)
        self._waiting_bytes += size
        self._queue.put((entries, size, settled))
        if self._has_batch():
            self._call.set()

    async def _submit_and_wait(self, entry: InsertRow) -> bool:
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def settle(outcome: list[bool] | AssayError) -> None:
            if future.done():
                return  # the task was cancelled
            if isinstance(outcome, AssayError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome[0])

        self.submit([entry], settle)
        with self._flush_early():
            return await future

    @property
    def is_full(self) -> bool:
        """Whether the queue has reached a limit, so that callers should wait."""
        settings = self._settings
        return (
            self._submitted - self._settled >= settings.waiting_samples
            or self._waiting_bytes >= settings.waiting_bytes
        )

    async def wait_for_room(self) -> None:
        """Wait while the writer is full. Raises the write error if there was one."""
        self._check_usable()
        while self.is_full:
            self._room.clear()
            await self._room.wait()
            self._check_usable()

    async def flush(self) -> None:
        """Return once everything submitted is settled."""
        with self._flush_early():
            while self._settled < self._submitted:
                self._room.clear()
                await self._room.wait()

    @contextmanager
    def _flush_early(self) -> Iterator[None]:
        self._awaited += 1
        self._call.set()
        try:
            yield
        finally:
            self._awaited -= 1

    async def close(self) -> None:
        """Write the queue and end the thread. Raises the write error if there was one."""
        if not self._closing:
            self._closing = True
            self._queue.put(None)
            self._call.set()
        while not self._ended.is_set():
            # Polled rather than awaited in a worker thread: at most one batch is left to write.
            await asyncio.sleep(self._settings.quiet_s)
        self._thread.join()
        self._on_close()
        self._raise_error()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def _check_usable(self) -> None:
        self._check_open()
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise ConfigError(
                "a writer can be used in one event loop only",
                hint="create a writer in each event loop",
                where="Writer",
            )

    def _check_open(self) -> None:
        self._raise_error()
        if self._closing:
            raise StoreError("the writer is closed", where=self._where)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise _copy_error(self._error)

    # The methods below run in the writer's thread, except `_settle`.

    def _write_batches(self) -> None:
        next_beat = time.monotonic() + self._settings.heartbeat_s
        try:
            last = False
            while not last:
                batch, last = self._take_batch(next_beat)
                if batch:
                    self._commit(batch)
                if time.monotonic() >= next_beat and not last:
                    next_beat = time.monotonic() + self._settings.heartbeat_s
                    self._try(self._renew)
        finally:
            self._ended.set()

    def _take_batch(self, until: float) -> tuple[list[_Submission], bool]:
        """Return the queued submissions, and whether the writer was closed."""
        try:
            first = self._queue.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            return [], False
        if first is None:
            return [], True
        self._wait_for_batch()
        batch = [first]
        count = len(first[0])
        while count < self._settings.batch_samples:
            try:
                group = self._queue.get_nowait()
            except Empty:
                break
            if group is None:
                return batch, True
            batch.append(group)
            count += len(group[0])
        self._taken += count
        return batch, False

    def _wait_for_batch(self) -> None:
        deadline = time.monotonic() + self._settings.flush_s
        self._call.clear()
        if not (self._awaited or self._closing or self._has_batch()):
            self._call.wait(self._settings.flush_s)
        # A caller waits. Sleep in short intervals until the batch stops growing: waking the thread
        # for every sample would cost more than writing it.
        seen = -1
        while self._awaited and not self._closing and time.monotonic() < deadline:
            waiting = self._submitted - self._taken
            if waiting == seen or self._has_batch():
                return
            seen = waiting
            time.sleep(self._settings.quiet_s)

    def _has_batch(self) -> bool:
        return self._submitted - self._taken >= self._settings.batch_samples or self.is_full

    def _commit(self, batch: list[_Submission]) -> None:
        inserted: list[bool] = []
        entries = [entry for entries, _, _ in batch for entry in entries]
        self._try(lambda: inserted.extend(self._write(entries)))
        assert self._loop is not None
        # A closed event loop has no task that waits. `close` still raises a write error.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._settle, batch, inserted)

    def _try(self, action: Callable[[], None]) -> None:
        """Run an action, unless one has failed before; keep its error for the callers."""
        if self._error is not None:
            return
        try:
            action()
        except AssayError as error:
            self._error = error
        except Exception as error:
            self._error = StoreError(f"{type(error).__name__}: {error}", where=self._where)

    def _settle(self, batch: list[_Submission], inserted: list[bool]) -> None:
        self._room.set()
        start = 0
        for entries, size, settled in batch:
            self._settled += len(entries)
            self._waiting_bytes -= size
            if inserted:
                settled(inserted[start : start + len(entries)])
                start += len(entries)
            else:
                assert self._error is not None
                settled(_copy_error(self._error))


def _copy_error(error: AssayError) -> AssayError:
    # One exception raised in many tasks would accumulate all their tracebacks.
    return type(error)(error.message, where=error.where, hint=error.hint)
