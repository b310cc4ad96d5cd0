"""The sequencer on a real RabbitMQ: numbers, times and what becomes of odd arrivals."""

from __future__ import annotations

import re
import signal
import time
import urllib.parse
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import Memory
from bridge.model.entity import Tier
from bridge.model.number import NUMBER_MAX
from bridge.topology import names
from tests.fixtures.sidecar import Rig, numbers
from tests.fixtures.waiting import eventually

MakeRig = Callable[..., Rig]


def now_ms() -> int:
    """Return the wall clock."""
    return time.time_ns() // 1_000_000


def test_native_messages_and_batches_are_numbered_in_arrival_order(rig: MakeRig) -> None:
    """Numbers begin with 1 and have no gap, whoever publishes; a batch stays together."""
    orders = rig()
    orders.start()
    before_ms = now_ms()
    for index in range(20):
        orders.publish(b"native %d" % index, message_id=str(index))
        orders.send(*(b"batch %d %d" % (index, place) for place in range(3)))

    seen = orders.take(80)

    assert list(range(1, 81)) == numbers(seen)
    expected = []
    for index in range(20):
        expected += [b"native %d" % index, *(b"batch %d %d" % (index, n) for n in range(3))]
    assert expected == [each.body for each in seen]
    times = [each.headers["x-opt-enqueued-time"] for each in seen]
    assert sorted(times) == times
    assert before_ms <= times[0] <= times[-1] <= now_ms()


def test_a_native_message_keeps_what_it_says_and_loses_what_only_a_broker_may_say(
    rig: MakeRig,
) -> None:
    """Properties and headers go through; a stale count, number or copy list does not."""
    orders = rig()
    orders.start()
    orders.publish(
        b"body",
        content_type="text/plain",
        message_id="m",
        correlation_id="c",
        reply_to="r",
        timestamp=1_700_000_000,
        type="t",
        app_id="a",
        user_id="guest",
        priority=9,
        headers={
            "mine": "kept",
            "x-mine": 5,
            "x-delivery-count": 17,
            "x-opt-sequence-number": 99,
            "x-busbridge-id": "forged",
            "CC": ["elsewhere"],
        },
    )

    (seen,) = orders.take(1)

    got = seen.properties
    assert (
        got.content_type,
        got.message_id,
        got.correlation_id,
        got.reply_to,
        got.timestamp,
        got.type,
        got.app_id,
    ) == ("text/plain", "m", "c", "r", 1_700_000_000, "t", "a")
    assert (got.user_id, got.priority, got.delivery_mode) == (None, None, 2)
    kept = {key: seen.headers[key] for key in ("mine", "x-mine", "x-opt-priority")}
    assert kept == {"mine": "kept", "x-mine": 5, "x-opt-priority": 9}
    assert seen.headers["x-basic-user-id"] == "guest"
    assert seen.number == 1
    assert {"x-delivery-count", "CC"}.isdisjoint(seen.headers)
    assert seen.headers["x-busbridge-id"] != "forged"


def test_a_header_that_a_stream_cannot_take_stops_nobody(rig: MakeRig) -> None:
    """A decimal would close the connection, again and again; it arrives as a double."""
    orders = rig()
    orders.start()
    orders.publish(b"poison", headers={"price": Decimal(12), "list": [Decimal(3)]})
    orders.publish(b"next")

    seen = orders.take(2)

    assert [each.body for each in seen] == [b"poison", b"next"]
    assert (seen[0].headers["price"], seen[0].headers["list"]) == (12, [3])
    assert not isinstance(seen[0].headers["price"], Decimal)


def test_an_exchange_bound_to_the_front_door_leads_to_its_entity(rig: MakeRig) -> None:
    """A user's own exchange may feed the entity."""
    orders = rig()
    orders.start()
    orders.channel.exchange_declare("shop", "topic")
    orders.channel.exchange_bind(names.front(orders.queue.name), "shop", "orders.#")
    orders.channel.basic_publish("shop", "orders.new", b"through", mandatory=True)

    assert numbers(orders.take(1)) == [1]


