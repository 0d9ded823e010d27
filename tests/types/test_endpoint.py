"""Endpoints: no way of writing one lets a secret out, and what was written loads."""

import pickle
from typing import Any

import pytest
from pydantic import ValidationError

from assay.errors import ConfigError
from assay.types import AgentSession, Endpoint
from assay.types.endpoint import compute_hidden_digest

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


@pytest.mark.parametrize(
    "api_base",
    [
        f"http://user:pa/{CANARY}@host/v1",
        f"http://user:123/{CANARY}@host/v1",
        f"http://user:p@{CANARY}#x@host/v1",
        f"http://user:p@{CANARY}?x@host/v1",
        f"user:{CANARY}@host/v1",
        f"https:/user:{CANARY}@host/v1",
        f"http:\\\\user:{CANARY}@host/v1",
        f"ftp://user:{CANARY}@host/v1",
        f"http://user:{CANARY}@ho\u2100st/v1",
        f"http://user:{CANARY}@[::1/v1",
        f"http://user:{CANARY}@[::zz]/v1",
        f"http://user:{CANARY}@host:port/v1",
        f"http://user:{CANARY}@host:0/v1",
        f"http://user:{CANARY}@/v1",
    ],
)
def test_an_address_whose_parts_are_not_certain_is_not_written(api_base: str) -> None:
    endpoint = Endpoint(provider="vllm", model="m", api_base=api_base)

    assert endpoint.to_dict() == {"provider": "vllm", "model": "m", "withheld": ["api_base"]}
    assert [form for form in written_forms(endpoint) if CANARY in form] == []


def test_that_the_address_was_withheld_is_known_after_reading() -> None:
    endpoint = Endpoint(provider="openai", model="m", api_base="http://host/m@2/v1")
    stored = AgentSession(id="s", endpoint=endpoint).to_json()

    session = AgentSession.from_json(stored).with_secrets(api_key="k")

    assert session.endpoint.to_dict()["withheld"] == ["api_base", "api_key"]
    assert session.endpoint.api_base is None


def test_parameters_may_have_numbers_for_names() -> None:
    endpoint = Endpoint(provider="vllm", model="m", extra_params={"logit_bias": {50: -100}})

    assert endpoint.to_dict()["extra_params"] == {"logit_bias": {50: -100}}


HIDDEN = Endpoint(
    provider="vllm",
    model="m",
    api_base="http://host/v1?deployment=a&key=k",
    headers={"X-Route": "a", "Authorization": "Bearer k"},
    extra_params={"unheard_of": {"size": 1, "api_key": "k"}, "gateway_token": "k"},
)


@pytest.mark.parametrize(
    "change",
    [
        {"api_base": "http://host/v1?deployment=b&key=k"},
        {"api_base": "http://host/v1?key=k"},
        {"api_base": "http://host/m@2/v1?deployment=a&key=k"},
        {"headers": {"X-Route": "b"}},
        {"headers": {}},
        {"extra_params": {"unheard_of": {"size": 2}}},
        {"extra_params": {"unheard_of": {"size": 1}, "other": None}},
    ],
)
def test_what_is_not_written_but_may_choose_the_model_changes_a_digest(
    change: dict[str, Any],
) -> None:
    assert compute_hidden_digest(HIDDEN.model_copy(update=change)) != compute_hidden_digest(HIDDEN)


@pytest.mark.parametrize(
    "change",
    [
        {"api_key": "k"},
        {"api_base": "http://me:pass@host/v1?deployment=a&key=other&sig=other&code=other"},
        {"headers": {"x-route": "a", "Authorization": "Bearer l", "Cookie": "a=b"}},
        {"extra_params": {"unheard_of": {"size": 1, "api_key": "l"}, "gateway_token": "l"}},
        {"temperature": 0.5},
    ],
)
def test_another_key_changes_no_digest(change: dict[str, Any]) -> None:
    assert compute_hidden_digest(HIDDEN.model_copy(update=change)) == compute_hidden_digest(HIDDEN)


def test_there_is_no_digest_of_what_is_written_or_secret() -> None:
    plain = Endpoint(provider="p", model="m", extra_params={"top_k": 1}, headers={"x-title": "t"})

    assert compute_hidden_digest(plain) is None
    assert (
        compute_hidden_digest(plain.model_copy(update={"api_base": "http://a:b@h/v1?key=k"}))
        is None
    )


