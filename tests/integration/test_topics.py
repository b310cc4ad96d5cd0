"""Topics: one publish, a copy with a number of its own for each subscription that matches."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pika
import pytest
import pytest_asyncio

from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import BrokerSilent
from bridge.engine.api import Abandon, DeadLetter, Defer, ReceiveMode
from bridge.engine.clock import now_ms
from bridge.machine.inbox.left_out import Missed
from bridge.model import entity as model
from bridge.model.errors import EntityNotFound, NotAllowed, QuotaExceeded
from bridge.model.filters.errors import InvalidRule
from bridge.model.name import EntityPath, SubQueue, parse_path
from bridge.sidecar.leader.routes import short_of
from bridge.sidecar.subscriptions import catch_up
from bridge.sidecar.subscriptions.catch_up import CatchUp
from bridge.wire.basic import Properties
from bridge.wire.record import Record
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import TOLD_S, until
from tests.integration.door import Client, Door, open_door, outgoing

RED = model.Rule(name="red", filter=model.CorrelationFilter(properties=(("color", "red"),)))
TOPIC = model.Topic(
    name="Events",
    subscriptions=(
        model.Subscription(topic="Events", name="all", max_delivery_count=2),
        model.Subscription(topic="Events", name="Red", rules=(RED,)),
        model.Subscription(
            topic="Events",
            name="short",
            rules=(RED,),
            default_message_time_to_live_ms=1_000,
            dead_lettering_on_message_expiration=True,
        ),
    ),
)
EVENTS = EntityPath("events")


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge with the topic."""
    async with open_door(endpoint, broker.management_url) as opened:
        await opened.namespace.apply(model.Namespace(topics=(TOPIC,)))
        yield opened


def at(name: str, sub_queue: SubQueue = SubQueue.NONE) -> EntityPath:
    """The path of a subscription."""
    return EntityPath(f"events/subscriptions/{name}", sub_queue)


async def numbers(client: Client, count: int) -> list[tuple[bytes, int, int]]:
    """Receive messages: their bodies, the subscription's numbers and the topic's."""
    return [
        (
            each.record.body,
            each.sequence_number,
            int(str((each.record.properties.headers or {})["x-opt-enqueue-sequence-number"][1])),
        )
        for each in await client.receive(count)
    ]


async def test_each_subscription_counts_by_itself_beside_the_topic(door: Door) -> None:
    """The topic's number counts what no subscription took, too."""
    for body, color in (("a", "blue"), ("b", "red"), ("c", "blue"), ("d", "red")):
        await door.namespace.send(EVENTS, [outgoing(body, color=color)])

    everything = await numbers(door.client(path=at("all")), 4)
    assert everything == [(b"a", 1, 1), (b"b", 2, 2), (b"c", 3, 3), (b"d", 4, 4)]
    assert await numbers(door.client(path=at("red")), 2) == [(b"b", 1, 2), (b"d", 2, 4)]


