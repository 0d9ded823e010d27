"""The network addresses that a fetch may connect to, checked before each socket is created.

A name is resolved once per connection, and the connection is made to the address that was
checked: DNS rebinding cannot replace it afterwards.
"""

import socket
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Literal

Reach = Literal["public", "private", "never"]
IpAddress = IPv4Address | IPv6Address

# Metadata services, where clouds hand out the credentials of a machine, and "this host".
_FORBIDDEN_NETWORKS = (
    IPv4Network("0.0.0.0/8"),
    IPv4Network("169.254.0.0/16"),
    IPv4Network("168.63.129.16/32"),
    IPv4Network("100.100.100.200/32"),
    IPv4Network("192.0.0.192/32"),
    IPv6Network("fd00:ec2::/32"),
    IPv6Network("fd20:ce::254/128"),
    IPv6Network("fe80::/10"),
)
_IPV4_BITS = 0xFFFFFFFF
# IPv4-compatible, IPv4-mapped, IPv4-translated, and the well-known prefix of NAT64.
_LAST_32_BITS = (
    IPv6Network("::/96"),
    IPv6Network("::ffff:0:0/96"),
    IPv6Network("::ffff:0:0:0/96"),
    IPv6Network("64:ff9b::/96"),
)
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
_ISATAP = (0x00005EFE, 0x02005EFE)
_STRICTNESS: tuple[Reach, ...] = ("public", "private", "never")


def classify_address(address: str) -> Reach:
    """Classify an address as public, private, or never allowed.

    An IPv6 address with an embedded IPv4 address is classified by the latter.
    """
    ip: IpAddress = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv4Address) or ip.is_unspecified or ip.is_loopback:
        return _classify_ip(ip)
    carried = [_classify_ip(each) for each in _list_embedded_ipv4(ip)]
    if ip in _LOCAL_NAT64:
        carried.append("private")  # its target depends on the translator of this network
    if not carried or _is_isatap(ip):
        carried.append(_classify_ip(ip))
    return max(carried, key=_STRICTNESS.index)


def _classify_ip(ip: IpAddress) -> Reach:
    if any(ip in network for network in _FORBIDDEN_NETWORKS if network.version == ip.version):
        return "never"
    if ip.is_unspecified or ip.is_multicast:
        return "never"
    site_local = isinstance(ip, IPv6Address) and ip.is_site_local  # not covered by is_global
    if ip.is_loopback or ip.is_private or site_local or not ip.is_global:
        return "private"
    return "public"


def _list_embedded_ipv4(ip: IPv6Address) -> Iterator[IPv4Address]:
    """Yield every IPv4 address that an IPv6 address may lead to."""
    bits = int(ip)
    if any(ip in network for network in _LAST_32_BITS) or _is_isatap(ip):
        yield IPv4Address(bits & _IPV4_BITS)
    if ip.sixtofour is not None:
        yield ip.sixtofour
    if ip.teredo is not None:
        yield from ip.teredo
    if ip in _LOCAL_NAT64:
        # By the length of the prefix (RFC 6052). Bits 64 to 71 are reserved.
        joined = (bits >> 64) << 56 | bits & (1 << 56) - 1
        found = [joined >> (120 - prefix - 32) & _IPV4_BITS for prefix in (48, 56, 64)]
        # Zeros are the padding of another prefix length, not an address.
        yield from (IPv4Address(each) for each in (*found, bits & _IPV4_BITS) if each >> 24)


def _is_isatap(ip: IPv6Address) -> bool:
    return int(ip) >> 32 & _IPV4_BITS in _ISATAP


class SocketGuard:
    """Creates the sockets of one fetch and refuses forbidden addresses."""

    def __init__(
        self, *, allow_private: bool, new_socket: Callable[..., socket.socket] = socket.socket
    ) -> None:
        self._allow_private = allow_private
        self._new_socket = new_socket
        self._was_public = False
        self.refused: str | None = None
        """The reason of the last refusal."""

        self.hint: str | None = None

    def create_socket(self, found: Any) -> socket.socket:
        """Create a socket for a resolved address. Raises `PermissionError` if it is forbidden."""
        family, kind, protocol, _, address = found
        reach = classify_address(str(address[0]))
        if reach == "public":
            self._was_public = True
        elif reach == "never":
            raise self._build_refusal(f"{address[0]} is an address of this machine or its cloud")
        elif not self._allow_private:
            self.hint = (
                "pass --allow-private to allow addresses of this machine and its private network"
            )
            raise self._build_refusal(f"{address[0]} is a private address")
        # Even if private addresses are allowed: a public server must not choose one of them.
        elif self._was_public:
            raise self._build_refusal(f"a public address redirects to {address[0]}, a private one")
        return self._new_socket(family, kind, protocol)

    def _build_refusal(self, why: str) -> PermissionError:
        self.refused = why
        return PermissionError(why)
