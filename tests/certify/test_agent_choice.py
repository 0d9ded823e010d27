"""Which agent is tested: by what was asked for, and refused where it cannot be run."""

import sys
from pathlib import Path
from typing import Any

import pytest

from assay.certify import CertifySettings
from assay.certify.agent_choice import ChosenAgent, choose_agent
from assay.errors import ConfigError
from assay.types import Endpoint
from assay.types.manifest import AgentDefinition
from certifying import agent, profile, right
from plugin_package import install_package

TOOL = {
    "type": "inline",
    "name": "lookup",
    "description": "Find it.",
    "parameters": {"type": "object", "properties": {}},
}


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())


def digest(chosen: ChosenAgent) -> object:
    return getattr(chosen.agent, "sha256", None)


def choose(root: Path, fields: dict[str, Any] | None = None, **settings: Any) -> ChosenAgent:
    definition = AgentDefinition.model_validate({**agent(profile()), **(fields or {})})
    given = CertifySettings(**settings)
    return choose_agent(definition, given, root=root, where="agent.yaml: helper", slots=1)


def test_without_a_runner_it_is_the_manifests_own_model(tmp_path: Path) -> None:
    chosen = choose(tmp_path)

    assert chosen.agent.name == "own model mock:echo"
    assert chosen.deviations == ()


def test_an_address_is_asked_for_the_manifests_model(tmp_path: Path) -> None:
    chosen = choose(tmp_path, {"model": "gpt-4"}, runner="http://127.0.0.1:1/v1")

    assert chosen.endpoint is not None
    assert (chosen.endpoint.model, chosen.endpoint.provider) == ("gpt-4", "openai-compatible")
    assert chosen.agent.name == "openai-compatible:gpt-4 at 127.0.0.1:1"


def test_functions_are_found_beside_the_manifest_or_given(tmp_path: Path) -> None:
    (tmp_path / "agent_found_here.py").write_text("def answer(sample): return 'x'\n")

    assert digest(choose(tmp_path, runner="agent_found_here:answer")) is not None
    assert choose(tmp_path, runner=right).agent.name == "certifying:right"


def test_a_runner_is_what_an_agent_is_elsewhere(tmp_path: Path) -> None:
    lines = (
        "def answer(sample): return 'x'",
        "async def ask(sample, context): return 'x'",
        "class Mine:",
        "    name = identity = 'mine'",
        "    async def run(self, sample, context): ...",
        "mine = Mine()",
    )
    (tmp_path / "agents_of_all_kinds.py").write_text("\n".join(lines))

    for runner in (f"agents_of_all_kinds{end}" for end in (".py:answer", ":ask", ".py:mine")):
        chosen = choose(tmp_path, runner=runner)
        assert chosen.name == runner
        assert chosen.code is not None
        assert list(chosen.code.files) == ["agents_of_all_kinds.py"]
    with pytest.raises(ConfigError, match="does not define 'nothing'"):
        choose(tmp_path, runner="agents_of_all_kinds.py:nothing")
    with pytest.raises(ConfigError, match="the file does not exist"):
        choose(tmp_path, runner="nowhere.py:answer")


def test_a_command_is_run(tmp_path: Path) -> None:
    assert choose(tmp_path, runner="cmd:echo hello").agent.name == "cmd:echo hello"


def test_the_same_model_on_another_endpoint_is_no_deviation_but_another_model_is(
    tmp_path: Path,
) -> None:
    moved = Endpoint(provider="vllm", model="echo", api_base="http://127.0.0.1:1/v1")

    assert choose(tmp_path, runner=moved).deviations == ()
    assert choose(tmp_path, runner="vllm:other").deviations == (
        "the agent's model is other, not mock:echo",
    )


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no model": ({"model": None}, {}, "the agent has no `model`"),
    "unknown model": ({"model": "mine"}, {}, "the provider of the model 'mine' is unknown"),
    "no runner": ({}, {"runner": "nothing"}, "does not name an agent"),
    "no module": ({}, {"runner": "nowhere_at_all:f"}, "cannot be imported"),
    "no program": (
        {},
        {"runner": "cmd:no-such-program-x"},
        "the program 'no-such-program-x' was not found",
    ),
    "tools of a runner": ({}, {"runner": right, "tools": "x"}, "a runner has its own tools"),
    "tools without need": ({}, {"tools": "x"}, "--tools has no effect: the agent has no tools"),
    "inline without code": ({"tools": [TOOL]}, {}, "the tools lookup have no code"),
    "remote": (
        {"tools": [{"type": "remote", "uri": "mcp://x"}]},
        {},
        "cannot call the tools mcp://x",
    ),
    "by id": ({"tools": ["search"]}, {}, "cannot call the tools search"),
    "no such function": ({"tools": [TOOL]}, {"tools": "json"}, "'json' has no function 'lookup'"),
}


@pytest.mark.parametrize(("fields", "settings", "message"), REFUSED.values(), ids=REFUSED)
def test_an_agent_that_cannot_be_run_is_refused_before_a_call(
    tmp_path: Path, fields: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        choose(tmp_path, fields, **settings)


def test_the_code_of_every_tool_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = {**TOOL, "name": "order"}
    monkeypatch.syspath_prepend(tmp_path)

    def digest_of(name: str, ordered: str) -> object:
        looked_up = "def lookup() -> str:\n    return 'found'\n"
        (tmp_path / f"{name}_lookup.py").write_text(looked_up)
        (tmp_path / f"{name}_order.py").write_text(f"def order() -> str:\n    return {ordered!r}\n")
        (tmp_path / f"{name}.py").write_text(
            f"from {name}_lookup import lookup\nfrom {name}_order import order\n"
        )
        return digest(choose(tmp_path, {"tools": [TOOL, other]}, tools=name))

    first, same, changed = digest_of("one", "a"), digest_of("two", "a"), digest_of("three", "b")

    assert first is not None
    assert first == same != changed


def test_tools_without_a_file_have_no_digest(tmp_path: Path) -> None:
    made = "exec(compile('def lookup() -> str: return \"\"', '<made>', 'exec'))\n"
    (tmp_path / "tools_of_no_file.py").write_text(made)

    assert digest(choose(tmp_path, {"tools": [TOOL]}, tools="tools_of_no_file")) is None


def test_inline_tools_are_run_by_the_functions_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "tools_found_here.py").write_text("def lookup() -> str:\n    return 'found'\n")

    chosen = choose(tmp_path, {"tools": [TOOL]}, tools="tools_found_here")

    assert digest(chosen) is not None


def test_a_runner_may_be_the_agent_of_a_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `parrot:loud` has the form of module:function, too.
    code = "def build(settings):\n    return lambda sample: settings\n"
    install_package(tmp_path, monkeypatch, {"agents.parrot": "acme_assay:build"}, code=code)

    chosen = choose(tmp_path, runner="parrot:loud")

    assert chosen.agent.name == "parrot"
    assert chosen.endpoint is None