def test_the_effective_ttl_is_the_smaller_one(rig: MakeRig) -> None:
    """The entity's default is default and cap; it is the expiration and the header."""
    orders = rig(default_message_time_to_live_ms=60_000)
    orders.start()
    orders.publish(b"own", expiration="5000")
    orders.publish(b"none")
    orders.send(b"longer", ttl_ms=600_000)
    orders.send(b"shorter", ttl_ms=7_000)

    seen = orders.take(4)

    assert [each.properties.expiration for each in seen] == ["5000", "60000", "60000", "7000"]
    assert [each.headers["x-opt-time-to-live"] for each in seen] == [5_000, 60_000, 60_000, 7_000]


def test_a_ttl_that_rabbitmq_cannot_hold_is_kept_in_its_header_only(rig: MakeRig) -> None:
    """Azure's default TTL is for ever; one of 100 years is in no expiration."""
    century_ms = 100 * 365 * 86_400_000
    orders = rig()
    orders.start()
    orders.send(b"for ever")
    orders.send(b"a century", ttl_ms=century_ms)

    for_ever, century = orders.take(2)

    assert for_ever.properties.expiration is None
    assert "x-opt-time-to-live" not in for_ever.headers
    assert century.properties.expiration is None
    assert century.headers["x-opt-time-to-live"] == century_ms


def test_the_basic_tier_caps_every_ttl_at_14_days(rig: MakeRig) -> None:
    """14 days are the Basic tier's default and maximum."""
    orders = rig()
    orders.start(tier="Basic")
    orders.send(b"for ever")

    (seen,) = orders.take(1)

    assert seen.headers["x-opt-time-to-live"] == 14 * 86_400_000


def test_numbers_go_on_after_a_kill(rig: MakeRig) -> None:
    """The next sequencer begins where the journal ends."""
    orders = rig()
    first = orders.start()
    orders.send(*(b"%d" % n for n in range(5)))
    before = orders.take(5)
    assert numbers(before) == [1, 2, 3, 4, 5]
    first.kill()
    orders.send(b"meanwhile")
    orders.start()
    orders.send(b"later")

    assert numbers(orders.take(2, before_kill=before)) == [6, 7]


def test_a_standby_takes_over_at_once(rig: MakeRig) -> None:
    """Two sidecars stand by one RabbitMQ; when the active one is killed the other goes on."""
    orders = rig()
    pair = [orders.start(), orders.start()]
    orders.send(b"1")
    due_ms = now_ms() + 1_500
    orders.schedule(b"scheduled", due_ms=due_ms)
    before = orders.take(1)
    assert numbers(before) == [1]
    pair[0].kill()

    (seen,) = orders.take(1, before_kill=before)

    assert (seen.body, seen.number) == (b"scheduled", 3)
    assert due_ms <= seen.at_ms
    orders.send(b"last")
    assert numbers(orders.take(1)) == [4]


def test_the_number_after_the_largest_is_zero(rig: MakeRig) -> None:
    """A counter near the end of its range rolls over."""
    orders = rig()
    sequencer = Sequencer(orders.queue, Tier.STANDARD, Memory(counters=[NUMBER_MAX - 2]))
    for entry in sequencer.snapshot(bytes(16), "", 0):
        headers = {"x-busbridge-entry": "snapshot"}
        properties = pika.BasicProperties(headers=headers, delivery_mode=2)
        orders.channel.basic_publish("", entry.routing_key, entry.body, properties)
    orders.start()
    orders.send(*(b"%d" % n for n in range(5)))

    assert numbers(orders.take(5)) == [NUMBER_MAX - 1, NUMBER_MAX, 0, 1, 2]


def test_a_partitioned_entity_counts_in_each_partition(rig: MakeRig) -> None:
    """The top 16 bits are the partition; equal keys meet in one, the rest goes round."""
    orders = rig(enable_partitioning=True)
    orders.start()
    for _ in range(3):
        orders.send(b"keyed", key=b"customer 7")
    orders.send(*(b"%d" % n for n in range(32)))

    seen = numbers(orders.take(35))

    partition = seen[0] >> 48
    assert [(partition << 48) + n for n in (1, 2, 3)] == seen[:3]
    assert set(range(16)) == {each >> 48 for each in seen[3:]}
    by_partition: dict[int, list[int]] = {}
    for each in seen:
        by_partition.setdefault(each >> 48, []).append(each & (2**48 - 1))
    assert all(list(range(1, len(each) + 1)) == each for each in by_partition.values())


