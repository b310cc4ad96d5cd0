"""Send, schedule, cancel, expiry, status: the engine's other verbs on a real RabbitMQ."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pika
import pytest
import pytest_asyncio

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.management.live import HttpBroker
from bridge.engine.api import Abandon, DeadLetter
from bridge.engine.clock import now_ms
from bridge.gateway.links.messages import message_of
from bridge.message.envelopes import Outgoing, encode
from bridge.model import entity as model
from bridge.model.entity import EntityStatus
from bridge.model.errors import (
    ArgumentError,
    EntityConflict,
    EntityDisabled,
    EntityNotFound,
    MessageNotFound,
    MessageSizeExceeded,
    NotAllowed,
    ServiceBusError,
)
from bridge.model.name import EntityPath
from bridge.topology import definitions, names
from bridge.topology.resources import Policy, Value
from bridge.wire import headers
from bridge.wire.basic import Properties, text
from bridge.wire.record import Record
from tests.fixtures.broker import Broker
from tests.fixtures.listed import listed
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing

QUEUES = (
    model.Queue(name="orders", lock_duration_ms=5_000, dead_lettering_on_message_expiration=True),
    model.Queue(name="dropping"),
    model.Queue(name="sessions", requires_session=True),
    model.Queue(name="off", status=EntityStatus.DISABLED),
    model.Queue(name="no-sends", status=EntityStatus.SEND_DISABLED),
    model.Queue(name="no-receives", status=EntityStatus.RECEIVE_DISABLED),
    model.Queue(name="small", max_message_size_kb=1),
)


OF_EVERY_KIND = pytest.mark.parametrize("queues", [QUEUES], ids=["queues of every kind"])


@pytest.fixture
def queues() -> tuple[model.Queue, ...]:
    """What the bridge has, unless a test is `OF_EVERY_KIND`."""
    return QUEUES[:1]


@pytest_asyncio.fixture
async def door(
    endpoint: Endpoint, broker: Broker, queues: tuple[model.Queue, ...]
) -> AsyncIterator[Door]:
    """A bridge with queues."""
    async with open_door(endpoint, broker.management_url, *queues) as opened:
        yield opened


async def test_a_batch_is_stored_as_one(door: Door) -> None:
    """Its messages have consecutive numbers, in their order."""
    await door.namespace.send(door.path, [outgoing(str(number)) for number in range(100)])
    received = await door.client().receive(100)
    assert [each.sequence_number for each in received] == list(range(1, 101))
    assert [each.record.body for each in received] == [b"%d" % number for number in range(100)]
    await door.complete(*received)


async def test_a_scheduled_message_has_a_number_at_once_and_comes_at_its_time(door: Door) -> None:
    """It becomes active at its time, under a new number."""
    due_ms = now_ms() + 1_500
    numbers = await door.namespace.schedule(
        door.path, [outgoing("later", scheduled_ms=due_ms), outgoing("too", scheduled_ms=due_ms)]
    )
    assert numbers == [1, 2]
    received = await door.client().receive(2)
    assert now_ms() >= due_ms
    assert [each.sequence_number for each in received] == [3, 4]
    assert all(each.enqueued_ms >= due_ms for each in received)
    await door.complete(*received)


@OF_EVERY_KIND
async def test_what_holds_nothing_stores_nothing(door: Door) -> None:
    """An empty batch, schedule or cancel is done at once, and takes no number."""
    await door.namespace.send(door.path, [])
    assert await door.namespace.schedule(door.path, []) == []
    await door.namespace.cancel_scheduled(door.path, [])
    with pytest.raises(EntityDisabled):
        await door.namespace.send(EntityPath("off"), [])
    await door.send("a")
    (received,) = await door.client().receive()
    assert received.sequence_number == 1
    await door.complete(received)


async def test_an_update_keeps_the_entity_s_rules(door: Door) -> None:
    """A `Config.json` that names the queue has no place for them, and deletes nothing."""
    rule = model.AuthorizationRule(name="r", primary_key="k", rights=frozenset({model.Right.SEND}))
    guarded = model.Queue(name="orders", authorization_rules=(rule,))
    for queue in (guarded, model.Queue(name="Orders", lock_duration_ms=30_000)):
        await door.namespace.apply(model.Namespace(queues=(queue,)))
    found = door.namespace.entity(door.path)
    assert found.lock_duration_ms == 30_000
    assert found.authorization_rules == (rule,)


async def test_a_cancelled_message_never_comes(door: Door) -> None:
    """Cancelling removes it; a number that is none is Azure's error, and changes nothing."""
    due_ms = now_ms() + 2_000
    first, second = await door.namespace.schedule(
        door.path, [outgoing("a", scheduled_ms=due_ms), outgoing("b", scheduled_ms=due_ms)]
    )
    with pytest.raises(MessageNotFound):
        await door.namespace.cancel_scheduled(door.path, [second, 999])
    await door.namespace.cancel_scheduled(door.path, [first])
    (received,) = await door.client().receive()
    assert received.record.body == b"b"
    await door.complete(received)


