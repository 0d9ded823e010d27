"""What a call costs, and when that is not known."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError
from assay.providers import connect
from assay.providers.prices import Price, choose_price, find_price, load_shipped_prices, read_prices
from assay.types import Endpoint, Usage

PRICE = Price(input=2.0, output=10.0, cached_input=0.5)


def endpoint(model: str = "gpt-4o", **fields: Any) -> Endpoint:
    return Endpoint(provider="openai", model=model, **fields)


def table(folder: Path, content: Any) -> Path:
    path = folder / "prices.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_cost_is_input_and_output_and_what_was_cached() -> None:
    usage = Usage(input_tokens=1000, output_tokens=100, cached_tokens=400)

    assert PRICE.cost_usd(usage) == pytest.approx((600 * 2 + 400 * 0.5 + 100 * 10) / 1e6)
    assert PRICE.cost_usd(Usage(input_tokens=0, output_tokens=0)) == 0.0


@pytest.mark.parametrize(
    ("price", "usage"),
    [
        (PRICE, Usage(output_tokens=1)),
        (PRICE, Usage(input_tokens=1)),
        (PRICE, Usage(input_tokens=1, output_tokens=1, cached_tokens=5)),
        (Price(input=1, output=1), Usage(input_tokens=9, output_tokens=1, cached_tokens=5)),
        (Price(input=1, output=1, input_limit=8), Usage(input_tokens=9, output_tokens=1)),
    ],
)
def test_what_does_not_follow_is_unknown_not_zero(price: Price, usage: Usage) -> None:
    assert price.cost_usd(usage) is None


def test_writing_into_the_cache_needs_its_own_price() -> None:
    usage = Usage(input_tokens=10, output_tokens=0)

    assert PRICE.cost_usd(usage, cache_writes=5) is None
    assert Price(input=1, output=1, cache_write=3).cost_usd(usage, cache_writes=5) == 20 / 1e6


TEXT = {"role": "assistant", "content": "x"}
CHAT = {"choices": [{"message": TEXT}], "usage": {"prompt_tokens": 4, "completion_tokens": 1}}
RESPONSE: dict[str, Any] = {
    "output": [{"type": "message", "role": "assistant", "content": []}],
    "usage": {"input_tokens": 4, "output_tokens": 1},
}
MESSAGE: dict[str, Any] = {"content": [], "usage": {"input_tokens": 4, "output_tokens": 1}}
CANDIDATE = {"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}
GEMINI = {"usageMetadata": {"promptTokenCount": 4}, "candidates": [CANDIDATE]}


def read_cost(provider: str, model: str, answer: dict[str, Any], **params: Any) -> float | None:
    given = Endpoint(provider=provider, model=model, api_key="key-0123456789", extra_params=params)
    usage = connect(given).read_answer(answer, latency_s=0.1, message_index=1).call.usage
    assert usage is not None
    return usage.cost_usd


@pytest.mark.parametrize(
    ("model", "plain", "more"),
    [
        ("openai:gpt-5", CHAT, {"service_tier": "priority"}),
        ("openai-responses:gpt-5", RESPONSE, {"service_tier": "flex"}),
        (
            "openai-responses:gpt-5",
            RESPONSE,
            {"output": [{"type": "web_search_call", "id": "ws"}, *RESPONSE["output"]]},
        ),
        (
            "anthropic:claude-haiku-4-5",
            MESSAGE,
            {"usage": {**MESSAGE["usage"], "server_tool_use": {"web_search_requests": 1}}},
        ),
        (
            "anthropic:claude-haiku-4-5",
            MESSAGE,
            {"usage": {**MESSAGE["usage"], "service_tier": "priority"}},
        ),
        (
            "gemini:gemini-2.5-flash",
            GEMINI,
            {"candidates": [{**CANDIDATE, "groundingMetadata": {"webSearchQueries": ["x"]}}]},
        ),
    ],
)
def test_another_tier_and_searches_have_an_unknown_cost(
    model: str, plain: Any, more: dict[str, Any]
) -> None:
    provider, _, name = model.partition(":")

    assert read_cost(provider, name, plain)
    assert read_cost(provider, name, {**plain, **more}) is None


def test_the_users_price_holds_for_the_tier_of_the_endpoint(tmp_path: Path) -> None:
    own = table(tmp_path, {"models": {"openai:gpt-5": {"input": 1, "output": 2}}})
    price, flex = read_prices(own).models["openai:gpt-5"], {"service_tier": "flex"}

    assert choose_price(price, endpoint("gpt-5", extra_params=flex), "flex") is price
    assert choose_price(price, endpoint("gpt-5"), "flex") is None
    # Names of other servers for their usual tier.
    assert choose_price(price, endpoint("gpt-5"), "on_demand") is price


def test_the_shipped_table_is_dated_and_names_providers() -> None:
    shipped = load_shipped_prices()

    assert shipped.dated is not None
    assert {name.partition(":")[0] for name in shipped.models} == {"openai", "anthropic", "gemini"}
    assert all(price.output >= price.input for price in shipped.models.values())


def test_a_known_model_has_a_price_and_an_unknown_one_has_none() -> None:
    assert find_price(endpoint()) is not None
    assert find_price(endpoint(api_base="https://api.openai.com/v1/")) is not None
    assert find_price(endpoint("gpt-4o-of-mine")) is None
    responses = Endpoint(provider="openai-responses", model="gpt-4o")
    assert find_price(responses) == find_price(endpoint())


def test_the_same_name_elsewhere_or_in_another_tier_has_no_price() -> None:
    assert find_price(endpoint(api_base="http://127.0.0.1:8000/v1")) is None
    assert find_price(endpoint(extra_params={"service_tier": "flex"})) is None
    assert find_price(endpoint(extra_params={"service_tier": "default"})) is not None
    assert find_price(Endpoint(provider="vllm", model="gpt-4o")) is None


def test_the_users_table_comes_first_and_reaches_any_address(tmp_path: Path) -> None:
    own = table(tmp_path, {"models": {"openai:gpt-4o": {"input": 1, "output": 2}}})

    assert find_price(endpoint(), own) == Price(input=1, output=2)
    assert find_price(endpoint(api_base="http://h/v1"), own) == Price(input=1, output=2)
    assert find_price(endpoint("gpt-4o-mini"), own) == find_price(endpoint("gpt-4o-mini"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not json", "not a price table: Invalid JSON"),
        ("[]", "not a price table: "),
        ({}, "models: Field required"),
        ({"models": {"a:b": {"input": 1}}}, "models.a:b.output: Field required"),
        ({"models": {"a:b": {"input": -1, "output": 1}}}, "models.a:b.input: Input should be"),
        ({"models": {"a:b": {"input": 1, "output": 1, "inpt": 1}}}, "Extra inputs are not"),
        ('{"models": {"a:b": {"input": NaN, "output": 1}}}', "not a price table"),
    ],
)
def test_a_bad_table_is_refused_by_name(content: Any, message: str, tmp_path: Path) -> None:
    path = table(tmp_path, content)

    with pytest.raises(ConfigError, match=message) as caught:
        read_prices(path)

    assert caught.value.where == str(path)


def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        find_price(endpoint(), tmp_path / "none.json")


def test_a_model_in_this_process_costs_nothing_unless_the_user_says_so(tmp_path: Path) -> None:
    local = Endpoint(provider="local", model="smollm2-135m")
    usage = Usage(input_tokens=1_000_000, output_tokens=0, cached_tokens=500_000)
    own = tmp_path / "prices.json"
    own.write_text('{"models": {"local:smollm2-135m": {"input": 0.5, "output": 1}}}')

    shipped, priced = find_price(local), find_price(local, own)

    assert shipped is not None
    assert shipped.cost_usd(usage) == 0.0
    assert priced is not None
    assert priced.input == 0.5
