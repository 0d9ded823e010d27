"""What `agent=` accepts, and how each mistake is refused."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.agents import CommandAgent, FunctionAgent, HttpAgent, RunContext, resolve_agent
from assay.errors import ConfigError
from assay.types import Endpoint, Sample, Trajectory
from plugin_package import install_package


class _Own:
    name = "own"
    identity = "own 1"

    async def run(self, sample: Sample, context: RunContext) -> Trajectory:
        return Trajectory()


def ask(sample: Sample) -> str:
    return "four"


def test_agents_and_endpoints_are_taken_as_they_are() -> None:
    agent, endpoint = _Own(), Endpoint(provider="mock", model="echo")

    assert resolve_agent(agent) is agent
    assert resolve_agent(endpoint) is endpoint


@pytest.mark.parametrize(
    ("ref", "kind", "name"),
    [
        (ask, FunctionAgent, "ask"),
        ("cmd:cat", CommandAgent, "cmd:cat"),
        ("http://127.0.0.1:1/ask", HttpAgent, "http://127.0.0.1:1/ask"),
        ("http://127.0.0.1:1/ask?key=abcdefgh#answer=a.b[0]", HttpAgent, "http://127.0.0.1:1/ask"),
        ("http://127.0.0.1:1/v1#answer=text", HttpAgent, "http://127.0.0.1:1/v1"),
    ],
)
def test_functions_commands_and_services_are_agents(ref: Any, kind: type, name: str) -> None:
    found = resolve_agent(ref)

    assert isinstance(found, kind)
    assert not isinstance(found, Endpoint)
    assert found.name.endswith(name)


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        ("mock:echo", ("mock", "echo", None, None)),
        ("http://127.0.0.1:1/v1", ("openai-compatible", "default", "http://127.0.0.1:1/v1", None)),
        (
            "http://127.0.0.1:1/v1/chat/completions#model=my-model&key_env=MY_KEY",
            ("openai-compatible", "my-model", "http://127.0.0.1:1/v1", "MY_KEY"),
        ),
    ],
)
def test_models_and_chat_servers_are_endpoints(ref: str, expected: tuple[object, ...]) -> None:
    found = resolve_agent(ref)

    assert isinstance(found, Endpoint)
    assert (found.provider, found.model, found.api_base, found.key_env) == expected


def test_code_is_imported_from_a_file_or_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_agent_file.py").write_text(
        "def ask(sample):\n    return 'four'\n\nmodel = 'mock:echo'\n"
    )

    by_file = resolve_agent("my_agent_file.py:ask")
    by_module = resolve_agent("my_agent_file:ask")

    assert isinstance(by_file, FunctionAgent)
    assert isinstance(by_module, FunctionAgent)
    assert (by_file.name, by_module.name) == ("my_agent_file.py:ask", "my_agent_file:ask")
    with pytest.raises(ConfigError, match=r"my_agent_file.py does not define 'answer'") as caught:
        resolve_agent("my_agent_file.py:answer")
    assert "ask" in str(caught.value.hint)
    with pytest.raises(ConfigError, match="is a string, not an agent"):
        resolve_agent("my_agent_file.py:model")
    with pytest.raises(ConfigError, match="the file does not exist"):
        resolve_agent("no_such_file.py:ask")


def test_a_request_template_is_given_as_json_or_as_a_file(tmp_path: Path) -> None:
    template = {"question": "{prompt}"}
    file = tmp_path / "request.json"
    file.write_text(json.dumps(template))

    by_file = resolve_agent(f"http://127.0.0.1:1/ask#request={file}")
    by_json = resolve_agent(f"http://127.0.0.1:1/ask#request={json.dumps(template)}")

    assert by_file.identity == by_json.identity  # type: ignore[union-attr]  # agents


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ("gpt-5", "does not name an agent"),
        (3, "cannot be of type `int`"),
        (_Own, r"`agent` is the class `_Own`, not one of its objects\n.*agent = _Own\(\)"),
        (
            SimpleNamespace(run=lambda: "", name="a", identity="a"),
            "the agent a cannot be called with a sample",
        ),
        (SimpleNamespace(run=print), "has `run`, but no text as `name` and `identity`"),
        (SimpleNamespace(run=print, name="a"), "has `run`, but no text as `identity`"),
        (SimpleNamespace(run=print, name=3, identity="a"), "has `run`, but no text as `name`"),
        ("opnai:gpt-5", r"does not name an agent\n.*did you mean openai:"),
        ("cmd:", "no command"),
        ("cmd:no-such-program-here", "was not found"),
        ("http://127.0.0.1:1/ask#anwser=x", "unknown setting 'anwser'"),
        ("http://127.0.0.1:1/ask#answer", "unknown setting"),
        ("http://127.0.0.1:1/ask#model=x", "`model` applies to addresses"),
        ("http://127.0.0.1:1/ask#answer=a..b", "the answer path 'a..b' is invalid"),
        ("http://127.0.0.1:1/ask#request=[1]", "request template"),
        ("http://user:word@127.0.0.1/ask", "user or password"),
        ("no_such_module_here:ask", "cannot be imported"),
    ],
)
def test_a_mistake_is_refused_before_any_call(ref: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_agent(ref)


PLUGINS = """
from assay.types import Endpoint, Message, Trajectory

