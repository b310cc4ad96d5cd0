"""What RabbitMQ delivers of a shard: read, asked for if it comes again, added to its session."""

from __future__ import annotations

from functools import partial

from bridge.broker.connection.delivery import Delivery
from bridge.engine.clock import now_ms
from bridge.engine.services import Services
from bridge.engine.sessions.arrival import (
    NO_SESSION_DESCRIPTION,
    NO_SESSION_REASON,
    place_of,
)
from bridge.engine.sessions.messages import SessionMessages
from bridge.engine.settlement.asked_messages import AskedMessages
from bridge.engine.settlement.held_message import HeldMessage, read
from bridge.topology import names
from bridge.wire.inquiries import Told


class ShardArrivals:
    """The deliveries of one shard.

    Attributes:
        count: the deliveries since the takeover began.
        asked: what the entity's leader is asked for.
    """

    def __init__(self, messages: SessionMessages, services: Services) -> None:
        self.count = 0
        self._messages = messages
        self._departure = services.departure
        self._inquirer = services.inquirer
        self._active_exchange = names.active_exchange(messages.queue.front)
        self.asked = AskedMessages(messages, services.inquirer, lambda: None)

    def __repr__(self) -> str:
        return f"ShardArrivals({self.count}, {self.asked!r})"

    def arrived(self, delivery: Delivery) -> None:
        """Add a delivered message to its session.

        A message without a session id, or an unreadable one, becomes a dead letter. A message that
        was published past the front exchange is sent back to be numbered.
        """
        messages, asked = self._messages, self.asked
        self.count += 1
        try:
            holding = read(delivery, 0, can_expire=True, reader=messages.reader)
        except Exception as error:
            text = f"The message cannot be handled: {type(error).__name__}: {error}"
            messages.refuse(delivery, text)
            return
        deliveries, holding.failures = holding.failures - holding.generation, holding.generation
        if not holding.has_come_through(self._active_exchange):
            self._departure.send_back(messages, holding)
            return
        if (
            messages.queue.transactional
            and (asked.waits or delivery.redelivered or deliveries)
            and not asked.goes_on(
                holding,
                is_redelivered=delivery.redelivered,
                deliveries=deliveries,
                again=partial(self._again, delivery),
                decided=partial(self._decided, holding),
            )
        ):
            return
        place = place_of(holding)
        if place is None:
            self._departure.end(messages, holding, NO_SESSION_REASON, NO_SESSION_DESCRIPTION)
            return
        effects = messages.machine.arrived(place, now_ms=now_ms())
        if effects:
            messages.do(effects)

    def _again(self, delivery: Delivery) -> None:
        self.count -= 1
        self.arrived(delivery)

    def _decided(self, holding: HeldMessage, told: Told) -> None:
        """Carry out what a transaction has decided about a message that has come again."""
        if self._messages.holds(holding):
            self._messages.decided(holding, told)
            self._inquirer.carry_out(self._messages, holding, told, self.asked)
