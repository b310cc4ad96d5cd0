"""The scheduler on a real RabbitMQ: nothing early, everything in time, cancels that last."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import pamqp.commands as spec
import pytest
from pamqp.base import Frame

from bridge.machine.inbox.wheel import FACTOR, FINEST_MS, GRACE_MS
from bridge.topology import names
from bridge.wire.reply import Done, Refusal
from tests.fixtures.relay import Holds, Relay
from tests.fixtures.sidecar import Rig, SidecarProcess, numbers
from tests.fixtures.waiting import eventually

MakeRig = Callable[..., Rig]


SOON_MS = 3_000
"""Far enough ahead to be scheduled on a machine that is busy."""


def now_ms() -> int:
    """Return the wall clock."""
    return time.time_ns() // 1_000_000


def test_a_scheduled_message_arrives_at_its_time_with_a_new_number(rig: MakeRig) -> None:
    """The caller gets a number at once; the message gets another when it becomes active."""
    orders = rig()
    orders.start()
    due_ms = now_ms() + 2_000
    assert orders.schedule(b"a", b"b", due_ms=due_ms) == [1, 2]
    orders.send(b"now")

    seen = orders.take(3)

    assert [(each.body, each.number) for each in seen] == [(b"now", 3), (b"a", 4), (b"b", 5)]
    for each in seen[1:]:
        assert due_ms <= each.at_ms
        assert due_ms <= each.headers["x-opt-enqueued-time"]
    assert [each.headers["x-busbridge-scheduled"] for each in seen[1:]] == [1, 2]


def test_the_message_property_schedules_native_messages_and_sends(rig: MakeRig) -> None:
    """A header with a time, in milliseconds or as a timestamp, is as good as the call."""
    orders = rig()
    orders.start()
    due_ms = now_ms() + 1_500
    second = datetime.fromtimestamp(due_ms // 1000 + 1, UTC)
    orders.publish(b"stamp", headers={"x-opt-scheduled-enqueue-time": second})
    orders.publish(b"native", headers={"x-opt-scheduled-enqueue-time": due_ms})
    orders.send(b"door", due_ms=due_ms)

    seen = {each.body: each for each in orders.take(3)}

    assert due_ms <= seen[b"native"].at_ms
    assert due_ms <= seen[b"door"].at_ms
    assert second.timestamp() * 1000 <= seen[b"stamp"].at_ms
    assert seen[b"native"].headers["x-opt-scheduled-enqueue-time"] == due_ms


def test_a_past_time_is_now(rig: MakeRig) -> None:
    """The call returns a number all the same."""
    orders = rig()
    orders.start()

    assert orders.schedule(b"past", due_ms=now_ms() - 60_000) == [1]
    assert numbers(orders.take(1)) == [1]


def test_a_cancelled_message_never_arrives(rig: MakeRig) -> None:
    """Cancelling several is all or nothing; an unknown number has Azure's condition."""
    orders = rig()
    orders.start()
    kept, gone, also_gone = orders.schedule(b"kept", b"gone", b"too", due_ms=now_ms() + SOON_MS)

    assert Done(()) == orders.cancel(gone)
    unknown = orders.cancel(also_gone, 4711)
    assert isinstance(unknown, Refusal)
    assert unknown.condition == "com.microsoft:message-not-found"
    again = orders.cancel(gone)
    assert isinstance(again, Refusal)
    assert Done(()) == orders.cancel(also_gone)

    assert [kept] == [each.headers["x-busbridge-scheduled"] for each in orders.take(1)]
    orders.send(b"last")
    assert [each.body for each in orders.take(1)] == [b"last"]


def test_a_cancel_outlasts_a_kill(rig: MakeRig) -> None:
    """The tombstone is in the journal before the caller is told."""
    orders = rig()
    first = orders.start()
    kept, gone = orders.schedule(b"kept", b"gone", due_ms=now_ms() + 2_500)
    assert Done(()) == orders.cancel(gone)
    first.kill()
    orders.start()

    seen = orders.take(1)
    orders.send(b"last")

    assert [each.body for each in (*seen, *orders.take(1))] == [b"kept", b"last"]
    assert kept == seen[0].headers["x-busbridge-scheduled"]


