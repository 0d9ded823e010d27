"""Which proxy an address is reached through, by the environment."""

from collections.abc import Callable

import pytest

from assay.errors import ConfigError
from assay.providers.proxies import find_proxy

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.delenv("REQUEST_METHOD", raising=False)


def host_for(url: str) -> str | None:
    proxy = find_proxy(url)
    return None if proxy is None else proxy.host


def test_without_variables_there_is_no_proxy() -> None:
    assert find_proxy("https://api.example/v1") is None


@pytest.mark.parametrize("spell", [str.upper, str.lower])
def test_each_scheme_has_its_own_variable(
    spell: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(spell("http_proxy"), "http://plain:3128")
    monkeypatch.setenv(spell("https_proxy"), "http://secure:3129/")

    assert host_for("http://api.example/v1") == "plain:3128"
    assert host_for("https://api.example/v1") == "secure:3129"


def test_the_lower_case_variable_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://upper:1")
    monkeypatch.setenv("https_proxy", "http://lower:2")

    assert host_for("https://h/") == "lower:2"

    monkeypatch.setenv("https_proxy", "")
    assert host_for("https://h/") is None


def test_loopback_is_reached_through_the_proxy_unless_excepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "proxy")

    assert host_for("http://127.0.0.1:8000/v1") == "proxy:80"

    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")
    assert host_for("http://127.0.0.1:8000/v1") is None


@pytest.mark.parametrize(
    ("exceptions", "direct", "proxied"),
    [
        ("*", ["http://h/", "http://10.0.0.1/"], []),
        (
            "corp.example",
            ["http://corp.example/", "http://a.corp.example:8/"],
            ["http://xcorp.example/"],
        ),
        (".corp.example", ["http://a.corp.example/", "http://corp.example/"], ["http://example/"]),
        ("*.corp.example", ["http://a.corp.example/"], ["http://corp.example.org/"]),
        ("h:8000", ["http://h:8000/"], ["http://h/", "http://h:8001/"]),
        ("h:80", ["http://h/"], ["http://h:8000/"]),
        ("a, b  c", ["http://a/", "http://b/", "http://C/"], ["http://d/"]),
        ("10.0.0.0/8", ["http://10.1.2.3:5/"], ["http://11.0.0.1/", "http://ten.example/"]),
        ("10.1.2.3", ["http://10.1.2.3/"], ["http://10.1.2.30/"]),
        ("::1", ["http://[::1]:8000/"], ["http://[::2]/"]),
        ("[::1]:8000", ["http://[::1]:8000/"], ["http://[::1]:8001/"]),
        ("fd00::/8", ["http://[fd12::1]/"], ["http://[fe80::1]/"]),
        ("10.0.0.0/99, /, :, [", [], ["http://10.0.0.0/"]),
        ("", [], ["http://h/"]),
    ],
)
def test_no_proxy_names_hosts_suffixes_ports_and_networks(
    exceptions: str, direct: list[str], proxied: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", exceptions)

    assert [url for url in direct if find_proxy(url) is not None] == []
    assert [url for url in proxied if find_proxy(url) is None] == []


def test_a_proxy_is_shown_without_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:p%40ss-canary@proxy:3128")

    proxy = find_proxy("https://h/")

    assert proxy is not None
    assert (proxy.url, proxy.user, proxy.password) == ("http://proxy:3128", "me", "p@ss-canary")
    assert "canary" not in repr(proxy)


@pytest.mark.parametrize(
    "value", ["socks5://me:canary@h:1080", "http://", "http://h:port", "http://h:0", "ftp://h"]
)
def test_a_proxy_that_cannot_be_used_is_refused_without_being_shown(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", value)

    with pytest.raises(ConfigError, match="HTTPS_PROXY is not an http or https address") as refused:
        find_proxy("https://api.example/v1")

    assert "canary" not in str(refused.value)


def test_a_web_server_does_not_take_its_proxy_from_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # CGI turns the header `Proxy:` of a request into HTTP_PROXY.
    monkeypatch.setenv("HTTP_PROXY", "http://evil")
    monkeypatch.setenv("REQUEST_METHOD", "GET")

    assert find_proxy("http://h/") is None
