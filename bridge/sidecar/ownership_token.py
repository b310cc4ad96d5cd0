"""The ownership token: a message that is always in an inbox, held by whoever owns the inbox.

RabbitMQ elects the single active consumer of an inbox without telling it (docs/rabbitmq-faults.md:
silent-owner); an idle inbox would have an owner who does not know. So every term puts a token into
the inbox when it begins, and its owner keeps one unacked: when it dies, its successor gets it.
Under load the token is passed on (published anew, then acked), so that the queue can forget what
lies before it, and acks need not be single.
"""

from __future__ import annotations

from bridge.broker.connection.delivery import Delivery
from bridge.broker.handover import Publish
from bridge.machine.arrival import OWNERSHIP_TOKEN_KIND
from bridge.sidecar.in_flight import InFlight
from bridge.topology import names
from bridge.wire import headers
from bridge.wire.basic import Properties

SITE = "sequencer.ownership"

ARRIVALS = 50
"""So many arrivals make it worth while to pass the token on."""

_PROPERTIES = Properties(
    headers={headers.KIND: ("S", OWNERSHIP_TOKEN_KIND.encode())}, delivery_mode=2
).encode()


class OwnershipToken:
    """The token in the hand of one term.

    Attributes:
        has_own_come: a token that this term published has come: all that was in the inbox when the
            term began came before it.
        arrivals: what arrived since the token was taken.
    """

    def __init__(self, entity: str, term: bytes) -> None:
        self.has_own_come = False
        self.arrivals = 0
        self._inbox = names.inbox(entity)
        self._term = term
        self._held: Delivery | None = None

    def publish(self) -> Publish:
        """Return a new token."""
        return Publish("", self._inbox, _PROPERTIES, self._term)

    def take(self, delivery: Delivery, term: bytes, in_flight: InFlight) -> None:
        """Keep the token that came; one that was kept before is not needed any more."""
        self.has_own_come |= term == self._term
        if self._held is not None:
            in_flight.ack(self._held, site=SITE)
        self._held = delivery

    def pass_on(self, in_flight: InFlight) -> None:
        """Send it round once more, when that is worth while."""
        if self._held is not None and self.arrivals >= ARRIVALS:
            in_flight.pass_on(self.publish(), self._held, site=SITE)
            self._held, self.arrivals = None, 0