async def test_a_native_publisher_reaches_the_subscriptions(
    door: Door, broker: Broker, vhost: str
) -> None:
    """Publishing to the exchange of the topic's name is all it needs."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url_of(vhost)))
    channel = connection.channel()
    channel.confirm_delivery()
    properties = pika.BasicProperties(headers={"color": "red"}, expiration="60000")
    channel.basic_publish("events", "", b"native", properties, mandatory=True)
    connection.close()

    for name in ("all", "red"):
        (received,) = await door.client(path=at(name)).receive()
        assert (received.record.body, received.sequence_number) == (b"native", 1)
        assert received.time_to_live_ms == 60_000


async def test_messages_of_a_subscription_are_settled_as_those_of_a_queue(door: Door) -> None:
    """Defer, dead-letter, abandon: the copy keeps its number, other subscriptions have theirs."""
    for body in "abc":
        await door.namespace.send(EVENTS, [outgoing(body, color="red")])
    client = door.client(path=at("all"))
    first, second, third = await client.receive(3)
    settle = door.namespace.settle
    assert first.lock_token is not None
    assert second.lock_token is not None
    assert third.lock_token is not None

    await settle(at("all"), first.lock_token, Defer())
    await settle(at("all"), second.lock_token, DeadLetter(reason="bad"))
    await settle(at("all"), third.lock_token, Abandon())

    (again,) = await client.receive()
    assert (again.record.body, again.sequence_number, again.delivery_count) == (b"c", 3, 1)
    mode = ReceiveMode.RECEIVE_AND_DELETE
    (deferred,) = await door.namespace.receive_deferred(at("all"), [1], mode)
    assert (deferred.record.body, deferred.sequence_number) == (b"a", 1)
    assert (first.delivery_count, deferred.delivery_count) == (0, 1)  # deferring counts
    dead_letters = parse_path("Events/Subscriptions/all/$DeadLetterQueue")
    (dead,) = await door.client(path=dead_letters).receive()
    assert (dead.record.body, dead.sequence_number) == (b"b", 2)
    assert again.lock_token is not None
    await settle(at("all"), again.lock_token, Abandon())
    # MaxDeliveryCount is 2: RabbitMQ dead-letters it, with the list of all copies.
    (exhausted,) = await door.client(path=at("all", SubQueue.DEAD_LETTER)).receive()
    assert (exhausted.record.body, exhausted.sequence_number) == (b"c", 3)
    assert [each[1] for each in await numbers(door.client(path=at("red")), 3)] == [1, 2, 3]


async def test_a_subscription_has_a_time_to_live_of_its_own(door: Door) -> None:
    """A message that lives shorter there is dead-lettered there, and nowhere else."""
    await door.namespace.send(EVENTS, [outgoing("a", color="red", ttl_ms=60_000)])

    dead = door.client(path=at("short", SubQueue.DEAD_LETTER))
    (expired,) = await dead.receive()
    assert expired.dead_letter is not None
    assert (expired.dead_letter[0], expired.sequence_number) == ("TTLExpiredException", 1)
    (received,) = await door.client(path=at("red")).receive()
    assert received.time_to_live_ms == 60_000


async def test_scheduled_messages_of_a_topic_reach_the_subscriptions_at_their_time(
    door: Door,
) -> None:
    """They have numbers of the topic's until then; one that is cancelled reaches nobody."""
    due_ms = int(time.time() * 1000) + 2_000
    batch = [outgoing(body, color="red", scheduled_ms=due_ms) for body in ("kept", "cancelled")]
    kept, cancelled = await door.namespace.schedule(EVENTS, batch)
    await door.namespace.cancel_scheduled(EVENTS, [cancelled])

    found = await numbers(door.client(path=at("red")), 1)
    assert (kept, cancelled, found) == (1, 2, [(b"kept", 1, 3)])
    assert time.time() * 1000 >= due_ms


async def test_what_cannot_be_done_with_topics_is_refused(door: Door) -> None:
    """Nothing is received from a topic, nothing sent to a subscription."""
    with pytest.raises(EntityNotFound):
        door.namespace.open_receiver(EVENTS, mode=ReceiveMode.PEEK_LOCK, deliver=lambda _: None)
    with pytest.raises(NotAllowed, match="Subscriber"):
        await door.namespace.send(at("all"), [outgoing("a")])
    with pytest.raises(EntityNotFound):
        door.namespace.entity(EntityPath("events/subscriptions/none"))


async def test_a_subscription_gets_what_is_sent_after_it_was_made(door: Door) -> None:
    """One that is deleted and made again begins with 1; its topic goes on."""
    administration = door.namespace.administration
    later = model.Subscription(topic="Events", name="later")
    for body in ("a", "b"):
        await administration.create(later)
        await until(lambda: door.namespace.directory.find(later.path) is not None)
        await door.namespace.send(EVENTS, [outgoing(body)])
        (received,) = await door.client(path=at("later")).receive()
        assert (received.record.body, received.sequence_number) == (body.encode(), 1)
        await administration.delete(later.path)

    with pytest.raises(EntityNotFound):
        await administration.create(model.Subscription(topic="nothing", name="later"))


async def test_rules_of_a_subscription_change_what_it_gets_from_then_on(door: Door) -> None:
    """Without any rule it gets nothing."""
    administration = door.namespace.administration
    await administration.delete_rule(at("red").entity, "red")
    await door.namespace.send(EVENTS, [outgoing("a", color="red")])
    assert await numbers(door.client(path=at("all")), 1) == [(b"a", 1, 1)]
    await administration.create_rule(at("red").entity, model.DEFAULT_RULE)
    await door.namespace.send(EVENTS, [outgoing("b", color="blue")])

    assert await numbers(door.client(path=at("red")), 1) == [(b"b", 1, 2)]


