"""Which addresses the step ``http`` does not talk to, and which host names.

What a cloud or a node offers at link-local and metadata addresses is credentials of the node, not a service for whoever
may write a Stage. So every address that a connection is about to be made to is judged here, in whatever way it was
spelled or found; so are the IPv4 addresses that are wrapped in one of IPv6. Pure: nothing is resolved here.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, TypeAlias

from kargo_py.messages import Shown, message

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

LINK_LOCAL = message(
    "{address} is a link-local address",
    do="The step http never talks to link-local addresses, where nodes and clouds offer their own credentials. Use "
    "another address of that service.",
    shown=Shown.PROMOTION,
)
METADATA = message(
    "{address} belongs to the metadata service of a cloud",
    do="The step http never talks to metadata services, which offer the credentials of nodes. Put what is needed into "
    "a Secret or a ConfigMap.",
    shown=Shown.PROMOTION,
)
DENIED = message(
    "{address} is in {network}, which --http-deny excludes",
    do="Whoever runs the controllers has excluded these addresses for the step http. Use another one, or ask them.",
    shown=Shown.PROMOTION,
)

_LINK_LOCAL: Final[tuple[Network, ...]] = (IPv4Network("169.254.0.0/16"), IPv6Network("fe80::/10"))
_METADATA: Final[tuple[Network, ...]] = (
    IPv6Network("fd00:ec2::/32"),  # AWS, with its credentials for pods
    IPv6Network("fd20:ce::254/128"),  # Google
    IPv6Network("fd00:42::42/128"),  # Scaleway
    IPv4Network("100.100.100.200/32"),  # Alibaba
    IPv4Network("168.63.129.16/32"),  # Azure
    IPv4Network("192.0.0.192/32"),  # Oracle
)
_METADATA_NAMES: Final = frozenset(
    {
        "instance-data.ec2.internal",
        "metadata.goog",
        "metadata.google.internal",
        "metadata.platformequinix.com",
        "metadata.tencentyun.com",
    }
)

# Of these networks the last 32 bits are an IPv4 address.
_WRAPPING: Final = tuple(
    IPv6Network(text)
    for text in (
        "::/96",  # compatible
        "::ffff:0:0/96",  # mapped
        "::ffff:0:0:0/96",  # translated
        "64:ff9b::/96",  # NAT64
        "64:ff9b:1::/48",  # NAT64 of one's own, in its usual form
    )
)


@dataclass(frozen=True, slots=True)
class AddressRules:
    """Which addresses are refused beside the link-local ones and those of metadata services."""

    denied: Sequence[Network] = ()

    def refusal(self, address: Address) -> str | None:
        """Why *address* is not talked to; None if it is."""
        for each in _meanings(address):
            if _within(each, _LINK_LOCAL):
                return LINK_LOCAL(address=address)
            if _within(each, _METADATA):
                return METADATA(address=address)
            if (network := _within(each, self.denied)) is not None:
                return DENIED(address=address, network=network)
        return None

    def name_refusal(self, host: str) -> str | None:
        """Why the host of a URL is not talked to, as far as its name or spelling tells; None if it does not."""
        if host.rstrip(".").lower() in _METADATA_NAMES:
            return METADATA(address=host)
        address = literal(host)
        return self.refusal(address) if address is not None else None


def literal(host: str) -> Address | None:
    """The address that *host* spells, in any way that the C library understands; None if it is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    if not host.isascii() or any(char.isspace() for char in host):
        return None
    try:
        # 2852039166, 0xa9fea9fe, 0251.0376.43518 and so on
        return IPv4Address(socket.inet_aton(host.rstrip(".")))
    except OSError:
        return None


def _within(address: Address, networks: Sequence[Network]) -> Network | None:
    return next((each for each in networks if each.version == address.version and address in each), None)


def _meanings(address: Address) -> Iterator[Address]:
    """*address*, and all others that a packet to it may end at."""
    yield address
    if address.is_unspecified:
        # Linux takes it for this machine.
        yield IPv4Address("127.0.0.1")
        yield IPv6Address("::1")
    if isinstance(address, IPv4Address):
        return
    if _within(address, _WRAPPING) is not None:
        yield from _meanings_of_wrapped(IPv4Address(int(address) & 0xFFFFFFFF))
    if address.sixtofour is not None:
        yield from _meanings_of_wrapped(address.sixtofour)
    if address.teredo is not None:
        for each in address.teredo:
            yield from _meanings_of_wrapped(each)


def _meanings_of_wrapped(address: IPv4Address) -> Iterator[Address]:
    # :: and ::1 would be 0.0.0.0 and 0.0.0.1, which nobody means
    if int(address) > 1:
        yield address
