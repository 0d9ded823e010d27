"""Endpoints: no way of writing one lets a secret out, and what was written loads."""

import pickle
from typing import Any

import pytest
from pydantic import ValidationError

from assay.models import AgentSession, Endpoint

CANARY = "canary-5f2e"


def keyed(**fields: Any) -> Endpoint:
    return Endpoint(
        provider="openai",
        model="m",
        api_key=f"{CANARY}-key",
        oauth_token=f"{CANARY}-token",
        api_base=f"https://user:{CANARY}@host:8000/v1?key={CANARY}#{CANARY}",
        headers={"Authorization": f"Bearer {CANARY}", "X-Custom": CANARY, "User-Agent": "me/1"},
        extra_params={
            "top_k": 40,
            "api_password": CANARY,
            "extra_body": {"key": CANARY},
            "response_format": {"type": "json_schema", "auth_token": CANARY},
        },
        thinking={"type": "enabled", "budget_tokens": 2048, "api_key": CANARY},
        **fields,
    )


def written_forms(endpoint: Endpoint) -> list[str]:
    session = AgentSession(id="s", endpoint=endpoint)
    return [
        str(endpoint.to_dict()),
        endpoint.model_dump_json(),
        str(endpoint.model_dump()),
        str(endpoint.model_dump(mode="json")),
        repr(endpoint),
        str(endpoint),
        session.to_json(),
        str(session.to_dict()),
        session.model_dump_json(),
        repr(session),
    ]


@pytest.mark.parametrize("form", range(10))
def test_no_written_form_holds_a_secret(form: int) -> None:
    assert CANARY not in written_forms(keyed(unknown_field=CANARY))[form]


def test_harmless_settings_are_written_and_what_was_withheld_is_named() -> None:
    assert keyed(temperature=0.5, unknown_field=CANARY).to_dict() == {
        "provider": "openai",
        "model": "m",
        "api_base": "https://host:8000/v1",
        "headers": {"User-Agent": "me/1"},
        "extra_params": {"top_k": 40, "response_format": {"type": "json_schema"}},
        "temperature": 0.5,
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "withheld": [
            "api_base",
            "api_key",
            "auth_token",
            "extra_params.api_password",
            "extra_params.extra_body",
            "headers.Authorization",
            "headers.X-Custom",
            "oauth_token",
            "unknown_field",
        ],
    }


def test_secrets_are_given_again_when_it_is_read() -> None:
    stored = keyed().to_dict()

    read = Endpoint.from_dict(
        stored, api_key="k", oauth_token="t", headers={"Authorization": "Bearer k"}
    )

    assert (read.api_key, read.oauth_token) == ("k", "t")
    assert read.headers == {"User-Agent": "me/1", "Authorization": "Bearer k"}
    assert read.thinking == {"type": "enabled", "budget_tokens": 2048}


def test_a_dict_saved_with_secrets_loads_and_its_secrets_are_ignored() -> None:
    saved = keyed().to_dict(exclude_secrets=False)

    read = Endpoint.from_dict(saved, api_key="k")

    assert CANARY in str(saved)
    assert read.api_key == "k"
    assert CANARY not in str(read.to_dict(exclude_secrets=False))


def test_an_endpoint_without_secrets_comes_back_equal() -> None:
    plain = Endpoint(provider="mock", model="m", stop=("a", "b"), temperature=0.0, beta=1)

    assert Endpoint.from_dict(plain.to_dict()) == plain
    assert Endpoint.from_dict(plain.to_dict(exclude_secrets=False)) == plain


def test_zero_is_a_setting_and_is_written() -> None:
    assert Endpoint(provider="p", model="m", temperature=0.0, max_retries=0, seed=0).to_dict() == {
        "provider": "p",
        "model": "m",
        "temperature": 0.0,
        "seed": 0,
        "max_retries": 0,
    }


def test_a_validation_error_does_not_show_what_was_given() -> None:
    with pytest.raises(ValidationError) as caught:
        Endpoint(provider="p", model="m", api_key=[CANARY])

    assert CANARY not in str(caught.value)


def test_secrets_reach_a_worker_process() -> None:
    assert pickle.loads(pickle.dumps(keyed())).api_key == f"{CANARY}-key"


def test_a_session_ignores_stored_secrets_and_takes_them_at_run_time() -> None:
    saved = {"id": "s", "endpoint": keyed().to_dict(exclude_secrets=False), "messages": []}

    session = AgentSession.from_dict(saved)

    assert session.endpoint.api_key == ""
    assert session.with_secrets(api_key="k").endpoint.api_key == "k"


def test_a_session_comes_back_equal() -> None:
    session = AgentSession.from_dict(
        {
            "session_id": "s",
            "endpoint": {"provider": "mock", "model": "m"},
            "messages": [{"role": "user", "content": "hi", "timestamp": "2026-01-01T00:00:00Z"}],
            "parent_id": "p",
            "branch_point": 1,
            "status": "running",
            "tags": {"team": "a"},
            "later_field": 1,
        }
    )

    assert AgentSession.from_json(session.to_json()) == session
    assert session.session_id == session.id == "s"
