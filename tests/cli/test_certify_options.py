"""The options of `assay certify`: each becomes a setting, and wrong ones are refused."""

import json
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path

import pytest

from assay.certify import CertifySettings
from assay.certify.certificate import Statement
from assay.cli import main
from assay.cli.certify_options import (
    add_certify_options,
    build_certify_settings,
    format_subject,
    parse_digest,
    parse_subject,
)
from assay.types import Endpoint
from certifying import RIGHT, agent, golden, manifest, profile


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


IMAGE = f"registry/agent:1=sha256:{'ab' * 32}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    golden(tmp_path, rows=3)
    manifest(tmp_path, profile())
    return tmp_path


def run(*options: str) -> int:
    return main(
        ["certify", "run", "agent.yaml", "--runner", "certifying:right", "--quiet", *options]
    )


def test_a_signed_certificate_is_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["certify", "keygen", "-o", "key.pem"])

    status = run(
        *("-o", "out", "--sign", "key.pem", "--valid-days", "7", "--subject", IMAGE, "--json")
    )

    assert status == 0
    told = capsys.readouterr().out.partition("\n{")[2]
    (result,) = json.loads("{" + told)["results"]
    assert [Path(path).name for path in result["written"]] == [
        "result.json",
        "card.md",
        "junit.xml",
        "certificate.json",
        "certificate.dsse.json",
    ]
    found = Statement.model_validate_json(Path("out/certificate.json").read_text())
    assert found.subject[-1].name == "registry/agent:1"
    assert found.certification.valid_until.date() > found.certification.finished.date()


def test_the_card_says_what_the_manifest_says(folder: Path) -> None:
    assert run("-o", "out") == 0

    assert "| role | One who helps. |" in Path("out/card.md").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--sign", "key.pem"), "--sign needs an output folder for the certificate"),
        (("--sign", "none.pem", "-o", "out"), "none.pem: the key file cannot be read"),
        (("--sign", "golden.jsonl", "-o", "out"), "not a private key"),
        (("--passphrase-env", "X"), "--passphrase-env has no effect without --sign"),
        (("-o", "golden.jsonl/out"), "the output folder is not writable"),
        (("--valid-days", "4000"), "is not between 1 and 3650"),
        (("--valid-days", "0"), "is not a number of 1 or more"),
        (("--subject", "image"), "is not ALGORITHM:DIGEST"),
        (("--subject", "sha256:abcdef01"), "is not NAME=ALGORITHM:DIGEST"),
        (("--no-weaken",), "need --baseline"),
        (("--baseline", "none.yaml"), "none.yaml"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_run(
    options: tuple[str, ...], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*options) == 2

    assert message in capsys.readouterr().err
    assert not Path(".assay").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("agent.yaml", "-o", "out", "--no-such-option"),
        ("--max-samples", "0", "agent.yaml", "--output=out"),
        ("agent.yaml", "-oout", "--seed", "1", "--seed", "2"),
        ("-o", "out"),
    ],
)
def test_a_wrong_command_line_leaves_no_earlier_certificate(
    words: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place in ("out", "out/helper"):
        Path(place).mkdir()
        Path(place, "certificate.json").write_text("{}")

    assert main(["certify", "run", *words]) == 2

    assert not Path("out/certificate.json").exists()
    assert Path("out/helper/certificate.json").exists() is ("agent.yaml" not in words)
    assert "out/certificate.json.previous is the earlier certificate" in capsys.readouterr().err


def test_a_weaker_manifest_than_the_baseline_is_not_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("old.yaml").write_text(Path("agent.yaml").read_text())
    manifest(folder, profile({**RIGHT, "threshold": 0.8}))

    assert run("--baseline", "old.yaml", "--no-weaken") == 1
    told = capsys.readouterr()
    assert run("--baseline", "old.yaml", "--no-weaken", "--json") == 1

    assert told.out == ""
    assert "weakened      helper: evaluation.grading_rubric.exact_answer.threshold" in told.err
    assert "nothing was run" in told.err
    assert json.loads(capsys.readouterr().out)["counts"]["weakened"] == 1
    assert not Path(".assay").exists()


def test_without_the_guard_changes_are_told_and_it_is_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("old.yaml").write_text(Path("agent.yaml").read_text())
    manifest(folder, profile({**RIGHT, "threshold": 0.8}))

    assert run("--baseline", "old.yaml") == 0
    assert "changes       1 weakened" in capsys.readouterr().err


def test_a_subject_is_a_name_and_a_digest() -> None:
    assert format_subject(parse_subject(IMAGE)) == IMAGE
    assert parse_subject(f"a=b=gitCommit:{'0' * 40}").name == "a=b"
    assert parse_digest("gitCommit:0123abcd") == ("gitCommit", "0123abcd")


@pytest.mark.parametrize("text", ["", "sha256", "sha256:", "sha256:XYZ", "sha 256:abcdef01", ":ab"])
def test_what_is_no_digest_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is not ALGORITHM:DIGEST"):
        parse_digest(text)


def test_two_agents_do_not_share_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agents = {name: agent(profile(), id=name) for name in ("a.b", "a+b")}
    Path("agent.yaml").write_text(json.dumps({"definitions": agents}))
    command = ["certify", "run", "agent.yaml", "--quiet", "-o", "out"]

    assert main(command) == 2
    assert "two agents have ids that map to the same folder name" in capsys.readouterr().err
    assert main([*command, "--agent", "a.b"]) == 1


def test_the_way_to_go_on_has_the_options_of_the_certificate(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "broken_metric_of_issuing.py").write_text(
        "def score(sample):\n    raise ValueError('no')\n"
    )
    manifest(folder, profile({**RIGHT, "metric": "broken_metric_of_issuing:score"}))
    main(["certify", "keygen", "-o", "key.pem"])

    assert run("-o", "out", "--sign", "key.pem", "--subject", IMAGE) == 3

    go_on = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"--sign key.pem --valid-days 90 --subject {IMAGE}" in go_on
    assert not Path("out/certificate.json").exists()
