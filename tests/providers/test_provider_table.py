"""The table of providers."""

import pytest

from assay.errors import ConfigError
from assay.providers.provider_table import PROVIDERS, find_provider


def test_keys_are_only_looked_up_for_providers_with_a_safe_address_of_their_own() -> None:
    keyed = [provider for provider in PROVIDERS.values() if provider.key_variable]

    assert keyed
    assert all((provider.api_base or "").startswith("https://") for provider in keyed)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="'gpt' is not a provider"):
        find_provider("gpt")


def test_what_answers_in_this_process_has_no_address() -> None:
    inside = [name for name, provider in PROVIDERS.items() if provider.in_process]

    assert inside == ["local", "mock"]
    assert all(PROVIDERS[name].api_base is None for name in inside)
