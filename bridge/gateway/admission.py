"""Who may connect, and who was sent away: limits over all connections of a gateway."""

from __future__ import annotations

import ipaddress
import time
from collections import Counter
from collections.abc import Callable
from enum import Enum


class Refused(Enum):
    """Why a connection was not taken."""

    CONNECTIONS = "connections"
    """The bridge has as many as it may."""
    ADDRESS = "address"
    """Its address has as many unauthenticated ones as it may."""


class Ended(Enum):
    """Why the bridge ended a connection that its client did not end."""

    UNAUTHENTICATED = "unauthenticated"
    """No token was accepted in time."""
    TLS = "tls"
    """Its TLS handshake failed, or did not end in time."""
    LOGIN = "login"
    """What it said before a token was accepted was against the protocol, or no right login."""
    FAULT = "fault"
    """What it said later was against the protocol."""
    UNREAD = "unread"
    """It did not read what it was sent."""
    UNFINISHED = "unfinished"
    """It did not send the rest of a frame or a message, or too many have not."""


class Admission:
    """Counts connections, and refuses those above a limit.

    Only connections that no token was accepted for are limited by address: behind one address there
    may be many clients.

    Args:
        connections_max: of all clients together.
        unauthenticated_max: unauthenticated ones of one address.

    Attributes:
        connections: those that are there, in TLS's handshake or later.
        unauthenticated: those of them for which no token was accepted.
        refused, ended: how many, by reason.
    """

    def __init__(self, connections_max: int, unauthenticated_max: int) -> None:
        self._connections_max = connections_max
        self._unauthenticated_max = unauthenticated_max
        self._by_address: Counter[str] = Counter()
        self.connections = 0
        self.unauthenticated = 0
        self.refused: dict[Refused, int] = dict.fromkeys(Refused, 0)
        self.ended: dict[Ended, int] = dict.fromkeys(Ended, 0)

    def __repr__(self) -> str:
        return f"<Admission connections={self.connections} unauthenticated={self.unauthenticated}>"

    def enter(self, host: str) -> Visit | Refused:
        """Take a connection from an address, or say why not."""
        address = network_of(host)
        if self.connections >= self._connections_max:
            return self._refuse(Refused.CONNECTIONS)
        if self._by_address[address] >= self._unauthenticated_max:
            return self._refuse(Refused.ADDRESS)
        self.connections += 1
        self.unauthenticated += 1
        self._by_address[address] += 1
        return Visit(self, address)

    def _refuse(self, reason: Refused) -> Refused:
        self.refused[reason] += 1
        return reason

    def known(self, address: str) -> None:
        """One of an address's connections is unauthenticated no more."""
        self.unauthenticated -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


class Visit:
    """One connection's place among those that are counted.

    Attributes:
        began_s: when it was taken, before TLS; of the event loop's clock.
        is_unauthenticated: no token was accepted yet.
        on_known: called when one is.
    """

    def __init__(self, admission: Admission, address: str) -> None:
        self.began_s = time.monotonic()
        self._admission = admission
        self._address = address
        self.is_unauthenticated = True
        self.on_known: Callable[[], None] | None = None
        self._is_over = False

    def left_s(self, allowed_s: float) -> float:
        """Return how much is left of a time that began when the connection was taken."""
        return max(allowed_s - (time.monotonic() - self.began_s), 0.0)

    def known(self) -> None:
        """A token was accepted."""
        if self.is_unauthenticated:
            self.is_unauthenticated = False
            self._admission.known(self._address)
            if self.on_known is not None and not self._is_over:
                self.on_known()

    def leave(self) -> None:
        """The connection is gone."""
        if not self._is_over:
            self._is_over = True
            self.known()
            self._admission.connections -= 1


_PREFIX_BITS_V6 = 64
"""What one site has of IPv6: whoever has one address has them all."""


def network_of(host: str) -> str:
    """Return what counts as one address."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _PREFIX_BITS_V6), strict=False))