@pytest.mark.parametrize("value", [float("nan"), object(), {(1, 2): 3}])
def test_what_json_cannot_hold_has_no_digest(value: Any) -> None:
    with pytest.raises(ConfigError, match="extra_params cannot be written as JSON"):
        compute_hidden_digest(Endpoint(provider="p", model="m", extra_params={"x": value}))


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


def test_unknown_numbers_and_flags_come_back_and_a_secret_among_them_does_not() -> None:
    endpoint = Endpoint(
        provider="vllm",
        model="m",
        extra_params={"xtc_probability": 0.5, "use_xtc": True, "api_key_id": 77, "pin": 1234},
    )

    written = endpoint.to_dict()

    assert written["extra_params"] == {"xtc_probability": 0.5, "use_xtc": True}
    assert written["withheld"] == ["extra_params.api_key_id", "extra_params.pin"]


@pytest.mark.parametrize("kept_by", ["argument", "endpoint"])
def test_parameters_that_the_user_allows_come_back(kept_by: str) -> None:
    fields: dict[str, Any] = {
        "provider": "openai",
        "model": "m",
        "extra_params": {"route": {"order": ["a", "b"]}, "user": "team"},
    }
    by_argument = kept_by == "argument"
    endpoint = Endpoint(**fields, keep=() if by_argument else ("route",))

    written = endpoint.to_dict(keep=["route"]) if by_argument else endpoint.to_dict()
    read = Endpoint.from_dict(written)

    assert written["withheld"] == ["extra_params.user"]
    assert read.extra_params == {"route": {"order": ["a", "b"]}}
    assert read.to_dict() == written
    assert Endpoint.from_dict(written, extra_params={"user": "team"}) == endpoint


def test_every_parameter_of_a_model_in_this_process_comes_back() -> None:
    parameters = {
        "chat_template_kwargs": {"enable_thinking": False},
        "device": "cpu",
        "dtype": "bfloat16",
        "stop_token_ids": [1, 2],
        "threads": 1,
        "tool_format": "hermes",
        "top_k": 5,
    }
    endpoint = Endpoint(provider="local", model="m", extra_params=parameters)

    assert endpoint.to_dict()["extra_params"] == parameters
    assert Endpoint.from_dict(endpoint.to_dict()) == endpoint


def test_properties_of_a_json_schema_come_back_whatever_their_names() -> None:
    schema = {
        "type": "object",
        "properties": {"key": {"type": "string"}, "session": {"$ref": "#/$defs/session"}},
        "$defs": {"session": {"type": "object", "properties": {"token": {"type": "integer"}}}},
        "required": ["key"],
    }
    endpoint = Endpoint(provider="p", model="m", extra_params={"guided_json": schema})
    leaking = {"properties": {"api_key": "sk-1", "auth": {"token": "sk-2", "type": "string"}}}

    assert Endpoint.from_dict(endpoint.to_dict()) == endpoint
    written = endpoint.model_copy(update={"extra_params": {"guided_json": leaking}}).to_dict()
    assert written["extra_params"]["guided_json"] == {"properties": {"auth": {"type": "string"}}}
    assert written["withheld"] == ["api_key", "token"]


def test_a_parameter_to_keep_may_be_named_alone() -> None:
    endpoint = Endpoint(provider="p", model="m", extra_params={"route": "a"})

    assert Endpoint.from_dict(endpoint.to_dict(keep="route")) == endpoint


def test_what_is_kept_is_kept_in_a_session() -> None:
    endpoint = Endpoint(provider="p", model="m", extra_params={"route": "a"}, keep=("route",))

    session = AgentSession.from_json(AgentSession(id="s", endpoint=endpoint).to_json())

    assert session.endpoint == endpoint


def test_stored_data_cannot_allow_a_header() -> None:
    data = {"provider": "p", "model": "m", "headers": {"X-Evil": "x"}, "keep": ["X-Evil"]}

    assert Endpoint.from_dict(data).headers == {}


def test_an_endpoint_comes_back_equal_but_for_its_secrets() -> None:
    endpoint = Endpoint(provider="p", model="m", api_key="k", temperature=0.5, stop=("a",))

    stored = endpoint.to_dict()

    assert Endpoint.from_dict(stored, api_key="k") == endpoint
    assert Endpoint.from_dict(stored) == endpoint.model_copy(update={"api_key": ""})
    assert Endpoint.from_dict(stored) != endpoint
    assert Endpoint.from_dict(stored).to_dict()["withheld"] == ["api_key"]
    assert endpoint != "p:m"


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