async def expired(door: Door, path: EntityPath) -> None:
    """Send one message that expires and one that stays; wait until the first has expired."""
    meters = door.sidecar.meters[path.entity]
    begun = meters.arrivals
    await door.namespace.send(path, [outgoing("short", ttl_ms=300), outgoing("long")])
    await until(lambda: meters.arrivals > begun and not meters.in_flight)
    await asyncio.sleep(0.4)


async def test_an_expired_message_is_dead_lettered_and_never_delivered(door: Door) -> None:
    """The reason is Azure's; the TTL counts from the enqueued time."""
    await expired(door, door.path)
    (received,) = await door.client().receive()
    assert received.record.body == b"long"
    (dead,) = await door.client(path=door.dead_letters).receive()
    assert dead.record.body == b"short"
    reason = dead.dead_letter or _reason(dead.record)
    assert reason == ("TTLExpiredException", "The message expired and was dead lettered.")
    await door.complete(dead, path=door.dead_letters)


def _reason(record: Record) -> tuple[str, str]:
    table = record.properties.headers or {}
    fields = (table[headers.DEAD_LETTER_REASON], table[headers.DEAD_LETTER_ERROR_DESCRIPTION])
    reason, description = (bytes(field[1]).decode() for field in fields)  # type: ignore[call-overload]
    return reason, description


@OF_EVERY_KIND
async def test_an_expired_message_is_dropped_where_the_entity_says_so(
    door: Door, confirming: Channel
) -> None:
    """Without dead-lettering on expiration it is gone."""
    path = EntityPath("dropping")
    await expired(door, path)
    (received,) = await door.client(path=path).receive()
    assert received.record.body == b"long"
    state = await confirming.declarations.declare_queue("dropping/$deadletterqueue", passive=True)
    assert state.messages == 0


async def test_a_locked_message_outlives_its_expiry(door: Door) -> None:
    """It can be completed; abandoned it expires at once."""
    await door.namespace.send(
        door.path, [outgoing("kept", ttl_ms=2_500), outgoing("given up", ttl_ms=2_500)]
    )
    kept, given_up = await door.client().receive(2)
    await asyncio.sleep(2.7)
    await door.complete(kept)
    assert given_up.lock_token is not None
    await door.namespace.settle(door.path, given_up.lock_token, Abandon())
    (dead,) = await door.client(path=door.dead_letters).receive()
    assert dead.record.body == b"given up"
    await door.complete(dead, path=door.dead_letters)


async def test_what_is_published_past_the_front_door_goes_back_through_it(
    door: Door, pika_connection: pika.BlockingConnection
) -> None:
    """A native message straight in the queue is delivered with a number, and only once."""
    channel = pika_connection.channel()
    channel.confirm_delivery()
    properties = pika.BasicProperties(headers={"x-opt-sequence-number": 77, "colour": "red"})
    channel.basic_publish("", "orders", b"past", properties)
    channel.basic_publish("orders", "", b"front")
    client = door.client()
    received = await client.receive(2)
    assert sorted(each.sequence_number for each in received) == [1, 2]
    assert sorted(each.record.body for each in received) == [b"front", b"past"]
    past = next(each for each in received if each.record.body == b"past")
    assert (past.record.properties.headers or {})["colour"] == text("red")
    await door.complete(*received)


