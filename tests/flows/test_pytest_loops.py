"""Async fixtures of other plugins, and the debugger, in whole sessions."""

import subprocess
import sys
from pathlib import Path

import pytest

from evaluation_sessions import call_pytest, run, write_tests

ASYNC = """
    %(imports)s

    @%(fixture)s
    async def lock():
        made_in = asyncio.get_running_loop()
        yield lambda: made_in is asyncio.get_running_loop()
        assert made_in is asyncio.get_running_loop()

    @pytest.fixture
    def same_loop(lock):
        return lock

    @evaluation_test(rows(a="yes", b="yes"), threshold=1)
    async def test_each(reply, lock):
        await asyncio.sleep(0)
        return lock()

    @evaluation_test(rows(a="yes", b="yes"), threshold=1, batch=True)
    async def test_batch(rows, same_loop):
        await asyncio.sleep(0)
        return [same_loop() for _ in rows]

    class TestClass:
        @evaluation_test(rows(a="yes"), threshold=1)
        async def test_method(self, reply, lock):
            return isinstance(self, TestClass) and lock()

    @evaluation_test(rows(a="no"), threshold=1)
    async def test_fails(reply, lock):
        return reply == "yes" and lock()

    @evaluation_test(rows(a="yes"))
    def test_plain(reply):
        return 1.0
"""
ASYNCIO = {"imports": "import pytest_asyncio", "fixture": "pytest_asyncio.fixture"}
ANYIO = {
    "imports": "pytestmark = pytest.mark.anyio\n\n"
    "    @pytest.fixture(scope='module')\n"
    "    def anyio_backend(): return 'asyncio'",
    "fixture": "pytest.fixture",
}
MODES = {
    "strict": (ASYNCIO, ("--asyncio-mode=strict",)),
    "auto": ({**ASYNCIO, "fixture": "pytest.fixture"}, ("--asyncio-mode=auto",)),
}


@pytest.mark.parametrize("mode", MODES)
def test_async_fixtures_of_pytest_asyncio_are_used_in_their_loop(mode: str, tmp_path: Path) -> None:
    names, options = MODES[mode]
    write_tests(tmp_path, ASYNC % names)

    session = call_pytest(tmp_path, *options, "-o", "asyncio_default_fixture_loop_scope=function")

    assert session.outcomes == {
        **dict.fromkeys(["test_each", "test_batch", "test_method", "test_plain"], "passed"),
        "test_fails": "failure",
    }, session.output
    assert session.tests["test_fails"]["reason"] == "mean 0.000 is below 1.000"
    assert "test_fails: score 0.000" in session.output


@pytest.mark.parametrize("mode", MODES)
def test_async_fixtures_that_outlive_a_test_are_used_in_their_loop(
    mode: str, tmp_path: Path
) -> None:
    _, options = MODES[mode]
    write_tests(
        tmp_path,
        """
        import pytest_asyncio

        @pytest_asyncio.fixture(scope="session", loop_scope="session")
        async def shared():
            made_in = asyncio.get_running_loop()
            return lambda: made_in is asyncio.get_running_loop()

        @pytest_asyncio.fixture(scope="module")
        async def of_module():
            made_in = asyncio.get_running_loop()
            return lambda: made_in is asyncio.get_running_loop()

        @evaluation_test(rows(a="yes", b="yes"), threshold=1)
        async def test_shared(reply, shared):
            return shared()

        @evaluation_test(rows(a="yes", b="yes"), threshold=1)
        async def test_of_module(reply, of_module):
            return of_module()
        """,
    )

    # Unset, the loop of a fixture lives as long as the fixture; the plugin warns of that.
    session = run(tmp_path, *options, "-W", "default")

    assert set(session.outcomes.values()) == {"passed"}, session.output


def test_async_fixtures_of_anyio_are_used_in_their_loop(tmp_path: Path) -> None:
    write_tests(tmp_path, ASYNC % ANYIO)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:asyncio", "-q"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert "1 failed, 4 passed" in done.stdout, done.stdout
    assert "test_fails: score 0.000" in done.stdout


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_the_debugger_stops_in_the_scorer(kind: str, tmp_path: Path) -> None:
    write_tests(
        tmp_path,
        f"""
        @evaluation_test(rows(a="yes", b="no"), retries=0)
        {kind} test_raises(sample, reply):
            marker = "in the scorer of " + sample.id
            if reply == "no":
                raise ValueError("cannot read it")
            return 1.0

        @evaluation_test(rows(a="no"))
        {kind} test_asserts(reply):
            marker = "at the assertion"
            assert reply == "yes"
            return 1.0

        @evaluation_test(rows(a="no"))
        {kind} test_fails(reply):
            marker = "at pytest.fail"
            pytest.fail("no")

        @evaluation_test(rows(a="no"))
        {kind} test_exits(reply):
            marker = "at the exit"
            raise SystemExit(3)
        """,
    )

    plugins = ("-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:anyio")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--pdb", *plugins],
        cwd=tmp_path,
        input="p marker\nc\n" * 4,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert "'in the scorer of b'" in done.stdout, done.stdout
    assert "'at the assertion'" in done.stdout
    assert "'at pytest.fail'" in done.stdout
    assert "'at the exit'" in done.stdout
    assert "without a valid score: 1 result" in done.stdout
    assert "4 failed" in done.stdout
