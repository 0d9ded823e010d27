"""Which network addresses may be connected to. Asked before a socket is made, each time.

A name is looked up once for a connection, and the connection is made to the address that was
judged: it cannot be another one the second time.
"""

import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Literal

Reach = Literal["public", "private", "never"]
IpAddress = IPv4Address | IPv6Address

_NEVER = (
    IPv4Network("0.0.0.0/8"),
    IPv4Network("169.254.0.0/16"),
    IPv4Network("168.63.129.16/32"),
    IPv4Network("100.100.100.200/32"),
    IPv6Network("fd00:ec2::/32"),
    IPv6Network("fe80::/10"),
)
"""Where clouds answer with a machine's own credentials, and what means "this host" by accident."""

_TRANSLATED = IPv6Network("64:ff9b::/96")


def reach_of(address: str) -> Reach:
    """Whether an address is anyone's, only reachable from here, or not to be asked at all."""
    ip: IpAddress = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        ip = _inner(ip) or ip
    if any(ip in network for network in _NEVER if network.version == ip.version):
        return "never"
    if ip.is_unspecified or ip.is_multicast:
        return "never"
    if ip.is_loopback or ip.is_private or not ip.is_global:
        return "private"
    return "public"


def _inner(ip: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address really leads to."""
    if ip in _TRANSLATED:
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)


class Guard:
    """Makes the sockets of one fetch, and refuses to make those it must not."""

    def __init__(
        self, *, allow_private: bool, new_socket: Callable[..., socket.socket] = socket.socket
    ) -> None:
        self._allow_private = allow_private
        self._new_socket = new_socket
        self._was_public = False
        self.refused: str | None = None
        """Which connection was refused last, and why."""

        self.hint: str | None = None

    def socket_for(self, found: Any) -> socket.socket:
        """A socket for one looked-up address; `PermissionError` for one that is not allowed."""
        family, kind, protocol, _, address = found
        reach = reach_of(str(address[0]))
        if reach == "public":
            self._was_public = True
        elif reach == "never":
            raise self._refusal(f"{address[0]} is an address of this machine or its cloud")
        elif not self._allow_private:
            self.hint = "--allow-private allows addresses of this machine and its private network"
            raise self._refusal(f"{address[0]} is a private address")
        elif self._was_public:
            raise self._refusal(f"a public address leads on to {address[0]}, a private one")
        return self._new_socket(family, kind, protocol)

    def _refusal(self, why: str) -> PermissionError:
        self.refused = why
        return PermissionError(why)