async def test_what_expires_past_the_front_door_is_a_numbered_dead_letter(
    door: Door, pika_connection: pika.BlockingConnection
) -> None:
    """RabbitMQ dead-letters it before anybody could number it."""
    channel = pika_connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", "orders", b"past", pika.BasicProperties(expiration="1"))
    (dead,) = await door.client(path=door.dead_letters).receive()
    assert dead.record.body == b"past"
    assert dead.sequence_number == 1
    assert (dead.dead_letter or _reason(dead.record))[0] == "TTLExpiredException"
    await door.complete(dead, path=door.dead_letters)


async def test_a_dead_letter_with_numbers_that_amqp_has_not_stops_nobody(
    door: Door, confirming: Channel
) -> None:
    """Somebody published it straight into the dead-letter queue; it is one without a number."""
    forged = {headers.SEQUENCE_NUMBER: ("T", 2**63 + 5), headers.ENQUEUED_TIME: ("T", 2**64 - 1)}
    raw = Properties(headers=forged).encode()
    await confirming.publisher.publish_confirmed("", "orders/$deadletterqueue", raw, b"forged")
    (dead,) = await door.client(path=door.dead_letters).receive()
    assert message_of(dead)
    assert (dead.record.body, dead.sequence_number, dead.enqueued_ms) == (b"forged", 0, 0)
    await door.complete(dead, path=door.dead_letters)


async def test_what_failed_past_the_front_door_begins_anew(
    door: Door, pika_connection: pika.BlockingConnection
) -> None:
    """Bridges that died while they held it used its deliveries up; no client had it."""
    channel = pika_connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", "orders", b"past")
    for _ in range(model.Queue(name="orders").max_delivery_count):
        method, _, body = channel.basic_get("orders")
        assert method is not None
        assert body == b"past"
        channel.basic_reject(method.delivery_tag)
    door.client(path=door.dead_letters).receiver.add_credit(1)
    (received,) = await door.client().receive()
    assert (received.record.body, received.sequence_number) == (b"past", 1)
    assert received.delivery_count == 0
    await door.complete(received)


async def test_a_second_copy_is_dropped(
    door: Door, pika_connection: pika.BlockingConnection
) -> None:
    """A message that stands in the queue twice, with one stamp, is delivered once."""
    await door.send("a")
    client = door.client()
    (received,) = await client.receive()
    stamp = received.record.properties.headers
    assert stamp is not None
    copy = pika.BasicProperties(headers={name: value for name, (_, value) in stamp.items()})
    channel = pika_connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("orders/$active", "", b"a", copy)
    await door.send("b")
    (following,) = await client.receive()
    assert following.record.body == b"b"
    await door.complete(received, following)
    channel.basic_publish("orders/$active", "", b"a", copy)
    client.receiver.add_credit(1)
    await until(lambda: door.namespace.counters.second_copies == 2)
    assert client.received == []


async def test_a_second_copy_of_a_dead_letter_is_dropped(
    door: Door, pika_connection: pika.BlockingConnection
) -> None:
    """A successor publishes again what it does not know to be stored, whatever became of it."""
    await door.send("a")
    client = door.client()
    (received,) = await client.receive()
    stamp = received.record.properties.headers
    assert stamp is not None
    assert received.lock_token is not None
    await door.namespace.settle(door.path, received.lock_token, DeadLetter())
    copy = pika.BasicProperties(headers={name: value for name, (_, value) in stamp.items()})
    channel = pika_connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("orders/$active", "", b"a", copy)
    await door.send("b")
    (following,) = await client.receive()
    assert following.record.body == b"b"
    await door.complete(following)
    assert door.namespace.counters.second_copies == 1


