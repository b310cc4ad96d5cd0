"""What becomes of each message that a route has received: its filter, and what stands behind it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from bridge.model.filters.errors import FilterException
from bridge.relay.machine.effects import Arrival, Fate
from bridge.relay.machine.lease import LOCK_MS_MIN, lock_ms_of
from bridge.relay.plan.choice import chain, choice
from bridge.relay.plan.relayed_message import Expired, Relayed, Returned, RouteFacts, Unfit, relayed
from bridge.relay.plan.route import RelayFile, Route
from bridge.relay.running.outlet import OVERHEAD, Outlet
from bridge.relay.running.status import RouteStatus
from bridge.remote.delivery import RemoteDelivery
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.errors import DecodeError

FILTERED = "RelayFilter"
"""Reason of a dead letter that the filter does not take, where the route says so."""


@dataclass(slots=True)
class InHand:
    """A message in hand.

    Attributes:
        status: of the route that takes it.
        message: what is sent; `None` for one that is only settled.
        outlet: where it is sent to.
        number, enqueued_ms: its number and its time at the source.
        prepared_ms: when `message` was made: its time to live is of then.
    """

    delivery: RemoteDelivery
    status: RouteStatus
    facts: RouteFacts | None = None
    message: RemoteMessage | None = None
    outlet: Outlet | None = None
    number: int = 0
    enqueued_ms: int = 0
    prepared_ms: int = 0


class Judgement:
    """Says what becomes of the messages of one source.

    Args:
        route: the route that receives.
        file: where the routes stand that `else` leads to.
        outlets: the ways to the targets, by the names of routes.
        status: the route's own; those of its chain stand beside it.
    """

    def __init__(
        self, route: Route, file: RelayFile, outlets: Mapping[str, Outlet], status: RouteStatus
    ) -> None:
        self._status = status
        self._route = route
        self._chain = chain(file, route)
        self._ways = {
            each.name: (RouteFacts.of(each, file.routes), outlets[each.name])
            for each in self._chain
        }

    def of(
        self, delivery: RemoteDelivery, key: int, now_ms: int, *, is_session: bool
    ) -> tuple[Arrival, InHand]:
        """Return a message as the hand-over takes it, and as it is in hand.

        Args:
            is_session: the message's session is locked, not the message.
        """
        in_hand = InHand(delivery, self._status, prepared_ms=now_ms)
        lock_ms = 0 if is_session else LOCK_MS_MIN
        said: tuple[Fate, Hashable, int, str, str]
        try:
            in_hand.number = number_of(delivery)
            in_hand.enqueued_ms = int(delivery.message.enqueued_time_ms or 0)
            if lock_ms:
                lock_ms = _lock_ms(delivery.message, now_ms)
            said = self._fate(in_hand)
        except FilterException as error:
            said = "refused", None, 0, "FilterException", str(error)
        except DecodeError as error:
            said = "refused", None, 0, "NoMessage", f"The message cannot be read: {error}."
        fate, group, size_bytes, reason, description = said
        name = in_hand.status.name
        arrival = Arrival(
            key, in_hand.number, fate, group, size_bytes, lock_ms, reason, description, name,
            in_hand.enqueued_ms,
        )  # fmt: skip
        return arrival, in_hand

    def _fate(self, in_hand: InHand) -> tuple[Fate, Hashable, int, str, str]:
        """Return what becomes of a message: fate, group and size; reason and description."""
        message = in_hand.delivery.message
        route = choice(self._chain, message)
        if not isinstance(route, Route):
            in_hand.status = self._status.named(self._chain[-1].name)
            in_hand.status.filtered += 1
            text = f"No filter of the relay's route {self._route.name!r} takes the message."
            return route, None, 0, FILTERED, text
        facts, outlet = self._ways[route.name]
        status = in_hand.status = self._status.named(route.name)
        found = relayed(
            message, facts, in_hand.prepared_ms, message_bytes_max=outlet.message_bytes_max
        )
        match found:
            case Relayed(sent, left_out):
                in_hand.facts, in_hand.message, in_hand.outlet = facts, sent, outlet
                status.without_pairs += bool(left_out)
                group = (route.name, message.session_id, message.partition_key)
                return "relay", group, sent.size_bytes + OVERHEAD, "", ""
            case Returned():
                status.returned += 1
                return "complete", None, 0, "", ""
            case Expired():
                status.expired += 1
                return "expired", None, 0, "", ""
            case Unfit(reason, description):
                return "refused", None, 0, reason, description


def again(in_hand: InHand, now_ms: int) -> bool:
    """Make a message anew whose time to live goes on; return whether it is not over.

    One that came again is over, too, if it was only to be settled.
    """
    if in_hand.message is None:
        return False
    if in_hand.prepared_ms == now_ms:
        return True
    if in_hand.delivery.message.ttl_ms is None:
        return True
    assert in_hand.outlet is not None
    assert in_hand.facts is not None
    found = relayed(
        in_hand.delivery.message,
        in_hand.facts,
        now_ms,
        message_bytes_max=in_hand.outlet.message_bytes_max,
    )
    if isinstance(found, Relayed):
        in_hand.message, in_hand.prepared_ms = found.message, now_ms
    return not isinstance(found, Expired)


def number_of(delivery: RemoteDelivery) -> int:
    """Return a message's sequence number; 0 if it has none."""
    return int(delivery.message.sequence_number or 0)


def _lock_ms(message: RemoteMessage, now_ms: int) -> int:
    until_ms = message.locked_until_ms
    if until_ms is None:
        return LOCK_MS_MIN
    return lock_ms_of(int(until_ms), now_ms)