def test_what_expires_in_the_inbox_is_dead_lettered_if_the_entity_says_so(rig: MakeRig) -> None:
    """While no sequencer runs a native message may expire; it is numbered, and is not lost."""
    orders = rig(dead_lettering_on_message_expiration=True)
    orders.publish(b"late", expiration="1", headers={"mine": "kept"})
    orders.publish(b"in time", expiration="60000")
    eventually(lambda: not orders.is_empty(names.EXPIRED_UNNUMBERED))
    orders.start()

    (dead,) = orders.take(1, queue=names.dead_letter_queue(orders.queue.name))
    (alive,) = orders.take(1)

    assert (dead.body, alive.body) == (b"late", b"in time")
    assert dead.headers["DeadLetterReason"] == "TTLExpiredException"
    assert dead.headers["mine"] == "kept"
    assert "x-death" not in dead.headers
    assert dead.properties.expiration is None
    assert {1, 2} == {dead.number, alive.number}


def test_what_expires_in_the_inbox_is_dropped_otherwise(rig: MakeRig) -> None:
    """It has a number of its own all the same."""
    orders = rig()
    orders.publish(b"late", expiration="1")
    eventually(lambda: not orders.is_empty(names.EXPIRED_UNNUMBERED))
    orders.start()
    handed: list[int] = []

    def one_is_missing() -> bool:
        handed.extend(orders.schedule(b"after", due_ms=now_ms() + 60_000))
        return handed[-1] == len(handed) + 1

    eventually(one_is_missing)

    assert orders.is_empty(names.EXPIRED_UNNUMBERED)
    assert orders.is_empty(names.dead_letter_queue(orders.queue.name))
    assert orders.is_empty()


def test_a_malformed_envelope_is_dead_lettered_and_blocks_nobody(rig: MakeRig) -> None:
    """It goes to the dead-letter queue with a reason; what follows goes on."""
    orders = rig()
    orders.start()
    orders.publish(b"\x01garbage", headers={"x-busbridge-kind": "envelope"}, delivery_mode=2)
    orders.send(b"fine")

    assert [each.body for each in orders.take(1)] == [b"fine"]
    (dead,) = orders.take(1, queue=names.dead_letter_queue(orders.queue.name))
    assert (dead.body, dead.headers["DeadLetterReason"]) == (b"\x01garbage", "MalformedEnvelope")


@pytest.mark.long
def test_large_messages_do_not_fill_the_memory(rig: MakeRig) -> None:
    """When too much is sent ahead, less is sent ahead from then on; nothing is lost or doubled."""
    orders = rig(max_message_size_kb=102_400)
    body = bytes(4 << 20)
    for index in range(150):
        orders.publish(body, message_id=str(index))
    sidecar = orders.start(tier="Premium")

    seen = orders.take(150, within_s=120)

    assert numbers(seen) == list(range(1, 151))
    assert [each.properties.message_id for each in seen] == [str(index) for index in range(150)]
    assert sidecar.memory_peak_mb() < 450  # all of them would take 600


def test_a_stop_while_large_messages_arrive_doubles_nothing(rig: MakeRig) -> None:
    """Though more comes than may wait: what was published is confirmed and acked before the end."""
    orders = rig(max_message_size_kb=102_400)
    sidecar = orders.start(tier="Premium")
    orders.send(b"first")
    orders.take(1)
    sidecar.process.send_signal(signal.SIGSTOP)
    for index in range(40):
        orders.publish(bytes(4 << 20), message_id=str(index))
    sidecar.process.send_signal(signal.SIGCONT)
    eventually(lambda: not orders.is_empty())
    sidecar.stop()
    orders.start(tier="Premium")

    seen = orders.take(40)

    assert numbers(seen) == list(range(2, 42))
    assert [each.properties.message_id for each in seen] == [str(index) for index in range(40)]
    assert orders.is_empty()


def test_what_a_full_queue_refused_is_numbered_once(rig: MakeRig) -> None:
    """Also when it is taken at last by a life of the sequencer that ends as more is refused."""
    orders = rig()
    due_ms = now_ms() + 3_600_000
    bucket = make_full_bucket(orders, due_ms)
    fillers = fill(orders, names.active_queue(orders.queue.name))
    orders.publish(b"now")
    orders.publish(b"later", headers={"x-opt-scheduled-enqueue-time": due_ms})
    entries = follow_journal(orders)
    orders.start()
    eventually(lambda: b"later" in entries())

    orders.take(fillers)
    (seen,) = orders.take(1)
    unlimit(orders, bucket)
    orders.send(b"after")
    (after,) = orders.take(1)

    assert (seen.body, seen.number, after.body, after.number) == (b"now", 2, b"after", 4)