async def test_a_dead_letter_that_an_operator_moves_back_is_delivered(
    door: Door, pika_connection: pika.BlockingConnection
) -> None:
    """It has left the queue, and is not settled; completed, its copies are dropped."""
    await door.send("a")
    client = door.client()
    (received,) = await client.receive()
    assert received.lock_token is not None
    await door.namespace.settle(door.path, received.lock_token, DeadLetter())
    channel = pika_connection.channel()
    channel.confirm_delivery()
    dead = names.dead_letter_queue("orders")

    def is_there() -> bool:
        return bool(channel.queue_declare(dead, passive=True).method.message_count)

    await until(is_there)
    method, properties, body = channel.basic_get(dead, auto_ack=True)
    assert method is not None
    for _ in range(2):
        channel.basic_publish("orders/$active", "", body, properties)
    (again,) = await client.receive()
    assert (again.record.body, again.sequence_number) == (b"a", received.sequence_number)
    client.receiver.add_credit(1)
    await door.complete(again)
    await until(lambda: door.namespace.counters.second_copies == 1)
    assert client.received == []


async def test_an_entity_keeps_its_incarnation_and_one_made_anew_has_another(
    endpoint: Endpoint, broker: Broker, door: Door, pika_connection: pika.BlockingConnection
) -> None:
    """Numbers and identities of one say nothing of the other."""
    (before,) = [
        each for each in door.namespace.directory.namespace.queues if each.name == "orders"
    ]
    assert before.incarnation
    changed = replace(before, incarnation="", max_delivery_count=before.max_delivery_count + 1)
    await door.namespace.apply(model.Namespace(queues=(changed,)))
    after = door.namespace.entity(door.path)
    kept = replace(changed, incarnation=before.incarnation)
    assert after == replace(kept, updated_at=after.updated_at)
    assert after.updated_at > before.updated_at >= after.created_at
    client = door.client()
    await door.send("a")
    (received,) = await client.receive()
    await door.complete(received)
    stamp = received.record.properties.headers
    assert stamp is not None
    anew = replace(after, incarnation="another")
    async with HttpBroker(endpoint, broker.management_url) as live:
        name = definitions.parameter_name(endpoint.vhost, "orders")
        await live.put_global_parameter(name, definitions.to_json(anew))
    await door.namespace.directory.read()
    copy = pika.BasicProperties(headers={name: value for name, (_, value) in stamp.items()})
    channel = pika_connection.channel()
    channel.basic_publish("orders/$active", "", b"a", copy)
    (again,) = await client.receive()
    assert again.record.body == b"a"


@OF_EVERY_KIND
@pytest.mark.parametrize(
    ("entity", "sends", "receives"),
    [("off", False, False), ("no-sends", False, True), ("no-receives", True, False)],
)
async def test_a_status_forbids_what_it_says(
    door: Door, entity: str, sends: bool, receives: bool
) -> None:
    """Disabled stops both, SendDisabled sends, ReceiveDisabled receives."""
    path = EntityPath(entity)
    if sends:
        await door.namespace.send(path, [outgoing("a")])
    else:
        with pytest.raises(EntityDisabled, match="is currently disabled"):
            await door.namespace.send(path, [outgoing("a")])
    if receives:
        door.client(path=path)
    else:
        with pytest.raises(EntityDisabled, match="is currently disabled"):
            door.client(path=path)


@OF_EVERY_KIND
async def test_what_may_not_enter_is_refused(door: Door) -> None:
    """No session id, too large, headers that RabbitMQ cannot take, no such entity."""
    refusals: list[tuple[str, Outgoing, type[ServiceBusError]]] = [
        ("sessions", outgoing("a"), NotAllowed),
        ("small", outgoing("x" * 1_025), MessageSizeExceeded),
        ("orders", outgoing("a", long="x" * 130_000), ArgumentError),
        ("nowhere", outgoing("a"), EntityNotFound),
    ]
    for entity, message, refusal in refusals:
        with pytest.raises(refusal):
            await door.namespace.send(EntityPath(entity), [message])
    with pytest.raises(NotAllowed, match="non-sessionful"):
        door.client(path=EntityPath("sessions"))
    with pytest.raises(NotAllowed):
        await door.namespace.send(door.dead_letters, [outgoing("a")])


