"""What a call costs, by a dated table that the user's own file comes before."""

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from assay.errors import ConfigError
from assay.types import Endpoint, Usage

from .provider_table import find_provider

_TOKENS_PER_UNIT = 1_000_000
_PLAIN_TIERS = (None, "auto", "default", "standard", "standard_only")

Dollars = Annotated[FiniteFloat, Field(ge=0)]


class Price(BaseModel):
    """US dollars for a million tokens of one model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: Dollars
    output: Dollars
    cached_input: Dollars | None = None
    """For input the provider had cached. None: not known, and so is the cost of such a call."""

    cache_write: Dollars | None = None
    """For input that was put into the provider's cache."""

    input_limit: int | None = Field(default=None, gt=0)
    """The table says nothing about calls with more input tokens, which cost more."""

    def cost_usd(self, usage: Usage, *, cache_writes: int = 0) -> float | None:
        """What a call cost, or None when that does not follow from what is known.

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


FREE_PRICE = Price(input=0.0, output=0.0, cached_input=0.0)
"""For models in this process. A user's own table may put a price on the machine."""


class PriceTable(BaseModel):
    """Prices by `provider:model`, as a file holds them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dated: str | None = None
    """The day the prices were looked up."""

    models: dict[str, Price]


@cache
def load_shipped_prices() -> PriceTable:
    """The table that comes with the package."""
    text = files("assay.providers").joinpath("prices.json").read_text("utf-8")
    return PriceTable.model_validate_json(text)


def read_prices(path: Path) -> PriceTable:
    """A user's table. Raises `ConfigError` that says what is wrong with it."""
    hint = 'write it like {"models": {"vllm:my-model": {"input": 0.1, "output": 0.4}}}'
    try:
        return PriceTable.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"the price table cannot be read: {error.strerror}", where=str(path), hint=hint
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(
            f"the file is not a price table: {place + ': ' if place else ''}{first['msg']}",
            where=str(path),
            hint=hint,
        ) from error


def find_price(endpoint: Endpoint, own: Path | None = None) -> Price | None:
    """The price of an endpoint's model, or None where it is not known.

    The shipped table is about the providers' own addresses: a model of the same name elsewhere
    has no price unless the user's table gives it one.
    """
    name = f"{endpoint.provider}:{endpoint.model}"
    if own is not None and (price := read_prices(Path(own)).models.get(name)) is not None:
        return price
    if find_provider(endpoint.provider).protocol == "local":
        return FREE_PRICE
    usual = find_provider(endpoint.provider).api_base
    elsewhere = endpoint.api_base is not None and endpoint.api_base.rstrip("/") != usual
    if elsewhere or endpoint.extra_params.get("service_tier") not in _PLAIN_TIERS:
        return None
    return load_shipped_prices().models.get(name)
