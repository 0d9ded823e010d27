"""What a callable is described by: its source and its parameters, never a value or an address."""

import functools
import hashlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from assay.agents import identity as description
from assay.agents.identity import describe_callable, describe_globals
from assay.scorers import checks_from, exact_answer
from assay.types import Endpoint, Message, Sample
from assay.types.endpoint import describe_endpoint
from runner_runs import right

partial: Any = functools.partial
"""Also of arguments that no function here takes."""


def at_least(sample: Sample, bar: object = 0, *, words: object = ()) -> bool:
    return bool(sample.response)


def closing_over(bar: object) -> Callable[[Sample], bool]:
    def score(sample: Sample) -> bool:
        return bool(bar)

    return score


class Judge:
    """Called itself, or through its method."""

    def __init__(self, bar: object) -> None:
        self._bar = bar

    def __call__(self, sample: Sample) -> bool:
        return bool(self._bar)

    def score(self, sample: Sample) -> bool:
        return bool(self._bar)


class Slotted:
    __slots__ = ("bar", "unset")

    def __init__(self, bar: object) -> None:
        self.bar = bar

    def __call__(self, sample: Sample) -> bool:
        return bool(self.bar)


@dataclass
class Grading:
    bar: object
    seen: list[str] = field(default_factory=list)

    def __call__(self, sample: Sample) -> bool:
        return bool(self.bar)


def scaled(bar: object) -> Callable[[Sample], bool]:
    """A decorator with a parameter, used as a function."""

    @functools.wraps(right)
    def score(sample: Sample) -> bool:
        return bool(bar) and right(sample)

    return score


def defaulting(bar: object) -> Callable[[Sample], bool]:
    def score(sample: Sample, bar: object = bar) -> bool:
        return bool(bar)

    return score


MAKERS: list[Callable[[Any], Any]] = [
    lambda bar: partial(at_least, bar=bar),
    lambda bar: partial(at_least, words=[bar]),
    lambda bar: partial(partial(closing_over(bar)), words=3),
    closing_over,
    lambda bar: closing_over(closing_over(bar)),
    lambda bar: closing_over([closing_over(bar), right]),
    Judge,
    lambda bar: Judge(bar).score,
    lambda bar: Judge(Judge(bar)),
    Slotted,
    Grading,
    scaled,
    defaulting,
    lambda bar: {bar: 1.0}.get,
]


def of_source(function: Any) -> str:
    digest = hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:12]
    return f"{function.__module__}.{function.__qualname__} {digest}"


@pytest.mark.parametrize("function", [right, at_least, Judge, closing_over])
def test_a_function_without_parameters_goes_by_its_name_and_source(function: Any) -> None:
    assert describe_callable(function) == of_source(function)


def test_a_function_that_was_only_wrapped_goes_by_what_it_wraps() -> None:
    @functools.wraps(at_least)
    def passed_on(sample: Sample) -> bool:
        return at_least(sample)

    assert describe_callable(passed_on) == of_source(at_least)
    assert describe_callable(functools.cache(at_least)) == of_source(at_least)


@pytest.mark.parametrize("make", MAKERS)
def test_other_parameters_are_another_callable(make: Callable[[Any], Any]) -> None:
    one, same, other = (describe_callable(make(bar)) for bar in (101, 101, 202))

    assert one == same
    assert one != other


def test_the_parameter_that_differs_is_named() -> None:
    described = describe_callable(partial(at_least, 3, words=["a"]))

    assert isinstance(described, dict)
    assert described["function"] == of_source(at_least)
    assert list(described["with"]) == ["0", "words"]
    assert all(re.fullmatch("[0-9a-f]{8}", digest) for digest in described["with"].values())


def test_a_method_goes_by_its_instance_too() -> None:
    described = describe_callable(Judge(3).score)

    assert isinstance(described, dict)
    assert described["function"] == of_source(Judge.score)
    assert described["with"]["self"] == of_source(Judge)
    assert list(described["with"]) == ["self", "self._bar"]


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclass
class Shade:
    colour: Colour
    parts: tuple[int, ...] = ()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (None, False),
        (0, False),
        (1, 1.0),
        ([10**5000], [10**5001]),
        (Path("\udcff"), Path("\udcfe")),
        (float("nan"), float("inf")),
        ("a", b"a"),
        (["a", "b"], ["b", "a"]),
        ({"a": 1}, {"a": 2}),
        ({"a"}, {"b"}),
        (Colour.RED, Colour.BLUE),
        (Shade(Colour.RED), Shade(Colour.BLUE)),
        ([Shade(Colour.RED, (1,))], [Shade(Colour.RED, (2,))]),
        (Message(role="user", content="a"), Message(role="user", content="b")),
        (Endpoint(provider="mock", model="a"), Endpoint(provider="mock", model="b")),
        (re.compile("a"), re.compile("a", re.IGNORECASE)),
        (Path("a"), Path("b")),
    ],
)
def test_plain_values_are_told_apart(one: object, other: object) -> None:
    assert describe_callable(closing_over(one)) != describe_callable(closing_over(other))


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"x", "y", "z"}, {"z", "y", "x"}),
        (object(), object()),
        ([object()], [object()]),
        (
            Endpoint(provider="openai", model="m", api_key="old"),
            Endpoint(provider="openai", model="m", api_key="new", timeout_s=5),
        ),
    ],
)
def test_what_makes_no_difference_is_not_told_apart(one: object, same: object) -> None:
    assert describe_callable(closing_over(one)) == describe_callable(closing_over(same))