def test_what_was_due_while_nobody_ran_fires_at_start(rig: MakeRig) -> None:
    """A message whose time passed during an outage is late, not lost."""
    orders = rig()
    first = orders.start()
    due_ms = now_ms() + 300
    orders.schedule(*(b"%d" % n for n in range(50)), due_ms=due_ms)
    first.kill()
    eventually(lambda: now_ms() > due_ms)
    orders.start()

    seen = orders.take(50)

    assert {b"%d" % n for n in range(50)} == {each.body for each in seen}
    assert list(range(51, 101)) == sorted(numbers(seen))


def test_ttl_counts_from_the_time_of_activation(rig: MakeRig) -> None:
    """Scheduled in one second with a TTL of ten: it expires ten seconds after it became active."""
    orders = rig()
    orders.start()
    orders.schedule(b"a", due_ms=now_ms() + 1_000, ttl_ms=10_000)

    (seen,) = orders.take(1)

    assert seen.properties.expiration == "10000"


def test_messages_move_from_coarse_buckets_to_finer_ones(rig: MakeRig) -> None:
    """With a wheel of 30 ms, 1.9 s and 2 min every level is passed; nothing is early or lost."""
    orders = rig()
    orders.start(finest_ms=30)
    begin_ms = now_ms()
    dues = [begin_ms + 2_500 + n * 37 for n in range(100)]
    for n, due_ms in enumerate(dues):
        orders.send(b"%d" % n, due_ms=due_ms)

    seen = orders.take(100)

    assert all(dues[int(each.body)] <= each.at_ms for each in seen)
    assert {b"%d" % n for n in range(100)} == {each.body for each in seen}


def test_buckets_whose_time_is_over_are_removed(rig: MakeRig) -> None:
    """No queue stays behind."""
    orders = rig()
    orders.start()
    orders.schedule(b"a", due_ms=now_ms() + SOON_MS)
    eventually(orders.buckets)
    orders.take(1)

    eventually(lambda: not orders.buckets(), within_s=120)


def the_bucket(orders: Rig) -> str:
    """Return the name of the only bucket, when it is there."""
    eventually(lambda: len(orders.buckets()) == 1)
    return orders.buckets()[0]


def is_removed(orders: Rig, bucket: str) -> bool:
    """Whether the bucket of what is due soon is removed when its time is over."""
    over_ms = SOON_MS + FINEST_MS + GRACE_MS
    end_s = time.monotonic() + over_ms / 1000
    while orders.has(bucket) and time.monotonic() < end_s:
        time.sleep(0.02)
    return not orders.has(bucket)


def is_activation(orders: Rig) -> Holds:
    """Say of a method whether it makes messages active."""
    active = names.active_exchange(orders.queue.name)
    return lambda method: isinstance(method, spec.Basic.Publish) and method.exchange == active


def is_storing(orders: Rig) -> Holds:
    """Say of a method whether it stores messages in a bucket."""
    prefix = names.bucket_prefix(orders.queue.name)
    return lambda method: (
        isinstance(method, spec.Basic.Publish) and method.routing_key.startswith(prefix)
    )


def until_held_back(orders: Rig, relay: Relay) -> tuple[SidecarProcess, str]:
    """Send what is due soon through a sidecar behind the relay, until that holds something back.

    Returns the sidecar, and the name of the bucket.
    """
    sidecar = orders.start(url=relay.url)
    orders.send(b"a", due_ms=now_ms() + SOON_MS)
    assert relay.holding.wait(120)
    return sidecar, the_bucket(orders)


def test_a_bucket_outlasts_what_is_on_its_way_into_it(rig: MakeRig) -> None:
    """A message that RabbitMQ is slow to store is stored, though the bucket's time is over."""
    orders = rig()
    with Relay(orders.url, holds=is_storing(orders)) as relay:
        _, bucket = until_held_back(orders, relay)
        assert not is_removed(orders, bucket)
        relay.release()

        assert [each.body for each in orders.take(1)] == [b"a"]
        assert is_removed(orders, bucket)


