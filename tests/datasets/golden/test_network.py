"""Which addresses are connected to. Sockets are stand-ins: no packet leaves."""

import socket
from typing import Any

import pytest

from assay.datasets.golden.network import Reach, SocketGuard, classify_address


@pytest.mark.parametrize(
    ("address", "reach"),
    [
        ("93.184.215.14", "public"),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", "public"),
        ("127.0.0.1", "private"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("192.168.1.1", "private"),
        ("100.64.0.1", "private"),
        ("198.18.0.1", "private"),
        ("::1", "private"),
        ("fd12::1", "private"),
        ("fec0::1", "private"),
        ("0.0.0.0", "never"),
        ("::", "never"),
        ("169.254.169.254", "never"),
        ("168.63.129.16", "never"),
        ("100.100.100.200", "never"),
        ("fd00:ec2::254", "never"),
        ("fe80::1%eth0", "never"),
        ("224.0.0.1", "never"),
        ("ff02::1", "never"),
        ("::ffff:127.0.0.1", "private"),
        ("::ffff:169.254.169.254", "never"),
        ("64:ff9b::a9fe:a9fe", "never"),
        ("64:ff9b::7f00:1", "private"),
        ("2002:7f00:1::", "private"),
        ("::ffff:93.184.215.14", "public"),
        ("::a9fe:a9fe", "never"),
        ("::7f00:1", "private"),
        ("::10.0.0.1", "private"),
        ("::93.184.215.14", "public"),
        ("::ffff:0:169.254.169.254", "never"),
        ("::ffff:0:127.0.0.1", "private"),
        ("64:ff9b:1::a9fe:a9fe", "never"),
        ("64:ff9b:1::7f00:1", "private"),
        ("64:ff9b:1::5db8:d70e", "private"),
        ("64:ff9b:1:a9fe:a9:fe00::", "never"),
        ("64:ff9b:1:12a9:fe:a9fe::", "never"),
        ("64:ff9b:1:1234:a9:fea9:fe00:0", "never"),
        ("2002:a9fe:a9fe::1", "never"),
        ("2002:5db8:d70e::1", "public"),
        ("2001:0:5db8:d70e:0:0:5601:5601", "never"),
        ("2001:0:a9fe:a9fe:0:0:a247:28f1", "never"),
        ("2001:0:5db8:d70e:0:0:80ff:fffe", "private"),
        ("2606:2800::5efe:a9fe:a9fe", "never"),
        ("2606:2800::200:5efe:7f00:1", "private"),
        ("2606:2800::5efe:5db8:d70e", "public"),
        ("fe80::5efe:5db8:d70e", "never"),
        ("fd20:ce::254", "never"),
        ("192.0.0.192", "never"),
    ],
)
def test_every_address_is_public_private_or_never_asked(address: str, reach: Reach) -> None:
    assert classify_address(address) == reach


class Sockets:
    """Makes no socket, and remembers for what one was asked for."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, *arguments: Any) -> Any:
        self.made += 1
        return "a socket"


def found(address: str) -> tuple[Any, ...]:
    return (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80))


def test_a_private_address_is_refused_before_a_socket_is_made() -> None:
    sockets = Sockets()
    guard = SocketGuard(allow_private=False, new_socket=sockets)

    with pytest.raises(PermissionError, match=r"10\.0\.0\.1 is a private address"):
        guard.create_socket(found("10.0.0.1"))

    assert sockets.made == 0
    assert guard.refused == "10.0.0.1 is a private address"
    assert guard.hint is not None
    assert "--allow-private" in guard.hint


@pytest.mark.parametrize("address", ["::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::"])
def test_an_address_in_disguise_is_refused_before_a_socket_is_made(address: str) -> None:
    sockets = Sockets()

    with pytest.raises(PermissionError, match="this machine or its cloud"):
        SocketGuard(allow_private=True, new_socket=sockets).create_socket(found(address))

    assert sockets.made == 0


def test_what_answers_with_credentials_is_refused_even_where_private_is_allowed() -> None:
    sockets = Sockets()
    guard = SocketGuard(allow_private=True, new_socket=sockets)

    with pytest.raises(PermissionError, match="this machine or its cloud"):
        guard.create_socket(found("169.254.169.254"))

    assert sockets.made == 0
    assert guard.hint is None


def test_a_private_address_is_allowed_where_someone_says_so() -> None:
    sockets = Sockets()

    SocketGuard(allow_private=True, new_socket=sockets).create_socket(found("127.0.0.1"))

    assert sockets.made == 1


def test_a_public_address_never_leads_on_to_a_private_one() -> None:
    sockets = Sockets()
    guard = SocketGuard(allow_private=True, new_socket=sockets)
    guard.create_socket(found("93.184.215.14"))

    with pytest.raises(PermissionError, match=r"a public address redirects to 127\.0\.0\.1"):
        guard.create_socket(found("127.0.0.1"))

    assert sockets.made == 1