@OF_EVERY_KIND
async def test_applying_updates_and_refuses_what_is_fixed(door: Door) -> None:
    """Settings that can change are changed at once; RequiresSession is fixed at the creation."""
    changed = model.Queue(name="orders", lock_duration_ms=30_000, max_delivery_count=2)
    await door.namespace.apply(model.Namespace(queues=(changed,)))
    found = door.namespace.entity(door.path)
    own = {"incarnation": "", "created_at": "", "updated_at": "", "folds_session_ids": False}
    assert replace(found, **own) == changed  # type: ignore[arg-type]
    assert {queue.name for queue in door.namespace.directory.namespace.queues} == {
        queue.name for queue in QUEUES
    }
    with pytest.raises(EntityConflict, match="RequiresSession"):
        await door.namespace.apply(
            model.Namespace(queues=(model.Queue(name="orders", requires_session=True),))
        )
    await door.send("a")
    client = door.client()
    (received,) = await client.receive()
    assert received.locked_until_ms is not None
    assert received.locked_until_ms > now_ms() + 25_000


@pytest.mark.parametrize("is_kept", [True, False])
async def test_dead_lettering_on_expiration_is_switched_while_the_queue_stands(
    door: Door, is_kept: bool
) -> None:
    """From then on expired messages go to one place, and no more to the other.

    A kept message is in the stream for peeks, too.
    """
    for value in (not is_kept, is_kept):
        queue = model.Queue(name="switched", dead_lettering_on_message_expiration=value)
        await door.namespace.apply(model.Namespace(queues=(queue,)))

    places = {
        row["destination"]
        for row in await listed(door.management, "bindings")
        if row["source"] == "switched/$dlx" and "expired" in row["arguments"].values()
    }
    kept = {"switched/$deadletterqueue", "switched/$moved"}
    assert places == (kept if is_kept else {"$sb/sink"})


async def test_the_priority_of_our_policies_stays(door: Door) -> None:
    """`busbridge policies apply` takes another one where a policy of the user's has ours."""
    for policy in await door.management.policies():
        if policy.priority < 1_000:  # those that protect the bridge's own queues are above all
            await door.management.put_policy(replace(policy, priority=60))
    await door.namespace.apply(
        model.Namespace(queues=(model.Queue(name="new", max_delivery_count=77),))
    )
    assert {policy.priority for policy in await door.management.policies()} == {60, 1_000}


async def test_a_definition_that_somebody_writes_by_hand_is_carried_out(
    door: Door, vhost: str
) -> None:
    """`rabbitmqctl set_global_parameter` makes a queue, and changes one in RabbitMQ as well."""
    short: dict[str, Value] = {"kind": "queue", "name": "By-Hand"}
    path = EntityPath("by-hand")
    for form, limit in ((short, 9), ({**short, "maxDeliveryCount": 3}, 2)):
        name = definitions.parameter_name(vhost, "by-hand")
        await door.management.put_global_parameter(name, form)
        await door.namespace.reconciler.check()
        assert await door.management.global_parameter(name) == form
        (policy,) = [p for p in await door.management.policies() if "by-hand" in p.pattern]
        assert policy.definition["delivery-limit"] == limit
    await door.namespace.send(path, [outgoing("a")])
    (received,) = await door.client(path=path).receive()
    await door.complete(received, path=path)


