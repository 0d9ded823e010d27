"""Where rollouts take place: what makes an environment, and servers that are not there."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from assay.environments import BasicEnvironment, EnvironmentServer, ServerSettings, Step
from assay.errors import ConfigError, EnvironmentFault
from assay.pytest_plugin import evaluation_test
from assay.pytest_plugin.decorator import EvalOptions, eval_options_of
from assay.pytest_plugin.environment_servers import (
    build_token_redactor,
    open_environment,
    read_environment_token,
)
from assay.pytest_plugin.verdict import redact_report
from assay.types import Message, Sample
from assay.types.redaction import redact
from misbehaving import refused_port


def asked(**options: Any) -> EvalOptions:
    @evaluation_test([{}], **options)
    def judge(messages: object) -> float:
        return 1.0

    found = eval_options_of(judge)
    assert found is not None
    return found


def made(wanted: EvalOptions, *, rolled_out: bool = True) -> Any:
    async def enter() -> Any:
        async with open_environment(wanted, rolled_out=rolled_out) as factory:
            return factory

    return asyncio.run(enter())


class Slow(BasicEnvironment):
    """Never answers if its task says so."""

    def __init__(self, task: Mapping[str, Any]) -> None:
        self._hangs = task.get("hangs")

    async def step(self, action: Message) -> Step:
        if self._hangs:
            await asyncio.Event().wait()
        return await super().step(action)


def of_sample(sample: Sample) -> BasicEnvironment:
    return BasicEnvironment()


def test_names_classes_and_factories_are_passed_on() -> None:
    assert made(asked(environment="calculator")) == "calculator"
    assert made(asked(environment=None)) is None
    assert made(asked(environment=BasicEnvironment)) is BasicEnvironment
    assert made(asked(environment=of_sample)) is of_sample


TOKEN = "tok-81f3c0aa4e6b2d97"


def test_the_token_is_that_of_the_test_or_of_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, own = asked(env_url="http://h"), asked(env_url="http://h", env_token=TOKEN)

    monkeypatch.delenv("ASSAY_ENV_TOKEN", raising=False)
    assert (read_environment_token(plain), read_environment_token(own)) == (None, TOKEN)
    monkeypatch.setenv("ASSAY_ENV_TOKEN", "of-the-variable")
    assert (read_environment_token(plain), read_environment_token(own)) == (
        "of-the-variable",
        TOKEN,
    )


def test_a_token_of_the_variable_is_not_sent_over_plain_http_to_another_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse_all(url: str, **_: Any) -> None:
        raise ConnectionError("the server was asked")

    monkeypatch.setattr("assay.environments.wait_until_ready", refuse_all)
    monkeypatch.setenv("ASSAY_ENV_TOKEN", "of-the-variable")

    with pytest.raises(ConfigError, match="ASSAY_ENV_TOKEN is not sent to "):
        made(asked(env_url="http://games.test:8000"))
    for reached in (
        asked(env_url="https://games.test"),
        asked(env_url="http://127.0.0.1:9"),
        asked(env_url="http://games.test:8000", env_token=TOKEN),
    ):
        with pytest.raises(ConnectionError):
            made(reached)


def test_the_token_is_not_shown() -> None:
    wanted = asked(env_url="http://h", env_token=TOKEN)

    assert TOKEN not in repr(wanted)
    held = build_token_redactor(wanted)
    assert TOKEN not in redact(f"the server answers: {TOKEN} is wrong")
    del held
    report = SimpleNamespace(longrepr=f'@evaluation_test("a", env_token="{TOKEN}")')
    redact_report(cast(pytest.TestReport, report), wanted)
    assert TOKEN not in report.longrepr


def stepped(**options: Any) -> str | None:
    """What goes wrong in a step at a server with a token; None if nothing does."""

    async def main() -> str | None:
        async with EnvironmentServer(Slow, ServerSettings(token=TOKEN)) as server:
            wanted = asked(env_url=server.url, env_kind="own", **options)
            async with open_environment(wanted, rolled_out=True) as factory:
                environment = factory(Sample(input={"hangs": "step_timeout_s" in options}))
                try:
                    await environment.open(seed=1)
                    await environment.step(Message(role="assistant", content="Go."))
                except EnvironmentFault as fault:
                    return f"{fault.message} {fault.hint}"
                return None

    return asyncio.run(main())


def test_the_token_reaches_the_server() -> None:
    assert stepped(env_token=TOKEN) is None
    assert "`env_token` of @evaluation_test" in (stepped() or "")


def test_the_step_timeout_is_a_setting_that_the_error_names() -> None:
    late = stepped(env_token=TOKEN, step_timeout_s=0.05) or ""

    assert late.startswith("the server did not answer within 0.05 s")
    assert "`step_timeout_s` of @evaluation_test" in late


def test_a_server_that_is_not_there_is_waited_for_until_the_deadline() -> None:
    with refused_port() as port:
        options = asked(env_url=f"http://127.0.0.1:{port}/mcp", env_deadline_s=0.2)

        with pytest.raises(EnvironmentFault, match=r"the server was not ready within 0\.2 s"):
            made(options, rolled_out=False)


def test_a_server_that_dies_shows_its_last_words() -> None:
    command = ["python3", "-c", "print('no licence found'); raise SystemExit(3)"]

    with pytest.raises(EnvironmentFault, match=r"(?s)exited with status 3.*\| no licence found"):
        made(asked(env_url="http://127.0.0.1:{port}", env_command=command), rolled_out=False)


def test_a_context_manager_is_open_while_the_test_runs() -> None:
    class Servers:
        opened = 0

        async def __aenter__(self) -> Any:
            self.opened += 1
            return of_sample

        async def __aexit__(self, *error: object) -> None:
            self.opened -= 10

    servers = Servers()

    assert made(asked(environment=servers)) is of_sample
    assert servers.opened == -9
    assert made(asked(environment=servers), rolled_out=False) is None
    assert servers.opened == -9
