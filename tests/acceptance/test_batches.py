"""Batches over every door: their size, and which messages one may have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.lanes import LANES, Lane, lane_of
from tests.acceptance.rest import Rest
from tests.acceptance.sdk import expect_silence, take

ENTITIES: dict[str, dict[str, object]] = {
    "partitioned": {"EnablePartitioning": True},
    "sessions": {"EnablePartitioning": True, "RequiresSession": True},
    "duplicates": {"EnablePartitioning": True, "RequiresDuplicateDetection": True},
    "many": {},
}

MANY = 3_000


@pytest.fixture(scope="module", params=LANES)
def lane(request: pytest.FixtureRequest, bridge: Any) -> Iterator[Lane]:
    """The Azure SDK, and the library on pika and on aio-pika."""
    with lane_of(request.param, bridge) as made:
        yield made


def refused(lane: Lane, queue: str, *messages: Any) -> None:
    """Send a batch that is refused, in words that say why."""
    with (
        lane.client.get_queue_sender(queue) as sender,
        pytest.raises(lane.errors.ServiceBusError, match="distinct SessionId"),
    ):
        sender.send_messages(list(messages))


def test_a_batch_of_several_partition_keys_is_refused(lane: Lane) -> None:
    """As a whole; one of one key is taken."""
    a, b, none = (lane.message("x", partition_key=key) for key in ("a", "b", None))
    refused(lane, "partitioned", a, b)
    refused(lane, "partitioned", a, none)
    with lane.client.get_queue_sender("partitioned") as sender:
        sender.send_messages([a, a])
    with lane.client.get_queue_receiver("partitioned") as receiver:
        assert [each.partition_key for each in take(receiver, 2)] == ["a", "a"]
        expect_silence(receiver, for_s=0.3)


def test_a_batch_of_one_session_whatever_its_spelling(lane: Lane) -> None:
    """Session ids have no case; two sessions are two batches."""
    name = f"session-{lane.name}"
    lower, upper = (lane.message("x", session_id=each) for each in (name, name.upper()))
    refused(lane, "sessions", lower, lane.message("x", session_id="other"))
    with lane.client.get_queue_sender("sessions") as sender:
        sender.send_messages([lower, upper])
    with lane.client.get_queue_receiver("sessions", session_id=name) as receiver:
        assert [each.session_id for each in take(receiver, 2)] == [name, name.upper()]


def test_a_batch_of_several_ids_is_refused_where_they_choose_the_partition(lane: Lane) -> None:
    """A message alone is taken."""
    one, other = (
        lane.message("x", message_id=f"{each}-{lane.name}", partition_key="k") for each in "ab"
    )
    refused(lane, "duplicates", one, other)
    with lane.client.get_queue_sender("duplicates") as sender:
        sender.send_messages([one])
        sender.send_messages(other)
    with lane.client.get_queue_receiver("duplicates") as receiver:
        assert len({each.message_id for each in take(receiver, 2)}) == 2


def test_a_batch_of_many_messages_keeps_their_order(lane: Lane) -> None:
    """It is numbered in parts, one behind the other."""
    with lane.client.get_queue_sender("many") as sender:
        batch = sender.create_message_batch()
        for number in range(MANY):
            batch.add_message(lane.message(str(number)))
        sender.send_messages(batch)
        sender.send_messages(lane.message("last"))
    found: list[str] = []
    with lane.client.get_queue_receiver("many", receive_mode="receiveanddelete") as receiver:
        while len(found) <= MANY:
            messages = receiver.receive_messages(1_000, max_wait_time=120)
            assert messages, f"{len(found)} of {MANY + 1} came"
            found += map(str, messages)
    assert found == [*map(str, range(MANY)), "last"]


def test_http_refuses_the_same_batches(bridge: Any) -> None:
    """By 400; nothing of one is stored."""

    def batch(*keys: str) -> list[dict[str, Any]]:
        return [{"Body": "x", "BrokerProperties": {"PartitionKey": key}} for key in keys]

    rest = Rest(bridge)
    answer = rest.send_batch("partitioned", batch("a", "b"))
    assert (answer.status, b"distinct SessionId" in answer.body) == (400, True)
    assert rest.send_batch("partitioned", batch("a", "a")).status == 201
    for _ in range(2):
        assert rest.take("partitioned").broker["PartitionKey"] == "a"
    assert rest.take("partitioned", timeout_s=0).status == 204
