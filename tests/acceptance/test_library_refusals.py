"""What a client of the library publishes and RabbitMQ refuses: nothing else of it ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.client.management import ServiceBusAdministrationClient
from tests.acceptance.lanes import LANES, Lane, lane_of
from tests.acceptance.sdk import take
from tests.fixtures.broker import Broker

ENTITIES: dict[str, dict[str, Any]] = {
    f"{name}-{lane}": {} for name in ("sent", "scheduled", "orders", "early") for lane in LANES[1:]
}
ENTITIES |= {f"held-{lane}": {"RequiresSession": True} for lane in LANES[1:]}


@contextmanager
def held(lane: Lane) -> Iterator[Any]:
    """A receiver of a session, which is held to the end."""
    queue = f"held-{lane.name}"
    lane.send(queue, "one", session_id="s")
    with lane.client.get_queue_receiver(queue, session_id="s") as receiver:
        yield receiver
        receiver.session.renew_lock()
        assert [str(each) for each in take(receiver)] == ["one"]


@pytest.mark.parametrize("lane_name", LANES[1:])
def test_an_entity_that_was_just_deleted(bridge: Any, lane_name: str) -> None:
    """It is not there, though its definition is known; sessions are held on. Made anew, it is."""
    sent, scheduled = f"sent-{lane_name}", f"scheduled-{lane_name}"
    later = datetime.now(UTC) + timedelta(hours=1)
    with (
        lane_of(lane_name, bridge) as lane,
        ServiceBusAdministrationClient(bridge.amqp_url) as admin,
        held(lane),
        lane.client.get_queue_sender(scheduled) as sender,
    ):
        lane.send(sent, "before")
        for queue in sent, scheduled:
            admin.delete_queue(queue)
        with pytest.raises(lane.errors.MessagingEntityNotFoundError, match=sent):
            lane.send(sent, "after")
        with pytest.raises(lane.errors.MessagingEntityNotFoundError, match=scheduled):
            sender.schedule_messages(lane.message("after"), later)
        admin.create_queue(sent)
        lane.send(sent, "anew")
        with lane.client.get_queue_receiver(sent) as receiver:
            assert [str(each) for each in take(receiver)] == ["anew"]


@pytest.mark.parametrize("lane_name", LANES[1:])
def test_what_is_no_number(bridge: Any, lane_name: str) -> None:
    """Nothing is asked; sessions are held on."""
    with (
        lane_of(lane_name, bridge) as lane,
        held(lane) as receiver,
        lane.client.get_queue_sender(f"held-{lane_name}") as sender,
    ):
        for number, error in ((1 << 63, ValueError), ("1", TypeError), (1.5, TypeError)):
            with pytest.raises(error):
                sender.cancel_scheduled_messages([number])
            with pytest.raises(error):
                receiver.receive_deferred_messages([number])
            with pytest.raises(error):
                receiver.peek_messages(sequence_number=number)


@pytest.mark.parametrize("lane_name", LANES[1:])
def test_a_time_before_the_year_1(bridge: Any, lane_name: str) -> None:
    """East of Greenwich there is one. It is refused, sent or scheduled; sessions are held on."""
    early = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    last = datetime.max.replace(tzinfo=UTC)
    queue = f"early-{lane_name}"
    with (
        lane_of(lane_name, bridge) as lane,
        held(lane),
        lane.client.get_queue_sender(queue) as sender,
        lane.client.get_queue_receiver(queue) as receiver,
    ):
        with pytest.raises(lane.errors.ServiceBusError, match="before the year 1"):
            sender.schedule_messages(lane.message("x"), early)
        with pytest.raises(lane.errors.ServiceBusError, match="before the year 1"):
            lane.send(queue, "x", scheduled_enqueue_time_utc=early)
        (number,) = sender.schedule_messages(lane.message("last"), last)
        (message,) = receiver.peek_messages()
        assert message.sequence_number == number
        assert message.scheduled_enqueue_time_utc.year == 9999


@pytest.mark.parametrize("lane_name", LANES[1:])
def test_an_entity_that_the_user_may_not_write_to(
    bridge: Any, broker: Broker, lane_name: str
) -> None:
    """The error names its exchange; sessions are held on, and other entities are sent to."""
    queue, user = f"orders-{lane_name}", f"reader-{lane_name}"
    vhost = bridge.amqp_url.rpartition("/")[2]
    rights = {"configure": "", "write": f"^(?!{queue}$).*", "read": ".*"}
    broker.management("PUT", f"/api/users/{user}", {"password": "secret", "tags": ""})
    broker.management("PUT", f"/api/permissions/{vhost}/{user}", rights)
    place = SimpleNamespace(amqp_url=f"amqp://{user}:secret@{bridge.amqp_url.rpartition('@')[2]}")
    refused = re.escape(f"exchange '{queue}'")
    try:
        with lane_of(lane_name, place) as lane, held(lane):
            with pytest.raises(lane.errors.ServiceBusAuthorizationError, match=refused):
                lane.send(queue, "refused")
            lane.send(f"held-{lane_name}", "two", session_id="s")
    finally:
        broker.management("DELETE", f"/api/users/{user}")