class Parrot:
    name = "parrot"

    def __init__(self, times="1"):
        self.identity = f"parrot {int(times)}"

    async def run(self, sample, context):
        return Trajectory()

parrot = Parrot("7")

def answer(sample):
    return "four"

def build(settings):
    return answer if settings == "function" else 4

model = Endpoint(provider="mock", model="echo")
number = 4
"""


@pytest.fixture
def _plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("Parrot", "parrot", "answer", "build", "model", "number")
    entries = {f"agents.my-{name}": f"acme_assay:{name}" for name in names}
    shadows = {"agents.mock": "acme_assay:number", "agents.cmd": "acme_assay:number"}
    install_package(tmp_path, monkeypatch, {**entries, **shadows}, code=PLUGINS)


@pytest.mark.usefixtures("_plugins")
@pytest.mark.parametrize(
    ("ref", "identity"),
    [("my-Parrot", "parrot 1"), ("my-Parrot:3", "parrot 3"), ("my-parrot", "parrot 7")],
)
def test_a_plugin_is_an_agent_by_its_name_and_settings(ref: str, identity: str) -> None:
    found = resolve_agent(ref)

    assert not isinstance(found, Endpoint)
    assert found.identity == identity


@pytest.mark.usefixtures("_plugins")
def test_a_plugin_may_be_a_function_or_a_model() -> None:
    answer, built = resolve_agent("my-answer"), resolve_agent("my-build:function")

    assert isinstance(answer, FunctionAgent)
    assert answer.name == "my-answer"
    assert isinstance(built, FunctionAgent)
    assert resolve_agent("my-model") == Endpoint(provider="mock", model="echo")


@pytest.mark.usefixtures("_plugins")
@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ("my-number", "the plug-in is of type `int`, not an agent; it is registered by acme-assay"),
        ("my-parrot:3", "the agent takes no settings"),
        ("my-build:other", "the plug-in returned a `int`, not an agent"),
        ("my-Parrot:often", "the agent cannot be built: ValueError"),
        ("my-agent", "the string does not name an agent"),
    ],
)
def test_a_plugin_that_gives_no_agent_is_refused(ref: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve_agent(ref)

    assert message in refused.value.message


@pytest.mark.usefixtures("_plugins")
def test_a_plugin_does_not_replace_a_provider_or_a_command() -> None:
    assert resolve_agent("mock:echo") == Endpoint(provider="mock", model="echo")
    assert isinstance(resolve_agent("cmd:cat"), CommandAgent)


def test_a_file_that_is_not_a_reference_is_refused_with_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("agent.py", "agent.sh"):
        (tmp_path / name).touch()

    with pytest.raises(ConfigError, match=r"name its function: agent\.py:NAME"):
        resolve_agent("agent.py")
    with pytest.raises(ConfigError, match=r"run it: cmd:\./agent\.sh"):
        resolve_agent("./agent.sh")
