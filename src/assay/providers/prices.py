"""The cost of a call, by a dated price table that a user's file overrides."""

from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from assay.errors import ConfigError
from assay.types import Endpoint, Usage

from .provider_table import find_provider

_TOKENS_PER_UNIT = 1_000_000
# Other service tiers have other prices, which the table lacks.
_PLAIN_TIERS = (None, "auto", "default", "standard", "standard_only")
_OTHER_TIERS = ("batch", "flex", "priority", "scale")

Dollars = Annotated[FiniteFloat, Field(ge=0)]


class Price(BaseModel):
    """US dollars for a million tokens of one model."""

    # `defer_build`: models without a price, such as mocks, never need it.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    input: Dollars
    output: Dollars
    cached_input: Dollars | None = None
    """For cached input. None: unknown, and so is the cost of such a call."""

    cache_write: Dollars | None = None
    """For input that is written to the provider's cache."""

    input_limit: int | None = Field(default=None, gt=0)
    """The price is unknown for calls with more input tokens, which cost more."""

    def cost_usd(self, usage: Usage, *, cache_writes: int = 0) -> float | None:
        """Return the cost of a call, or None if it is unknown.

        `usage.input_tokens` counts all input, cached or not.
        """
        given, made = usage.input_tokens, usage.output_tokens
        if given is None or made is None:
            return None
        if self.input_limit is not None and given > self.input_limit:
            return None
        cached = usage.cached_tokens or 0
        plain = given - cached - cache_writes
        if plain < 0:
            return None
        total = plain * self.input + made * self.output
        for tokens, price in ((cached, self.cached_input), (cache_writes, self.cache_write)):
            if tokens and price is None:
                return None
            total += tokens * (price or 0.0)
        return total / _TOKENS_PER_UNIT


def add_cost(usage: Usage, price: Price | None, *, cache_writes: int = 0) -> Usage:
    """Return the usage with its cost, which is None if it is unknown."""
    if price is None:
        return usage
    return usage.model_copy(update={"cost_usd": price.cost_usd(usage, cache_writes=cache_writes)})


def choose_price(price: Price | None, endpoint: Endpoint, tier: object) -> Price | None:
    """Return the price of an answer: None if an agent's request got another service tier."""
    is_other = tier in _OTHER_TIERS and tier != endpoint.extra_params.get("service_tier")
    return None if is_other else price


FREE_PRICE = Price.model_construct(input=0.0, output=0.0, cached_input=0.0)
"""For models in this process. A user's table may override it."""


class PriceTable(BaseModel):
    """Prices by `provider:model`, as stored in a file."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    dated: str | None = None
    """The day the prices were looked up."""

    models: dict[str, Price]


@cache
def load_shipped_prices() -> PriceTable:
    """Load the price table of the package."""
    text = Path(__file__).with_name("prices.json").read_text("utf-8")
    return PriceTable.model_validate_json(text)


def read_prices(path: Path) -> PriceTable:
    """Read a user's price table. Raises `ConfigError` if it is invalid."""
    hint = 'write it like {"models": {"vllm:my-model": {"input": 0.1, "output": 0.4}}}'
    try:
        return PriceTable.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"the price table cannot be read: {error.strerror}", where=str(path), hint=hint
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise ConfigError(
            f"the file is not a price table: {field + ': ' if field else ''}{first['msg']}",
            where=str(path),
            hint=hint,
        ) from error


def find_price(endpoint: Endpoint, own: Path | None = None) -> Price | None:
    """Return the price of an endpoint's model, or None if unknown.

    The shipped table applies to the providers' own addresses: a model of the same name elsewhere
    has no price unless the user's table contains it.
    """
    name = f"{endpoint.provider}:{endpoint.model}"
    if own is not None and (price := read_prices(Path(own)).models.get(name)) is not None:
        return price
    protocol = find_provider(endpoint.provider).protocol
    if protocol in ("local", "mock"):
        return FREE_PRICE if protocol == "local" else None
    usual = find_provider(endpoint.provider).api_base
    elsewhere = endpoint.api_base is not None and endpoint.api_base.rstrip("/") != usual
    if elsewhere or endpoint.extra_params.get("service_tier") not in _PLAIN_TIERS:
        return None
    # The models of OpenAI have the same price in both of its APIs.
    return load_shipped_prices().models.get(name.replace("openai-responses:", "openai:", 1))
