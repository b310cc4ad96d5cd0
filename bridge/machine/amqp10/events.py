"""What happened, as values; an endpoint yields them in the order in which the bytes came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.wire.amqp10.performatives import Error, Open

if TYPE_CHECKING:
    from bridge.machine.amqp10.link import IncomingLink, Link, OutgoingDelivery, OutgoingLink


@dataclass(frozen=True, slots=True)
class SaslChosen:
    """The peer has chosen a mechanism; `Endpoint.sasl_outcome` must be called before going on."""

    mechanism: str
    response: bytes


@dataclass(frozen=True, slots=True)
class Opened:
    """The connection is open on both sides."""

    open: Open


@dataclass(frozen=True, slots=True)
class LinkAttached:
    """The peer wants a link; it must be accepted or refused, at any later time."""

    link: IncomingLink | OutgoingLink


@dataclass(frozen=True, slots=True)
class LinkDetached:
    """A link is gone, by its peer's wish or fault, or with its session."""

    link: Link


@dataclass(frozen=True, slots=True)
class MessageArrived:
    """A whole message came in."""

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
class CreditChanged:
    """The peer changed the credit of a link on which we send.

    Attributes:
        credit: how many messages it takes now.
        drain: credit that cannot be used at once is to be given back, then `OutgoingLink.drained`.
    """

    link: OutgoingLink
    credit: int
    drain: bool


@dataclass(frozen=True, slots=True)
class OutcomeArrived:
    """The peer told the outcome of deliveries of a link.

    Attributes:
        is_settled: it has forgotten them and waits for no answer.
    """

    link: OutgoingLink
    deliveries: list[OutgoingDelivery]
    outcome: Any
    is_settled: bool


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection has ended: by its peer, or by `fault` of its peer."""

    error: Error | None = None
    is_fault: bool = False


Event = (
    SaslChosen
    | Opened
    | LinkAttached
    | LinkDetached
    | MessageArrived
    | MessageRefused
    | CreditChanged
    | OutcomeArrived
    | Closed
)