def test_messages_for_one_instant_become_active_by_their_numbers(rig: MakeRig) -> None:
    """They may come in any order: the first waits until the bucket is made, the next need not."""
    orders = rig()
    held: list[bool] = []

    def holds_first(method: Frame) -> bool:
        if held or not is_storing(orders)(method):
            return False
        held.append(True)
        return True

    with Relay(orders.url, holds=holds_first) as relay:
        orders.start(url=relay.url)
        due_ms = now_ms() + 10_000
        assert orders.schedule(b"a", due_ms=due_ms) == [1]
        assert relay.holding.wait(120)
        assert orders.schedule(b"b", due_ms=due_ms) == [2]
        bucket = the_bucket(orders)
        eventually(lambda: not orders.is_empty(bucket))
        relay.release()

        assert [each.body for each in orders.take(2)] == [b"a", b"b"]


def test_a_bucket_outlasts_what_came_out_until_that_is_active(rig: MakeRig) -> None:
    """A message that RabbitMQ was slow to make active when the bridge was killed is there still."""
    orders = rig()
    with Relay(orders.url, holds=is_activation(orders)) as relay:
        sidecar, bucket = until_held_back(orders, relay)
        assert not is_removed(orders, bucket)
        sidecar.kill()
    orders.start()

    assert [each.body for each in orders.take(1)] == [b"a"]
    assert is_removed(orders, bucket)


@pytest.mark.long
def test_a_bucket_is_opened_when_what_was_left_is_confirmed(rig: MakeRig) -> None:
    """A message that could not be made active, as the connection was lost, waits in its bucket."""
    orders = rig()
    with Relay(orders.url, holds=is_activation(orders)) as relay:
        sidecar, bucket = until_held_back(orders, relay)
        relay.cut()
        assert relay.holding.wait(120)
        assert not is_removed(orders, bucket)
        sidecar.kill()
    orders.start()

    assert [each.body for each in orders.take(1)] == [b"a"]


@pytest.mark.long
def test_a_bucket_outlasts_what_an_earlier_consumer_holds(rig: MakeRig) -> None:
    """RabbitMQ may be late to notice that a sequencer is gone: what it held is not ready yet."""
    orders = rig()
    earlier = orders.connection.channel()
    held: list[bytes] = []
    with Relay(orders.url, holds=is_activation(orders)) as relay:
        sidecar = orders.start(url=relay.url)
        orders.send(b"a", due_ms=now_ms() + SOON_MS)
        bucket = the_bucket(orders)
        assert relay.holding.wait(120)
        earlier.basic_consume(bucket, lambda *message: held.append(message[-1]))
        sidecar.kill()
    eventually(lambda: bool(orders.connection.process_data_events() or held))
    orders.start()
    assert not is_removed(orders, bucket)
    earlier.close()

    assert [each.body for each in orders.take(1)] == [b"a"]
    assert is_removed(orders, bucket)


@pytest.mark.long
def test_two_buckets_may_meet_in_one_queue_after_a_long_stop(rig: MakeRig) -> None:
    """Names of buckets come round again; what waits for its time there outlasts the older one."""
    # The second start has as long as the bucket reaches, 9.6 s: machines are slow.
    finest_ms = 150
    reach_ms = finest_ms * FACTOR
    orders = rig()
    process = orders.start(finest_ms=finest_ms)
    first_ms = now_ms() + 3_000
    second_ms = first_ms + finest_ms * names.BUCKET_NAMES
    orders.schedule(b"first", due_ms=first_ms)
    eventually(orders.buckets)
    (queue,) = orders.buckets()
    process.stop()
    orders.publish(b"second", headers={"x-opt-scheduled-enqueue-time": second_ms})
    time.sleep((second_ms - reach_ms + 100 - now_ms()) / 1000)
    orders.start(finest_ms=finest_ms)
    assert orders.take(1)[0].body == b"first"
    eventually(lambda: orders.buckets() == [queue])

    (second,) = orders.take(1)

    assert second.body == b"second"
    assert second_ms <= second.at_ms
    eventually(lambda: not orders.buckets())