async def test_rules_changed_through_another_bridge_count_before_the_next_poll(
    door: Door, endpoint: Endpoint, broker: Broker
) -> None:
    """This holds whichever of the two numbers the topic; earlier messages are not judged anew."""
    path = at("red").entity
    async with open_door(endpoint, broker.management_url) as other:
        for asked, told in ((door, other), (other, door)):
            await asked.namespace.administration.delete_rule(path, "red")
            rules = told.namespace.administration.rules
            await until(lambda rules=rules: rules(path) == (), within_s=TOLD_S)
            await asked.namespace.administration.create_rule(path, RED)
            await until(lambda rules=rules: rules(path) == (RED,), within_s=TOLD_S)
        for body, color in (("a", "red"), ("b", "blue")):
            await other.namespace.send(EVENTS, [outgoing(body, color=color)])
        assert await numbers(door.client(path=at("red")), 1) == [(b"a", 1, 1)]


async def test_a_topic_has_as_many_filters_as_azure_lets_it(door: Door) -> None:
    """All its subscriptions together; correlation filters have a bound of their own."""
    administration = door.namespace.administration
    rules = tuple(
        model.Rule(name=f"r{number}", filter=model.FalseFilter()) for number in range(1_999)
    )
    # The subscription `all` has the 2,000th.
    await administration.create(model.Subscription(topic="Events", name="many", rules=rules))
    more = model.Rule(name="more", filter=model.SqlFilter(expression="color = 'red'"))
    with pytest.raises(QuotaExceeded, match="2000 SQL filters"):
        await administration.create_rule(at("red").entity, more)
    await administration.create_rule(at("red").entity, replace(RED, name="more"))


async def test_a_rule_that_is_none_is_refused_with_its_subscription(door: Door) -> None:
    """When a rule is made, changed, or comes with a subscription; nothing is written."""
    administration = door.namespace.administration
    bad = model.Rule(name="red", filter=model.SqlFilter(expression="color = "))
    with pytest.raises(InvalidRule, match="The rule 'red' of 'Events/Subscriptions/Red'"):
        await administration.update_rule(at("red").entity, bad)
    with pytest.raises(InvalidRule):
        await administration.create(model.Subscription(topic="Events", name="new", rules=(bad,)))
    assert administration.rules(at("red").entity) == (RED,)