async def test_a_definition_in_the_wrong_place_is_left_out(
    door: Door, vhost: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Two of one name would be none; what else there is goes on, and changes are followed."""
    for entity, name in (("other", "orders"), ("added", "added")):
        form = definitions.to_json(model.Queue(name=name, max_delivery_count=7))
        await door.management.put_global_parameter(definitions.parameter_name(vhost, entity), form)
    await door.namespace.reconciler.check()
    assert door.namespace.entity(EntityPath("added")).max_delivery_count == 7
    assert door.namespace.entity(door.path).max_delivery_count == 10
    assert "poison place=definition" in caplog.text
    await door.send("a")


async def test_another_bridge_hears_of_a_change(
    door: Door, endpoint: Endpoint, broker: Broker
) -> None:
    """Definitions live in RabbitMQ; every bridge follows them."""
    async with open_door(endpoint, broker.management_url, with_sidecar=False) as other:
        await door.namespace.apply(model.Namespace(queues=(model.Queue(name="new"),)))
        await until(lambda: "new" in {q.name for q in other.namespace.directory.namespace.queues})


async def test_a_foreign_policy_on_our_queues_is_a_reason_not_to_be_ready(
    door: Door,
) -> None:
    """It is named, with what it rules."""
    policy = Policy(name="mine", pattern="^orders$", definition={"max-length": 5}, priority=999)
    await door.management.put_policy(policy)
    await door.namespace.reconciler.check()
    assert not door.namespace.state.is_ready
    (reason,) = door.namespace.state.reasons
    assert "'mine' (max-length) rules the queue 'orders'" in reason
    await door.management.delete_policy("mine")
    await door.namespace.reconciler.check()
    assert door.namespace.state.is_ready


async def test_a_sequencer_that_fails_again_and_again_is_a_reason_not_to_be_ready(
    door: Door, confirming: Channel
) -> None:
    """An exchange of ours is another's now: what is sent is stored, but gets no number."""
    await until(lambda: not door.sidecar.reasons)
    await confirming.declarations.delete_exchange("orders/$active")
    await confirming.declarations.declare_exchange("orders/$active", "direct")
    await door.send("a")
    await until(lambda: any("'orders' fails again" in each for each in door.sidecar.reasons))


@OF_EVERY_KIND
async def test_an_entity_that_is_removed_is_looked_after_no_more(
    door: Door, vhost: str, confirming: Channel
) -> None:
    """Its sequencer ends; clients are told that there is no such entity; the others go on."""
    await until(lambda: door.sidecar.meters["dropping"].is_active)
    await confirming.declarations.delete_queue("dropping/$inbox")
    await door.management.delete_global_parameter(definitions.parameter_name(vhost, "dropping"))
    await door.namespace.reconciler.check()
    assert "dropping" not in door.sidecar.meters
    with pytest.raises(EntityNotFound):
        await door.namespace.send(EntityPath("dropping"), [outgoing("a")])
    await door.send("a")
    assert door.sidecar.reasons == []


async def test_an_abandon_with_properties_keeps_what_is_left_of_the_ttl(door: Door) -> None:
    """The message still expires when it would have."""
    await door.namespace.send(door.path, [outgoing("a", ttl_ms=2_000)])
    client = door.client()
    (received,) = await client.receive()
    assert received.lock_token is not None
    await door.namespace.settle(
        door.path, received.lock_token, Abandon(properties={"seen": text("yes")})
    )
    (again,) = await client.receive()
    assert (again.enqueued_ms, again.time_to_live_ms) == (received.enqueued_ms, 2_000)
    assert again.lock_token is not None
    await door.namespace.settle(
        door.path, again.lock_token, Abandon(properties={"seen": text("twice")})
    )
    await client.receiver.close()
    (dead,) = await door.client(path=door.dead_letters).receive()
    assert now_ms() >= received.enqueued_ms + 2_000
    assert (dead.record.properties.headers or {})["seen"] == text("twice")
    await door.complete(dead, path=door.dead_letters)


def test_properties_of_a_native_user_are_not_used(endpoint: Endpoint) -> None:
    """A door's record has no user id, priority or expiration in its envelope."""
    from bridge.wire.envelope import Operation, decode

    record = Record(Properties(user_id="u", priority=3, expiration="5", delivery_mode=1), b"x")
    body = encode(Operation.SEND, QUEUES[0], [Outgoing(record=record, size_bytes=1)], bytes(16))
    (item,) = decode(body).items
    assert Properties.decode(item.properties) == Properties(delivery_mode=2, headers={})