def test_anything_else_is_named_by_its_type() -> None:
    described = describe_callable(closing_over(iter([1])))

    assert isinstance(described, dict)
    assert described["with"] == {"bar": "builtins.list_iterator"}


def words_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from words_of(each)
    else:
        yield str(value)


@pytest.mark.parametrize("make", MAKERS)
def test_no_value_and_no_address_is_written(make: Callable[[Any], Any]) -> None:
    words = " ".join(words_of(describe_callable(make("canary"))))

    assert "canary" not in words
    assert "0x" not in words


@pytest.mark.parametrize(
    "of_key",
    [
        lambda key: partial(at_least, api_key=key),
        lambda key: partial(at_least, OPENAI_API_KEY=key),
        lambda key: partial(at_least, password=key),
        lambda key: partial(at_least, token=key),
        lambda key: partial(at_least, bar={"auth_token": key}),
        lambda key: partial(at_least, bar=f"sk-{key * 20}"),
        lambda key: partial(at_least, bar=f"postgresql://me:{key}@host/db"),
    ],
)
def test_a_secret_is_not_even_in_a_digest(of_key: Callable[[str], Any]) -> None:
    assert describe_callable(of_key("one")) == describe_callable(of_key("two"))


def test_what_is_named_like_a_key_of_a_mapping_is_no_secret() -> None:
    one, other = (partial(at_least, key=key) for key in ("answer", "title"))

    assert describe_callable(one) != describe_callable(other)


def test_a_scorer_that_remembers_is_the_same_afterwards() -> None:
    seen: list[str] = []

    def collecting(sample: Sample) -> bool:
        seen.append(sample.id)
        return True

    grading = Grading(1)
    before = describe_callable(collecting), describe_callable(grading)

    seen.append("s1")
    grading.seen.append("s1")

    assert (describe_callable(collecting), describe_callable(grading)) == before


def test_what_is_remembered_of_a_callable_goes_with_it() -> None:
    known = len(description._descriptions)

    describe_callable(closing_over(1))

    assert len(description._descriptions) == known


def test_what_names_itself_is_known_by_that_name() -> None:
    checks = checks_from({"checks": [{"max_turns": 6}]})

    def measure(sample: Sample) -> object:
        return checks(sample)

    measure.__qualname__ = "measured by checks"

    assert describe_callable(checks) == f"{checks.__module__}.{checks.__qualname__}"
    assert str(describe_callable(measure)).startswith(f"{__name__}.measured by checks ")


def test_a_scorer_of_ours_goes_by_what_it_was_made_with() -> None:
    def last_word(text: str) -> str:
        return text.split()[-1]

    def first_word(text: str) -> str:
        return text.split()[0]

    described = [
        describe_callable(exact_answer(extract=extract)) for extract in (last_word, first_word)
    ]

    assert described[0] != described[1]


def test_values_without_end_are_described_within_bounds() -> None:
    endless: list[Any] = [1]
    endless += [endless, endless, endless]
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]

    for value in (endless, deep, [0] * 1_000_000, {"rows": list(range(60_000))}):
        assert isinstance(describe_callable(closing_over(value)), dict)


def test_a_callable_that_holds_itself_is_described() -> None:
    judge = Judge(None)
    judge._bar = judge

    assert "not looked into" in " ".join(words_of(describe_callable(judge)))


def test_a_slot_or_a_name_without_a_value_is_left_out() -> None:
    def make() -> Callable[[Sample], object]:
        def score(sample: Sample) -> object:
            return later

        describe_callable(score)
        later = 1
        return score

    described = describe_callable(Slotted(1))

    assert isinstance(described, dict)
    assert list(described["with"]) == ["bar"]
    assert make()(Sample()) == 1


