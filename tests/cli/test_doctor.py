"""`assay doctor` from the inside."""

import asyncio
import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from assay.cli import doctor
from assay.cli.doctor import (
    CheckedEndpoint,
    DoctorReport,
    EndpointRequest,
    Extra,
    StoreCheck,
    check_endpoints,
    main,
    read_extras,
    request_endpoints_by_key,
)
from assay.errors import ConfigError
from assay.providers import EndpointCheck
from assay.types import Endpoint
from misbehaving import refused_port
from plugin_package import install_package
from recorded_runs import record, samples

KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY")


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*KEYS, "ASSAY_STORE", "ASSAY_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def given(**options: Any) -> Namespace:
    return Namespace(**{"model": [], "store": None, "json": False, **options})


def test_without_a_model_or_a_key_nothing_is_asked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asks(endpoint: Endpoint) -> EndpointCheck:
        raise AssertionError("an endpoint was asked")

    monkeypatch.setattr(doctor, "check_endpoint", asks)

    assert main(given()) == 0

    printed = capsys.readouterr().out
    assert "assay         0." in printed
    assert "the store does not exist yet; `assay eval` creates it" in printed
    assert "none checked: pass --model" in printed
    assert list(tmp_path.iterdir()) == []


def test_extras_come_from_the_packages_own_requirements() -> None:
    found = list(
        read_extras(
            [
                "pydantic>=2",
                "pytest>=8; extra == 'here'",
                "no-such-thing[x]>=1; python_version > '3' and extra == \"gone\"",
                "ruff; extra == 'dev'",
            ]
        )
    )

    assert [(extra.name, extra.package) for extra in found] == [
        ("here", "pytest"),
        ("gone", "no-such-thing"),
    ]
    assert [extra.version for extra in found] == [pytest.__version__, None]


def test_an_extra_has_one_line_with_its_versions_or_what_is_missing_of_it() -> None:
    extras = [
        Extra("hf", "datasets", "5.2"),
        Extra("hf", "fsspec", "2026.6"),
        Extra("s3", "fsspec", "2026.6"),
        Extra("s3", "s3fs", None),
        Extra("gcs", "fsspec", None),
        Extra("gcs", "gcsfs", None),
    ]

    lines = DoctorReport(extras, StoreCheck("a.db", "opens", well=True), []).lines()

    assert [line for line in lines if line.startswith("[")] == [
        "[hf]          datasets 5.2, fsspec 2026.6",
        "[s3]          not installed: pip install 'assay-eval[s3]' adds s3fs",
        "[gcs]         not installed: pip install 'assay-eval[gcs]' adds fsspec, gcsfs",
    ]


def test_the_shipped_extras_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    main(given(json=True))

    said = json.loads(capsys.readouterr().out)
    assert {each["name"] for each in said["extras"]} >= {"gym", "hf", "parquet", "postgres"}
    assert said["well"] is True


def test_a_store_that_opens_names_its_newest_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = record(tmp_path / "a.db", *samples(a=1.0))

    assert main(given(store="a.db")) == 0

    assert f"opens; its newest run is {run}" in capsys.readouterr().out


def test_a_store_that_does_not_open_is_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.db").write_text("this is no database, but quite a long text" * 100)

    assert main(given(store="a.db")) == 3
    assert "the file is not a store" in capsys.readouterr().out


def test_models_are_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(given(model=["mock:echo"])) == 0
    with refused_port() as port:
        address = f"http://user:canary@127.0.0.1:{port}/v1"
        assert main(given(model=["mock:echo", f"vllm:m@{address}"])) == 3

    printed = capsys.readouterr().out
    assert "endpoint      mock:echo\n              answers: a mock, in this process\n" in printed
    assert "endpoint      vllm:m@http://***@127.0.0.1" in printed
    assert "unreachable: " in printed
    assert "canary" not in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_a_model_string_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="a model string has the form `provider:model`"):
        main(given(model=["gpt"]))


def test_a_key_in_the_environment_is_a_reason_to_ask() -> None:
    found = list(request_endpoints_by_key({"OPENAI_API_KEY": "canary", "ANTHROPIC_API_KEY": " "}))

    assert [(each.name, each.by_key) for each in found] == [("openai", "OPENAI_API_KEY")]
    assert "canary" not in repr(found)


