"""What would go: the messages of a route's source as a peek shows them, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from bridge.model.filters.errors import FilterException
from bridge.relay.plan.choice import choice
from bridge.relay.plan.relayed_message import Expired, Returned, RouteFacts, Unfit, relayed
from bridge.relay.plan.route import Route
from bridge.relay.running.namespaces import Namespaces
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.errors import DecodeError

PAGE = 250
"""Messages of one peek: Azure's most."""


@dataclass(slots=True)
class Count:
    """What would become of the messages of a source now.

    Attributes:
        goes: name of a route -> how many it would send.
        left_out: of these, how many without our own properties, as they would be too large.
        completes: taken by no filter, and completed.
        dead_letters: taken by no filter, and dead-lettered.
        returned: have been at the target before.
        refused: cannot be read, or sent as they are, or a filter fails on them.
        expired: their time is over.
        waiting: scheduled or deferred: they stay.
    """

    goes: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    completes: int = 0
    dead_letters: int = 0
    returned: int = 0
    refused: int = 0
    expired: int = 0
    waiting: int = 0

    def add(self, routes: Sequence[Route], message: RemoteMessage, now_ms: int) -> None:
        """Count a message.

        Args:
            routes: the route that receives, and those that `else` leads to.
        """
        try:
            if message.state != "active":
                self.waiting += 1
                return
            found = choice(tuple(routes), message)
        except (FilterException, DecodeError):
            self.refused += 1
            return
        if not isinstance(found, Route):
            if found == "complete":
                self.completes += 1
            else:
                self.dead_letters += 1
            return
        match relayed(message, RouteFacts.of(found), now_ms):
            case Expired():
                self.expired += 1
            case Returned():
                self.returned += 1
            case Unfit():
                self.refused += 1
            case sent:
                self.goes[found.name] += 1
                self.left_out[found.name] += bool(sent.left_out)


async def counted(routes: Sequence[Route], sides: Namespaces, now_ms: int) -> Count:
    """Return what would become of all messages that are at a source now; none is locked.

    Raises:
        RemoteError: the namespace refuses, or does not answer.
    """
    source = routes[0].source
    management = await sides.of(source.side).management(source.path)
    count, next_number = Count(), 0
    while page := await management.peek(next_number, PAGE):
        for message in page:
            count.add(routes, message, now_ms)
        last = page[-1].sequence_number
        if last is None or last < next_number:
            break
        next_number = last + 1
    return count
