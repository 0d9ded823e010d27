"""The options of `assay certify`: each becomes a setting, and wrong ones are refused."""

from argparse import ArgumentParser
from pathlib import Path

import pytest

from assay.certify import CertifySettings
from assay.cli.certify_options import add_certify_options, build_certify_settings
from assay.types import Endpoint


def settings(*options: str) -> CertifySettings:
    parser = ArgumentParser()
    add_certify_options(parser)
    return build_certify_settings(parser.parse_args(["agent.yaml", *options]))


def test_without_options_the_defaults_hold() -> None:
    assert settings() == CertifySettings()


def test_each_option_becomes_a_setting(tmp_path: Path) -> None:
    (tmp_path / "judge.json").write_text('{"provider": "mock", "model": "echo"}')
    found = settings(
        *("--runner", "my:agent", "--judge", str(tmp_path / "judge.json"), "--tools", "t"),
        *("--dataset", "d.jsonl", "--max-samples", "3", "--seed", "7", "--timeout-s", "2.5"),
        *("--concurrency", "4", "--latency-concurrency", "2", "--warmup", "0"),
        *("--allow-private", "--allow-outside"),
    )

    assert (found.runner, found.tools, found.dataset) == ("my:agent", "t", "d.jsonl")
    assert found.judge == Endpoint(provider="mock", model="echo")
    assert (found.max_samples, found.seed, found.timeout_s, found.warmup) == (3, 7, 2.5, 0)
    assert (found.concurrency, found.latency_concurrency) == (4, 2)
    assert found.fetch.allow_private
    assert found.fetch.allow_outside


def test_a_runner_may_be_the_file_of_an_endpoint(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text('{"provider": "mock", "model": "echo", "temperature": 0}')

    runner = settings("--runner", str(path)).runner

    assert isinstance(runner, Endpoint)
    assert runner.temperature == 0


@pytest.mark.parametrize(
    "option", ["--warmup=-1", "--max-samples=0", "--timeout-s=soon", "--seed=x"]
)
def test_a_number_that_is_none_is_refused(option: str) -> None:
    with pytest.raises(SystemExit):
        settings(option)