def test_what_is_on_its_way_when_something_is_refused_is_published_once(rig: MakeRig) -> None:
    """The life of the sequencer ends with the refusal, but not before all the rest is settled."""
    orders = rig(max_message_size_kb=102_400)
    queue = names.active_queue(orders.queue.name)
    due_ms = now_ms() + 3_600_000
    bucket = make_full_bucket(orders, due_ms)
    fillers = fill(orders, queue)
    orders.publish(b"later", headers={"x-opt-scheduled-enqueue-time": due_ms})
    for index in range(20):
        orders.publish(bytes(1 << 20), message_id=str(index))
    entries = follow_journal(orders)
    orders.start(tier="Premium")
    eventually(lambda: len(entries()) > 20)

    unlimit(orders, queue)
    orders.take(fillers)
    # What was refused before there was room comes after what was not.
    assert sorted(numbers(orders.take(20))) == list(range(3, 23))
    unlimit(orders, bucket)
    orders.send(b"after")
    (after,) = orders.take(1)

    assert (after.body, after.number) == (b"after", 23)


def make_full_bucket(orders: Rig, due_ms: int) -> str:
    """Have the bucket of this time made by the message with number 1, and full; returns it."""
    sidecar = orders.start()
    orders.schedule(b"makes the bucket", due_ms=due_ms)
    eventually(orders.buckets)
    (bucket,) = orders.buckets()
    eventually(lambda: not orders.is_empty(bucket))
    sidecar.stop()
    fill(orders, bucket)
    return bucket


def follow_journal(orders: Rig) -> Callable[[], list[bytes]]:
    """Return what tells the bodies of all entries that are written from now on."""
    bodies: list[bytes] = []

    def on_entry(channel: BlockingChannel, method: Any, _properties: object, body: bytes) -> None:
        bodies.append(body)
        channel.basic_ack(method.delivery_tag)

    def entries() -> list[bytes]:
        orders.connection.process_data_events(0)
        return bodies

    arguments = {"x-stream-offset": "next"}
    orders.channel.basic_qos(prefetch_count=100)
    orders.channel.basic_consume(names.journal(orders.queue.name), on_entry, arguments=arguments)
    return entries


def fill(orders: Rig, queue: str) -> int:
    """Let a queue have one message at most, and publish until it refuses; returns how many."""
    definition = {"max-length": 1, "overflow": "reject-publish"}
    policy = {"pattern": f"^{re.escape(queue)}$", "definition": definition, "priority": 2_000}
    orders.broker.management("PUT", _policy_path(orders, queue), policy)
    filled = 0

    def is_full() -> bool:
        nonlocal filled
        try:
            orders.channel.basic_publish("", queue, b"filler")
        except pika.exceptions.NackError:
            return True
        filled += 1
        return False

    eventually(is_full)
    return filled


def unlimit(orders: Rig, queue: str) -> None:
    """Let a queue have any number of messages again."""
    orders.broker.management("DELETE", _policy_path(orders, queue))


def _policy_path(orders: Rig, queue: str) -> str:
    vhost = orders.url.rsplit("/", 1)[1]
    return f"/api/policies/{vhost}/{urllib.parse.quote('full ' + queue, safe='')}"


def test_more_messages_than_a_window_pass_in_order(rig: MakeRig) -> None:
    """Batches that are larger than what may be in flight go through, and snapshots between them."""
    orders = rig()
    sidecar = orders.start()
    for batch in range(4):
        orders.send(*(b"%d" % (batch * 3_000 + n) for n in range(3_000)))

    seen = orders.take(12_000)

    assert [b"%d" % n for n in range(12_000)] == [each.body for each in seen]
    assert list(range(1, 12_001)) == numbers(seen)
    sidecar.kill()
    orders.start()
    orders.send(b"after")
    assert numbers(orders.take(1, before_kill=seen)) == [12_001]