async def test_a_rule_that_no_message_satisfies_is_made_with_a_warning(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    """Azure takes such a rule; the log names the comparison whose types never fit."""
    administration = door.namespace.administration
    odd = model.Rule(name="odd", filter=model.SqlFilter(expression="sys.DeliveryCount = '5'"))
    await administration.create_rule(at("red").entity, odd)
    assert odd in administration.rules(at("red").entity)
    (said,) = [each.getMessage() for each in caplog.records if "rule.mismatch" in each.msg]
    assert "rule=odd" in said
    assert "no such operator for a number and a string" in said


async def test_each_rule_with_an_action_gives_a_copy_of_its_own(door: Door) -> None:
    """Both have numbers of the subscription; the message itself stays as it is for the others."""
    rules = (
        model.Rule(name="plain", filter=model.SqlFilter(expression="color IN ('red', 'blue')")),
        model.Rule(
            name="loud",
            filter=model.SqlFilter(expression="color LIKE 'r%'"),
            action="SET color = 'RED'; SET sys.Label = 'loud'",
        ),
        model.Rule(name="none", filter=model.SqlFilter(expression="color = 'green'"), action=""),
    )
    actions = model.Subscription(topic="Events", name="actions", rules=rules)
    await door.namespace.administration.create(actions)
    await door.namespace.send(EVENTS, [outgoing("a", color="red")])
    await door.namespace.send(EVENTS, [outgoing("b", color="blue")])

    received = await door.client(path=at("actions")).receive(3)
    seen = []
    for each in received:
        table = each.record.properties.headers or {}
        rule = table.get("RuleName", ("V", None))[1]
        seen.append((each.sequence_number, each.record.body, table["color"][1], rule))
    assert seen == [
        (1, b"a", b"red", None),
        (2, b"a", b"RED", b"loud"),
        (3, b"b", b"blue", None),
    ]
    (untouched,) = await door.client(path=at("red")).receive()
    assert (untouched.record.properties.headers or {})["color"][1] == b"red"


async def test_a_filter_that_fails_dead_letters_in_its_subscription(door: Door) -> None:
    """If the subscription says so; others have the message."""
    rule = model.Rule(name="$Default", filter=model.SqlFilter(expression="color > 5"))
    for name, keeps in (("keeps", True), ("drops", False)):
        subscription = model.Subscription(
            topic="Events",
            name=name,
            rules=(rule,),
            dead_lettering_on_filter_evaluation_exceptions=keeps,
        )
        await door.namespace.administration.create(subscription)
    await door.namespace.send(EVENTS, [outgoing("a", color="red")])
    (received,) = await door.client(path=at("red")).receive()
    assert received.record.body == b"a"

    (failed,) = await door.client(path=at("keeps", SubQueue.DEAD_LETTER)).receive()
    reason = (failed.record.properties.headers or {})["DeadLetterReason"][1]
    assert (failed.record.body, failed.sequence_number, reason) == (b"a", 1, b"FilterException")
    sizes = {
        row["name"]: row.get("messages")
        for row in await door.management.queues(("name", "messages"))
    }
    assert not sizes.get("events/subscriptions/drops/$deadletterqueue")


async def test_a_full_topic_refuses_sends(door: Door) -> None:
    """All subscriptions count together; no queue of them refuses a message by itself."""
    small = model.Topic(name="small", max_size_mb=1)
    administration = door.namespace.administration
    await administration.create(small)
    for name in ("one", "other"):
        await administration.create(model.Subscription(topic="small", name=name))
    path = EntityPath("small")
    large = replace(outgoing("x"), record=Record(Properties(delivery_mode=2), bytes(200_000)))
    for _ in range(3):
        await door.namespace.send(path, [large])

    async def is_refused() -> bool:
        await door.namespace.reconciler.check()
        try:
            await door.namespace.schedule(path, [])
        except QuotaExceeded:
            return True
        return False

    await until(is_refused, within_s=120)
    for name in ("one", "other"):
        client = door.client(path=EntityPath(f"small/subscriptions/{name}"))
        assert [each.sequence_number for each in await client.receive(3)] == [1, 2, 3]


async def test_a_subscription_that_catches_up_publishes_no_longer_than_its_topic_waits(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic goes on after that, and so may a leader that is to hand over."""
    monkeypatch.setattr(catch_up, "HOLD_S", 0.2)
    monkeypatch.setattr(catch_up, "BATCH", 1)
    count = 600
    await door.namespace.send(EVENTS, [outgoing(f"{number}") for number in range(count)])
    await until(lambda: door.sidecar.leading)
    (leader,) = door.sidecar.leading
    subscription = door.namespace.directory.find("events/subscriptions/all")
    assert isinstance(subscription, model.Subscription)
    short, numbers = short_of(subscription), leader.sequencer.memory.subscriptions
    await until(lambda: numbers.get(short) == count and not leader.in_flight.open)
    missed = Missed(1, now_ms())
    async with door.sidecar.pool.apart("catches up") as lease:
        catching = CatchUp(leader, subscription, missed, lease, now_ms)
        channel = await lease.channel()
        await channel.publisher.confirm_select()
        with pytest.raises((BrokerSilent, TimeoutError)):
            await catching._publish_last(channel)
    assert missed.number < count, "it has published on while the leader went on"
    assert leader.in_flight.has_room


async def test_what_is_published_past_the_topic_is_numbered_for_that_subscription(
    door: Door, broker: Broker, vhost: str
) -> None:
    """It is nobody else's message; the bridge sends it back through the topic for this one."""
    client = door.client(path=at("red"))
    client.receiver.add_credit(1)
    connection = pika.BlockingConnection(pika.URLParameters(broker.url_of(vhost)))
    connection.channel().basic_publish("", "events/subscriptions/red", b"stray")
    connection.close()

    (received,) = await client.wait(1)
    assert (received.record.body, received.sequence_number) == (b"stray", 1)
    await door.namespace.send(EVENTS, [outgoing("b")])
    assert await numbers(door.client(path=at("all")), 1) == [(b"b", 1, 2)]
