"""Where rollouts take place: what makes an environment, and servers that are not there."""

import asyncio
import inspect
import socket
from typing import Any

import pytest

from assay.errors import EnvironmentFault
from assay.models import Sample
from assay.pytest_plugin import evaluation_test
from assay.pytest_plugin.decorator import Asked, asked_of
from assay.pytest_plugin.environments import environment_of
from assay.rollout import BasicEnvironment


def asked(**options: Any) -> Asked:
    @evaluation_test([{}], **options)
    def judge(messages: object) -> float:
        return 1.0

    found = asked_of(judge)
    assert found is not None
    return found


def made(wanted: Asked, *, rolled_out: bool = True) -> Any:
    async def enter() -> Any:
        async with environment_of(wanted, rolled_out=rolled_out) as factory:
            return factory

    return asyncio.run(enter())


class OfSample(BasicEnvironment):
    def __init__(self, sample: Sample) -> None:
        self.sample = sample


def of_sample(sample: Sample) -> OfSample:
    return OfSample(sample)


def test_a_class_is_made_for_each_sample_under_its_own_name() -> None:
    factory = made(asked(environment=BasicEnvironment))

    first, second = factory(Sample(id="a")), factory(Sample(id="b"))
    assert isinstance(first, BasicEnvironment)
    assert first is not second
    assert factory.__qualname__ == "BasicEnvironment"
    assert list(inspect.signature(factory).parameters) == ["sample"]


def test_a_class_that_needs_the_sample_is_given_it() -> None:
    assert made(asked(environment=OfSample))(Sample(id="a")).sample.id == "a"


def test_names_and_factories_are_passed_on() -> None:
    assert made(asked(environment="calculator")) == "calculator"
    assert made(asked(environment=None)) is None
    assert made(asked(environment=of_sample)) is of_sample


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_server_that_is_not_there_is_waited_for_until_the_deadline() -> None:
    url = f"http://127.0.0.1:{free_port()}/mcp"

    with pytest.raises(EnvironmentFault, match=r"not ready within 0\.2 s"):
        made(asked(env_url=url, env_deadline_s=0.2), rolled_out=False)


def test_a_server_that_dies_shows_its_last_words() -> None:
    command = ["python3", "-c", "print('no licence found'); raise SystemExit(3)"]

    with pytest.raises(EnvironmentFault, match=r"(?s)ended with status 3.*\| no licence found"):
        made(asked(env_url="http://127.0.0.1:{port}", env_command=command), rolled_out=False)
