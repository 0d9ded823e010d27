"""Blocking calls of async code inside a running event loop: Ctrl-C reaches the work."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from concurrent import futures
from types import FrameType

import pytest

from assay.runner import blocking_call
from assay.runner.blocking_call import raise_on_ctrl_c, run_blocking


async def press_ctrl_c_and_wait(notes: list[str]) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        notes.append("cancelled")
        raise


def call_in_asyncio_run(call: Callable[[], object]) -> None:
    async def run_cell() -> None:
        call()

    asyncio.run(run_cell())


def call_in_plain_loop(call: Callable[[], object]) -> None:
    # As in a notebook: the handler is Python's own.
    async def run_cell() -> None:
        call()

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(run_cell())
    finally:
        loop.close()


@pytest.mark.parametrize("call_in_loop", [call_in_asyncio_run, call_in_plain_loop])
def test_the_first_ctrl_c_cancels_the_work(
    call_in_loop: Callable[[Callable[[], object]], None],
) -> None:
    notes: list[str] = []
    before = signal.getsignal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        call_in_loop(lambda: run_blocking(press_ctrl_c_and_wait(notes), thread_name="work"))

    assert notes == ["cancelled"]
    assert signal.getsignal(signal.SIGINT) is before
    assert "work" not in [each.name for each in threading.enumerate()]


def test_an_interrupt_before_the_work_has_begun_cancels_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_begin = threading.Event()

    class LateThread(threading.Thread):
        def start(self) -> None:
            super().start()
            raise KeyboardInterrupt

        def run(self) -> None:
            assert may_begin.wait(60)
            super().run()

    def wait(results: object) -> None:
        may_begin.set()
        futures.wait(results)  # type: ignore[arg-type]  # those of the call

    notes: list[str] = []

    async def work() -> None:
        notes.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            notes.append("ended")

    monkeypatch.setattr(blocking_call, "wait", wait)
    monkeypatch.setattr(threading, "Thread", LateThread)

    with pytest.raises(KeyboardInterrupt):
        call_in_asyncio_run(lambda: run_blocking(work(), thread_name="work"))

    assert notes == ["begun", "ended"]


def test_the_handler_is_restored_after_an_error() -> None:
    handlers: list[object] = []

    async def fail() -> None:
        handlers.append(signal.getsignal(signal.SIGINT))
        raise ValueError("broken")

    async def run_cell() -> None:
        before = signal.getsignal(signal.SIGINT)
        with pytest.raises(ValueError, match="broken"):
            run_blocking(fail(), thread_name="work")
        assert signal.getsignal(signal.SIGINT) is before

    asyncio.run(run_cell())

    assert handlers == [signal.default_int_handler]


def test_an_error_outside_a_loop_has_no_other_context() -> None:
    async def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken") as caught:
        run_blocking(fail(), thread_name="work")

    assert caught.value.__context__ is None


def test_a_handler_of_the_program_is_left_alone() -> None:
    def note(number: int, frame: FrameType | None) -> None:
        return None

    before = signal.signal(signal.SIGINT, note)
    try:
        with raise_on_ctrl_c():
            assert signal.getsignal(signal.SIGINT) is note
        assert signal.getsignal(signal.SIGINT) is note
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_thread_has_no_handler_to_replace() -> None:
    results: list[int] = []

    async def answer() -> int:
        return 7

    async def run_cell() -> None:
        results.append(run_blocking(answer(), thread_name="work"))

    thread = threading.Thread(target=asyncio.run, args=(run_cell(),))
    thread.start()
    thread.join()

    assert results == [7]


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="needs signal masks")
def test_ctrl_c_that_another_thread_receives_cancels_the_work() -> None:
    ended: list[bool] = []

    async def work() -> None:
        # The main thread blocks the signal, so that the system hands it to this one.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        await asyncio.sleep(0.1)  # until the main thread waits
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(5)
        ended.append(True)

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with pytest.raises(KeyboardInterrupt):
            call_in_asyncio_run(lambda: run_blocking(work(), thread_name="work"))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    assert not ended