PROGRAM = """
import functools, json
from assay.agents import identity as description
from assay.agents.identity import describe_callable
class Box:
    def __init__(self, held): self.held, self.other = held, object()
    def __call__(self, sample): return 1.0
held = {"b", "a", "c", "d", 3, None}
print(json.dumps([
    describe_callable(functools.partial(print, held, end={"x": held})),
    describe_callable(Box([held, lambda sample: 1.0])),
    describe_callable(Box(held).__call__),
]))
description.MOST_VALUES = 100
many = {(name, *range(ord(name) % 7)) for name in "abcdefghijklmnopqrstuvwxyz"}
print(json.dumps(describe_callable(Box([many, [1, 2, 3]]))))
"""


def test_the_description_is_the_same_in_another_process() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert len(said) == 1


_AGENT_MODULE = "agent_of_these_tests"
AGENT = """
import datetime, json, pathlib
PROMPT, TONES, API_KEY, unused = "Say", ["kind"], "weak", 1
client, calls = object(), 0
HERE, FILES, STARTED = pathlib.Path(__file__), {"a": __file__}, datetime.datetime.now()

class Tool:
    pass

def ask(text):
    global calls
    calls += 1
    return PROMPT + json.dumps(text) + API_KEY

def answer(sample):
    asked = [ask(tone) for tone in TONES]
    return asked, Tool(), client, sample.unused, HERE, FILES, STARTED, __file__

class Caller:
    def __call__(self, sample):
        return ask(sample)

    def method(self, sample):
        return TONES
"""


def load_agent(folder: Path, text: str) -> Any:
    file = folder / f"agent_{len(list(folder.iterdir()))}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(_AGENT_MODULE, file)
    assert spec is not None
    assert spec.loader is not None
    # The source of a class is found by its module.
    module = sys.modules[_AGENT_MODULE] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        (('"Say"', '"Tell"'), {"PROMPT"}),
        (('["kind"]', '["kind", "rude"]'), {"TONES"}),
        (("json.dumps(text) +", "text +"), {"ask"}),
        (("    pass", "    name = 1"), {"Tool"}),
        (('"weak"', '"other"'), set()),
        ((", 1\n", ", 2\n"), set()),
        ((", 0\n", ", 5\n"), set()),
        (("class Caller:", "def score():\n    return 1\n\nclass Caller:"), set()),
    ],
)
def test_the_constants_and_helpers_that_a_function_uses_are_described(
    tmp_path: Path, changed: tuple[str, str], names: set[str]
) -> None:
    old = describe_globals(load_agent(tmp_path, AGENT).answer)
    new = describe_globals(load_agent(tmp_path, AGENT.replace(*changed)).answer)

    assert list(old) == ["API_KEY", "PROMPT", "TONES", "Tool", "ask"]
    assert {name for name in old if old[name] != new[name]} == names
    assert "weak" not in str(old)


def test_objects_methods_and_partials_are_described_by_their_functions(tmp_path: Path) -> None:
    module = load_agent(tmp_path, AGENT)

    assert list(describe_globals(module.Caller())) == ["API_KEY", "PROMPT", "ask"]
    assert list(describe_globals(module.Caller().method)) == ["TONES"]
    assert describe_globals(partial(module.answer)) == describe_globals(module.answer)
    assert describe_globals(len) == {}


def test_functions_that_call_each_other_are_described_once(tmp_path: Path) -> None:
    text = "def one():\n    return two()\n\ndef two():\n    return one() or N\n\nN = 1\n"
    module = load_agent(tmp_path, text)

    assert list(describe_globals(module.one)) == ["N", "one", "two"]
    module.two.__module__ = "elsewhere"
    assert list(describe_globals(module.one)) == []


@pytest.mark.parametrize(
    "other",
    [
        {"extra_params": {"mirostat": 2}},
        {"headers": {"X-Route-Model": "b"}},
        {"api_base": "http://127.0.0.1:1/v1?deployment=b"},
    ],
)
def test_what_an_endpoint_does_not_write_is_told_apart(other: dict[str, Any]) -> None:
    given: dict[str, Any] = {
        "provider": "vllm",
        "model": "m",
        "api_base": "http://127.0.0.1:1/v1?deployment=a",
        "headers": {"X-Route-Model": "a", "Authorization": "Bearer one"},
        "extra_params": {"mirostat": 1},
    }
    headers = {**given["headers"], **other.get("headers", {})}
    one = describe_endpoint(Endpoint(**given))
    two = describe_endpoint(Endpoint(**{**given, **other, "headers": headers}))
    rotated = {**given, "headers": {**given["headers"], "Authorization": "Bearer two"}}

    assert one != two
    assert describe_endpoint(Endpoint(**rotated)) == one
