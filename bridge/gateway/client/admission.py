"""Admission control: connection limits of a gateway, and counts of refused connections."""

from __future__ import annotations

import ipaddress
import time
from collections import Counter
from collections.abc import Callable
from enum import Enum


class NotAdmitted(Enum):
    """Reason for refusing a connection."""

    CONNECTIONS = "connections"
    """The bridge has its maximum of connections."""
    ADDRESS = "address"
    """The client's address has its maximum of unauthenticated connections."""


class ConnectionEnd(Enum):
    """Reason why the bridge ended a connection."""

    UNAUTHENTICATED = "unauthenticated"
    """No token was accepted in time."""
    TLS = "tls"
    """The TLS handshake failed, or did not end in time."""
    LOGIN = "login"
    """Before a token was accepted the client broke the protocol, or its login was wrong."""
    FAULT = "fault"
    """After a token was accepted the client broke the protocol."""
    UNREAD = "unread"
    """The client did not read its output."""
    UNFINISHED = "unfinished"
    """The client did not send the rest of a frame or a message, or too many clients have not."""


class Admission:
    """Counter of connections, which refuses connections above a limit.

    Only unauthenticated connections (without an accepted token) are limited by address: behind one
    address there may be many clients.

    Args:
        connections_max: maximum of connections, of all clients together.
        unauthenticated_max: maximum of unauthenticated connections of one address.

    Attributes:
        connections: open connections, in the TLS handshake or later.
        unauthenticated: open connections for which no token was accepted.
        refused, ended: counts by reason.
    """

    def __init__(self, connections_max: int, unauthenticated_max: int) -> None:
        self._connections_max = connections_max
        self._unauthenticated_max = unauthenticated_max
        self._by_address: Counter[str] = Counter()
        self.connections = 0
        self.unauthenticated = 0
        self.refused: dict[NotAdmitted, int] = dict.fromkeys(NotAdmitted, 0)
        self.ended: dict[ConnectionEnd, int] = dict.fromkeys(ConnectionEnd, 0)

    def __repr__(self) -> str:
        return f"<Admission connections={self.connections} unauthenticated={self.unauthenticated}>"

    def enter(self, host: str) -> Visit | NotAdmitted:
        """Admit a connection from an address, or return the reason for refusing it."""
        address = network_of(host)
        if self.connections >= self._connections_max:
            return self._refuse(NotAdmitted.CONNECTIONS)
        if self._by_address[address] >= self._unauthenticated_max:
            return self._refuse(NotAdmitted.ADDRESS)
        self.connections += 1
        self.unauthenticated += 1
        self._by_address[address] += 1
        return Visit(self, address)

    def _refuse(self, reason: NotAdmitted) -> NotAdmitted:
        self.refused[reason] += 1
        return reason

    def known(self, address: str) -> None:
        """Note that a connection from an address is authenticated."""
        self.unauthenticated -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


class Visit:
    """An admitted connection, as counted by the admission.

    Attributes:
        began_s: when the connection was admitted, before TLS; by `time.monotonic`.
        is_unauthenticated: no token was accepted yet.
        on_known: called when a token is accepted.
    """

    def __init__(self, admission: Admission, address: str) -> None:
        self.began_s = time.monotonic()
        self._admission = admission
        self._address = address
        self.is_unauthenticated = True
        self.on_known: Callable[[], None] | None = None
        self._is_over = False

    def left_s(self, allowed_s: float) -> float:
        """Return the rest of an allowed time that began when the connection was admitted."""
        return max(allowed_s - (time.monotonic() - self.began_s), 0.0)

    def known(self) -> None:
        """Note that a token was accepted."""
        if self.is_unauthenticated:
            self.is_unauthenticated = False
            self._admission.known(self._address)
            if self.on_known is not None and not self._is_over:
                self.on_known()

    def leave(self) -> None:
        """Note that the connection has ended."""
        if not self._is_over:
            self._is_over = True
            self.known()
            self._admission.connections -= 1


_PREFIX_BITS_V6 = 64
"""The prefix of one site's IPv6 network: a client with one address of a site has them all."""


def network_of(host: str) -> str:
    """Return the network of a host; a network counts as one address."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _PREFIX_BITS_V6), strict=False))