def test_keys_of_every_provider_are_found() -> None:
    environment = {
        "GOOGLE_API_KEY": "canary",
        "AZURE_OPENAI_API_KEY": "canary",
        "AWS_BEARER_TOKEN_BEDROCK": "canary",
    }

    found = [(each.name, each.by_key) for each in request_endpoints_by_key(environment)]
    assert found == [("gemini", "GOOGLE_API_KEY"), ("bedrock", "AWS_BEARER_TOKEN_BEDROCK")]

    # A key of Azure without an address may be meant for other programs.
    environment["AZURE_OPENAI_ENDPOINT"] = "https://mine.openai.azure.com"
    assert "azure" in [each.name for each in request_endpoints_by_key(environment)]


def finding(asked: EndpointRequest, check: EndpointCheck) -> DoctorReport:
    store = StoreCheck("a.db", "opens", well=True)
    return DoctorReport([Extra("x", "y", "1")], store, [CheckedEndpoint.of(asked, check)])


def test_a_model_that_is_missing_counts_only_where_it_was_asked_for() -> None:
    check = EndpointCheck("answers", "2 models", 0.5, ("a", "b"), False, "'any' is not among them")
    endpoint = Endpoint(provider="openai", model="any")

    asked = finding(EndpointRequest("openai:any", endpoint), check)
    found = finding(EndpointRequest("openai", endpoint, by_key="OPENAI_API_KEY"), check)

    assert not asked.well
    assert "              hint: 'any' is not among them" in asked.lines()
    assert found.well
    assert "endpoint      openai (by OPENAI_API_KEY)" in found.lines()
    assert "hint" not in "".join(found.lines())
    assert found.plain()["endpoints"][0]["models"] == ("a", "b")


def test_text_of_a_server_does_not_act_on_the_terminal() -> None:
    check = EndpointCheck("refused", "says \x1b[2J", 0.5)

    lines = finding(EndpointRequest("vllm:m", Endpoint(provider="vllm", model="m")), check).lines()

    assert "says \ufffd[2J" in "".join(lines)


def test_endpoints_are_asked_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def both() -> None:
        barrier = asyncio.Barrier(2)

        async def asks(endpoint: Endpoint) -> EndpointCheck:
            await asyncio.wait_for(barrier.wait(), 180)
            return EndpointCheck("answers", "")

        monkeypatch.setattr(doctor, "check_endpoint", asks)
        endpoint = Endpoint(provider="mock", model="echo")
        assert (
            len(
                await check_endpoints(
                    [EndpointRequest("a", endpoint), EndpointRequest("b", endpoint)]
                )
            )
            == 2
        )

    asyncio.run(both())


def test_a_broken_plugin_is_listed_and_changes_no_status(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = {
        "scorers.broken": "acme_assay:gone",
        "agents.number": "acme_assay:number",
        "providers.mock": "acme_assay:number",
        "environments.room": "acme_assay:room",
    }
    code = "print('imported')\nnumber = 4\ndef room(): ..."
    install_package(tmp_path, monkeypatch, entries, code=code)

    assert main(given(json=True)) == 0

    plugins = json.loads(capsys.readouterr().out)["plugins"]
    foreign = {
        (group, each["name"]): each["error"]
        for group, entries in plugins.items()
        for each in entries
        if each["origin"] == "acme-assay 1.0"
    }
    assert foreign["scorers", "broken"].endswith("has no attribute 'gone'")
    assert foreign["agents", "number"].startswith("the plug-in is of type `int`, not an agent")
    assert foreign["providers", "mock"].startswith("the name 'mock' belongs to assay")
    assert foreign["environments", "room"] is None
    assert {"name": "mock", "origin": "assay", "error": None} in plugins["providers"]


def test_the_names_of_assay_and_of_packages_are_listed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = {"environments.room": "acme_assay:room", "environments.attic": "acme_assay:gone"}
    install_package(tmp_path, monkeypatch, entries, code="def room(): ...")

    main(given())

    printed = capsys.readouterr().out
    assert "environments  basic, calculator, gym (assay)\n" in printed
    assert "              room (acme-assay 1.0)\n" in printed
    assert "              attic (acme-assay 1.0) is unusable: the entry point" in printed
    assert max(map(len, printed.splitlines())) <= 80
