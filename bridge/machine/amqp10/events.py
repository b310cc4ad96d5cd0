"""Events of an endpoint, as values; yielded in the order in which the bytes came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.wire.amqp10.performatives import Error, Open

if TYPE_CHECKING:
    from bridge.machine.amqp10.link import IncomingLink, Link, OutgoingDelivery, OutgoingLink


@dataclass(frozen=True, slots=True)
class SaslChosen:
    """The peer has chosen a mechanism; call `Endpoint.sasl_outcome` before the next event."""

    mechanism: str
    response: bytes


@dataclass(frozen=True, slots=True)
class Opened:
    """The connection is open on both sides."""

    open: Open


@dataclass(frozen=True, slots=True)
class LinkAttached:
    """The peer attaches a link; the owner must accept or refuse it, at any later time."""

    link: IncomingLink | OutgoingLink


@dataclass(frozen=True, slots=True)
class LinkOpened:
    """The peer has accepted a link that we asked for."""

    link: IncomingLink | OutgoingLink


@dataclass(frozen=True, slots=True)
class LinkDetached:
    """A link has ended: by the peer's wish or fault, or with the session."""

    link: Link


@dataclass(frozen=True, slots=True)
class MessageArrived:
    """A whole message has come."""

    link: IncomingLink
    delivery_id: int
    message_format: int
    payload: bytes
    is_settled: bool
    state: Any = None


@dataclass(frozen=True, slots=True)
class MessageRefused:
    """A message was too large: it has been rejected, and has used up credit."""

    link: IncomingLink


@dataclass(frozen=True, slots=True)
class OperationMissed:
    """Something that the peer made part of a transaction has come too late, or was too large.

    Its delivery is not there, or its link has ended: no other event tells of it.
    """

    txn_id: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class CreditChanged:
    """The peer changed the credit of a link on which we send.

    Attributes:
        credit: how many messages the peer takes now.
        drain: credit that cannot be used at once is to be given back, then `OutgoingLink.drained`.
    """

    link: OutgoingLink
    credit: int
    drain: bool


@dataclass(frozen=True, slots=True)
class MessageWritten:
    """A settled message that waited for the peer's window is in the output now, whole."""

    link: OutgoingLink


@dataclass(frozen=True, slots=True)
class OutcomeArrived:
    """The peer told the outcome of deliveries of a link.

    Attributes:
        is_settled: the peer has forgotten the deliveries and waits for no answer.
    """

    link: OutgoingLink
    deliveries: list[OutgoingDelivery]
    outcome: Any
    is_settled: bool


@dataclass(frozen=True, slots=True)
class DeliveriesSettled:
    """The peer has settled deliveries that it sent us, after we told it their outcome.

    Attributes:
        outcome: what has become of them: the same, or a rejection with an error.
    """

    link: IncomingLink
    delivery_ids: list[int]
    outcome: Any


@dataclass(frozen=True, slots=True)
class Drained:
    """The peer has given back the credit that it could not use."""

    link: IncomingLink


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection has ended: by its peer, or (`is_fault`) for a fault of its peer."""

    error: Error | None = None
    is_fault: bool = False


Event = (
    SaslChosen
    | Opened
    | LinkAttached
    | LinkDetached
    | MessageArrived
    | MessageRefused
    | OperationMissed
    | CreditChanged
    | MessageWritten
    | OutcomeArrived
    | Closed
)
"""Events of a server's end."""

ClientEvent = Event | LinkOpened | DeliveriesSettled | Drained
"""Events of a client's end; `LinkAttached` and `SaslChosen` are none of them."""
