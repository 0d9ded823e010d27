"""The table of providers."""

import pytest

from assay.errors import ConfigError
from assay.providers.provider_table import PROVIDERS, find_provider


def test_keys_are_only_looked_up_for_providers_with_a_safe_address_of_their_own() -> None:
    keyed = {name: each for name, each in PROVIDERS.items() if each.key_variable}
    # The address of an account is the user's; the SDK of AWS derives its own.
    by_account = {"azure", "bedrock"}

    assert by_account < keyed.keys()
    assert all(
        (each.api_base or "").startswith("https://") != (name in by_account)
        for name, each in keyed.items()
    )


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="'gpt' is not a provider"):
        find_provider("gpt")


def test_what_answers_in_this_process_has_no_address() -> None:
    inside = [name for name, provider in PROVIDERS.items() if provider.in_process]

    assert inside == ["local", "mock"]
    assert all(PROVIDERS[name].api_base is None for name in inside)
