"""The ownership token: a message that is always in an inbox, held unacked by the leader.

RabbitMQ elects the single active consumer of an inbox without telling it (docs/rabbitmq-faults.md:
silent-owner); an idle inbox would have a consumer that does not know of its election. So every term
publishes a token to the inbox when it begins, and the leader keeps one token unacked. When the
leader dies, RabbitMQ delivers the token to its successor. Under load the token is passed on
(published anew, then acked), so that the queue can drop older entries of its log, and acks can be
`multiple`.
"""

from __future__ import annotations

from bridge.broker.connection.delivery import Delivery
from bridge.broker.handover import Publish
from bridge.machine.inbox.arrival import OWNERSHIP_TOKEN_KIND
from bridge.sidecar.leader.in_flight import InFlight
from bridge.topology import names
from bridge.wire import headers
from bridge.wire.basic import Properties

SITE = "sequencer.ownership"

ARRIVALS = 50
"""Number of arrivals after which a new token is published in place of the held one."""

_PROPERTIES = Properties(
    headers={headers.KIND: ("S", OWNERSHIP_TOKEN_KIND.encode())}, delivery_mode=2
).encode()


class OwnershipToken:
    """The token of one term.

    Attributes:
        has_own_come: a token that this term published has come, and so have all messages that were
            in the inbox when the term began.
        arrivals: arrivals carried out since the token was passed on.
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
        """Hold the token that has arrived, and ack the one held before, if any."""
        self.has_own_come |= term == self._term
        if self._held is not None:
            in_flight.ack(self._held, site=SITE)
        self._held = delivery

    def pass_on(self, in_flight: InFlight) -> None:
        """Publish a new token and ack the held one, after `ARRIVALS` arrivals."""
        if self._held is not None and self.arrivals >= ARRIVALS:
            in_flight.pass_on(self.publish(), self._held, site=SITE)
            self._held, self.arrivals = None, 0
