"""Who may ask the viewer for what: every rule says no at least once."""

from collections.abc import Iterator

import pytest

from assay.errors import ConfigError
from assay.store import Store
from assay.web import ViewServer, ViewSettings
from assay.web.security import AccessRules, find_refusal
from page_requests import ask

TOKEN = "a-token-that-is-long-enough"
PAGE_TOKEN = "token-of-the-page"


@pytest.fixture(scope="module")
def guarded(page_store: Store) -> Iterator[ViewServer]:
    """A viewer that asks for a token."""
    with ViewServer(page_store, ViewSettings(token=TOKEN)) as server:
        yield server


@pytest.mark.parametrize("path", ["/", "/static/view.css", "/api/runs", "/nothing", "/run/unknown"])
def test_every_answer_has_the_security_headers(viewer: ViewServer, path: str) -> None:
    headers = ask(viewer, path).headers

    assert headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "server" not in headers


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "",
        "@",
    ],
)
def test_a_rebound_host_is_refused(viewer: ViewServer, host: str) -> None:
    answer = ask(viewer, "/api/runs", Host=host)

    assert answer.status == 403
    assert "support-bot" not in answer.body


@pytest.mark.parametrize("host", ["127.0.0.1:9", "localhost", "LOCALHOST:1234", "[::1]:80"])
def test_names_of_this_machine_are_allowed(viewer: ViewServer, host: str) -> None:
    assert ask(viewer, "/api/runs", Host=host).status == 200


def test_an_address_of_the_network_is_allowed_only_where_the_server_listens() -> None:
    everywhere = AccessRules("0.0.0.0", page_token="p", access_token=TOKEN)
    one = AccessRules("192.0.2.7", page_token="p", access_token=TOKEN)
    here = AccessRules("127.0.0.1", page_token="p")

    assert everywhere.allows_host("192.0.2.1:80")
    assert not everywhere.allows_host("evil.example")
    assert one.allows_host("192.0.2.7:4717")
    assert not one.allows_host("192.0.2.8")
    assert not here.allows_host("192.0.2.1")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(viewer: ViewServer, method: str) -> None:
    assert ask(viewer, "/", method=method).status == 405


def write(**headers: str | None) -> int | None:
    """The status with which a write is refused; None if it is allowed."""
    given: dict[str, str | None] = {
        "host": "127.0.0.1:4717",
        "origin": "http://127.0.0.1:4717",
        "sec-fetch-site": "same-origin",
        "x-assay-token": PAGE_TOKEN,
        "content-length": "10",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    scope = {"method": "POST", "raw_path": b"/", "query_string": b""}
    rules = AccessRules("127.0.0.1", page_token=PAGE_TOKEN)
    sent = {name: value for name, value in given.items() if value is not None}
    refusal = find_refusal(scope, sent, rules)
    return None if refusal is None else refusal.status


def test_a_write_of_our_own_page_is_allowed() -> None:
    assert write() is None
    assert write(sec_fetch_site=None) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "https://127.0.0.1:4717"},
        {"origin": "http://127.0.0.1:9"},
        {"origin": "null"},
        {"origin": None},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "none"},
        {"x_assay_token": "wrong"},
        {"x_assay_token": ""},
        {"x_assay_token": None},
        {"host": "evil.example", "origin": "http://evil.example"},
    ],
)
def test_a_write_of_another_site_is_refused(headers: dict[str, str | None]) -> None:
    assert write(**headers) == 403


@pytest.mark.parametrize("length", ["300000", "-1", "many", "", None])
def test_a_write_without_a_small_length_is_refused(length: str | None) -> None:
    assert write(content_length=length) == 413


def test_a_cross_site_post_is_refused_by_the_server(viewer: ViewServer) -> None:
    answer = ask(viewer, "/", method="POST", body="x", Origin="http://evil.example")

    assert answer.status == 403


def test_another_site_may_link_here_but_not_load_anything(viewer: ViewServer) -> None:
    def load(mode: str) -> int:
        return ask(viewer, "/api/runs", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode=mode).status

    assert load("navigate") == 200
    assert [load(mode) for mode in ("no-cors", "cors", "same-origin", "")] == [403] * 4


def test_an_address_that_is_too_long_is_refused(viewer: ViewServer) -> None:
    assert ask(viewer, f"/?x={'y' * 17_000}").status == 414


def test_a_token_is_needed_where_it_is_set(guarded: ViewServer) -> None:
    assert ask(guarded, "/").status == 401
    assert ask(guarded, "/static/view.css").status == 401
    assert ask(guarded, "/?token=wrong").status == 401
    assert ask(guarded, "/", Authorization="Bearer wrong").status == 401
    assert ask(guarded, "/", Cookie="assay_view=x").status == 401
    assert ask(guarded, "/api/runs", Authorization=f"Bearer {TOKEN}").status == 200


def test_a_token_in_the_address_becomes_a_cookie(guarded: ViewServer) -> None:
    first = ask(guarded, f"/run/tickets-1?filter=score+%3C+1&token={TOKEN}")
    cookie = first.headers["set-cookie"]

    assert first.status == 303
    assert first.headers["location"] == "/run/tickets-1?filter=score+%3C+1"
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert ask(guarded, "/", Cookie=cookie.partition(";")[0]).status == 200


def test_other_parameters_of_a_similar_name_lead_nowhere(guarded: ViewServer) -> None:
    answer = ask(guarded, "/?access_token=1", Authorization=f"Bearer {TOKEN}")

    assert answer.status == 200


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example/"])
def test_a_token_never_leads_to_another_site(guarded: ViewServer, path: str) -> None:
    answer = ask(guarded, f"{path}?token={TOKEN}")

    assert answer.headers["location"] == "/evil.example/"


def test_a_network_address_needs_a_token() -> None:
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0 can be reached by others"):
        ViewSettings(host="0.0.0.0")
    with pytest.raises(ValueError, match="needs an access token"):
        AccessRules("192.0.2.1", page_token="p")


def test_a_short_token_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 16 characters"):
        ViewSettings(token="short")
