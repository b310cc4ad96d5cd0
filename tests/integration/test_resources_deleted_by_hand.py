"""Each kind of resource of RabbitMQ, deleted by hand under load: nothing that was accepted is lost.

Each is back within a poll of the definitions, and named in health.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import BrokerError
from bridge.broker.management.live import HttpBroker
from bridge.engine.administration import reconciler
from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from bridge.model.name import EntityPath, SubQueue, short_id
from bridge.sidecar.leader.leader import Leader
from bridge.topology import definitions, lacking, names, parts
from bridge.topology.definitions import incarnation_of
from bridge.topology.resources import Binding, Exchange, Policy, Queue, Resource
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Client, Door, open_door, outgoing
from tests.integration.session_door import SessionClient, of_session

WITHIN_S = 240.0
SESSION = "s"
AUDIT, OTHER = "audit", "other"

Deleted = Callable[[str, Door], Resource]
"""Returns the resource to delete of an entity of this name."""


@dataclass
class Case:
    """A kind of resource: how it is named, and the entity that stands on it.

    Attributes:
        kind: the entity's kind: `queue`, `session`, `topic`.
        keeps: whether what was accepted before the deletion must arrive, too: not what was in a
            deleted queue.
    """

    what: str
    kind: str
    deleted: Deleted
    keeps: bool = True
    sent: list[str] = field(default_factory=list)
    since: int = 0
    took_s: float = 0.0

    @property
    def name(self) -> str:
        """The entity of this case."""
        return self.what.replace(" ", "-")


def short_of(topic: str, door: Door) -> bytes:
    """The short id of a topic's audited subscription."""
    found = door.namespace.directory.find(f"{topic}/subscriptions/{AUDIT}")
    assert found is not None
    return short_id(incarnation_of(found))


def exchange(name_of: Callable[[str], str], kind: str = "fanout") -> Deleted:
    """An exchange of an entity."""
    return lambda entity, door: Exchange(name=name_of(entity), type=kind)


def queue(name_of: Callable[[str], str]) -> Deleted:
    """A queue or stream of an entity."""
    return lambda entity, door: Queue(name=name_of(entity))


def sub(entity: str) -> str:
    """The path of the audited subscription."""
    return f"{entity}/subscriptions/{AUDIT}"


def from_active(destination: Callable[[str], str], key: str = "") -> Deleted:
    """A binding of an entity's exchange of numbered messages."""
    return lambda entity, door: Binding(
        source=names.active_exchange(entity), destination=destination(entity), routing_key=key
    )


def to_subscription(entity: str, door: Door) -> Binding:
    """The binding to the audited subscription."""
    return Binding(
        source=names.active_exchange(entity),
        destination=names.active_queue(sub(entity)),
        routing_key=names.copy_key(short_of(entity, door)),
    )


def cases() -> list[Case]:
    """All kinds whose entity carries messages meanwhile."""
    return [
        Case("queue front", "queue", exchange(names.front)),
        Case(
            *("queue front binding", "queue"),
            lambda entity, door: Binding(
                source=names.front(entity), destination=names.inbox(entity)
            ),
        ),
        Case("queue active", "queue", exchange(names.active_exchange)),
        Case("queue active binding", "queue", from_active(names.active_queue)),
        Case("queue journal binding", "queue", from_active(names.journal)),
        Case("queue active queue", "queue", queue(names.active_queue), keeps=False),
        Case("session active", "session", exchange(names.active_exchange, "direct")),
        Case("session shard binding", "session", from_active(names.active_queue, "0")),
        Case("topic front", "topic", exchange(names.front)),
        Case("topic active", "topic", exchange(names.active_exchange, "direct")),
        Case("topic journal binding", "topic", from_active(names.journal, names.JOURNAL_KEY)),
        Case("topic subscription binding", "topic", to_subscription),
        Case(
            *("topic subscription queue", "topic"),
            queue(lambda entity: names.active_queue(sub(entity))),
            keeps=False,
        ),
    ]


def entity_of(case: Case) -> model.Namespace:
    """What a case sends to."""
    if case.kind == "topic":
        subscriptions = tuple(
            model.Subscription(topic=case.name, name=each, lock_duration_ms=300_000)
            for each in (AUDIT, OTHER)
        )
        return model.Namespace(topics=(model.Topic(name=case.name, subscriptions=subscriptions),))
    made = model.Queue(
        name=case.name, requires_session=case.kind == "session", lock_duration_ms=300_000
    )
    return model.Namespace(queues=(made,))


async def delete(channel: Channel, broker: HttpBroker, resource: Resource) -> None:
    """Delete something as an operator does."""
    match resource:
        case Exchange():
            await channel.declarations.delete_exchange(resource.name)
        case Queue():
            await channel.declarations.delete_queue(resource.name)
        case Binding():
            await broker.delete_binding(resource)
        case Policy():
            await broker.delete_policy(resource.name)
        case _:
            raise AssertionError(resource)


def in_words(resource: Resource) -> str:
    """As health names it."""
    assert isinstance(resource, Exchange | Queue | Binding)
    return lacking.in_words(resource)


async def load(door: Door, case: Case, is_over: Callable[[], bool]) -> None:
    """Send one message after the other; keep those that were accepted."""
    number = 0
    while not is_over():
        number += 1
        message = (
            of_session(SESSION, str(number)) if case.kind == "session" else outgoing(str(number))
        )
        with contextlib.suppress(ServiceBusError, BrokerError):
            await door.namespace.send(EntityPath(case.name), [message])
            case.sent.append(str(number))
        await asyncio.sleep(0.1)


async def destroyed_and_named(door: Door, case: Case, channel: Channel, broker: HttpBroker) -> None:
    """Delete the case's resource under load; wait until health names it."""
    await until(lambda: len(case.sent) > 20, within_s=WITHIN_S)
    resource = case.deleted(case.name, door)
    begun_s = time.monotonic()
    await delete(channel, broker, resource)
    case.since = len(case.sent) + 1  # one may be on its way
    await until(lambda: is_named(door, in_words(resource)), within_s=WITHIN_S)
    case.took_s = time.monotonic() - begun_s
    count = len(case.sent) + 20
    await until(lambda: len(case.sent) > count, within_s=WITHIN_S)


def is_named(door: Door, words: str) -> bool:
    """Whether health says that something was made again."""
    return any(words in each for each in door.namespace.state.warnings)


async def everything(door: Door, case: Case) -> dict[str, set[str]]:
    """Receive all of it, from each queue that it goes to; return what is missing by path."""
    wanted = set(case.sent if case.keeps else case.sent[case.since :])
    missing = {}
    if case.kind == "session":
        client: Client | SessionClient = await SessionClient(door, EntityPath(case.name)).accept(
            SESSION
        )
        paths = {case.name: client}
    elif case.kind == "topic":
        paths = {
            each: door.client(path=EntityPath(f"{case.name}/subscriptions/{each}"))
            for each in (AUDIT, OTHER)
        }
    else:
        paths = {case.name: door.client(path=EntityPath(case.name))}
    for path, each in paths.items():
        whole = set(case.sent) if path == OTHER else wanted
        each.receiver.add_credit(5_000)
        with contextlib.suppress(TimeoutError):
            await until(lambda each=each, whole=whole: whole <= _bodies(each), within_s=120)
        missing[path] = whole - _bodies(each)
        numbers = [one.sequence_number for one in each.received]
        if len(numbers) != len(set(numbers)):
            missing[path].add("doubled")
    return {path: each for path, each in missing.items() if each}


def _bodies(client: Client | SessionClient) -> set[str]:
    return {each.record.body.decode() for each in client.received}


@pytest.mark.long
async def test_whatever_is_deleted_by_hand_comes_back_and_nothing_accepted_is_lost(
    endpoint: Endpoint, broker: Broker, confirming: Channel
) -> None:
    """Exchanges, bindings and queues of queues, session entities and topics, all at once."""
    table = cases()
    async with (
        open_door(endpoint, broker.management_url) as door,
        HttpBroker(endpoint, broker.management_url) as live,
    ):
        for case in table:
            await door.namespace.apply(entity_of(case))
        is_over = False
        sending = [asyncio.create_task(load(door, each, lambda: is_over)) for each in table]
        await asyncio.gather(*(destroyed_and_named(door, each, confirming, live) for each in table))
        is_over = True
        await asyncio.gather(*sending)
        lost = {each.what: await everything(door, each) for each in table}
        print({each.what: round(each.took_s, 1) for each in table})
        assert {what: each for what, each in lost.items() if each} == {}


@pytest.mark.long
async def test_what_all_entities_share_comes_back_and_is_named(
    endpoint: Endpoint, broker: Broker, confirming: Channel
) -> None:
    """The sink, the exchanges of events, of administration, and of other deaths, and policies."""
    made = model.Queue(name="orders", max_delivery_count=3)
    shared: list[Resource] = [
        Queue(name=names.SINK),
        Queue(name=names.EXPIRED_UNNUMBERED),
        Exchange(name=names.EVENTS, type="fanout"),
        # Before its exchange: that one's end names the binding, too, and nothing would be awaited.
        parts.bound_by_own_name(names.OTHER_DEATHS, names.dead_letter_queue("orders")),
        Exchange(name=names.OTHER_DEATHS, type="direct"),
        Queue(name=names.dead_letter_queue("orders")),
        Exchange(name=names.dead_letter_exchange("orders"), type="headers"),
        Queue(name=names.moved("orders"), arguments={"x-queue-type": "stream"}),
    ]
    async with (
        open_door(endpoint, broker.management_url, made) as door,
        HttpBroker(endpoint, broker.management_url) as live,
    ):
        for each in shared:
            await delete(confirming, live, each)
            door.namespace.reconciler.due.wake()
            words = in_words(each)
            await until(lambda words=words: is_named(door, words), within_s=WITHIN_S)
            await door.namespace.reconciler.due.whole(lacking.SHARED)
            await door.namespace.reconciler.due.whole("orders")
        policies = [*await live.policies(), *await live.policies(operator=True)]
        assert len(policies) > 4
        for policy in policies:
            await live.delete_policy(policy.name, operator=policy.is_operator)
        wanted = [f"the policy {each.name!r}" for each in policies]
        await until(lambda: all(is_named(door, each) for each in wanted), within_s=WITHIN_S)
        there = [*await live.policies(), *await live.policies(operator=True)]
        assert {each.name for each in there} == {each.name for each in policies}
        # Whoever listens hears of changes again, and dead letters find their way.
        assert await live.bindings_from(names.EVENTS)
        await confirming.declarations.delete_exchange(names.ADMINISTRATION)
        await until(lambda: live.bindings_from(names.ADMINISTRATION), within_s=WITHIN_S)
        await door.send("failing")
        for _ in range(3):
            await door.client().receive()
            (token,) = list(door.namespace._locks.end_all())
            door.namespace._settling.expire(*token)
        dead = door.client(path=EntityPath("orders", SubQueue.DEAD_LETTER))
        dead.receiver.add_credit(1)
        await until(lambda: dead.received, within_s=WITHIN_S)


async def test_what_an_operator_overrides_is_named_and_stays(
    endpoint: Endpoint, broker: Broker, confirming: Channel
) -> None:
    """An argument, and an operator policy."""
    async with (
        open_door(endpoint, broker.management_url, model.Queue(name="orders")) as door,
        HttpBroker(endpoint, broker.management_url) as live,
    ):
        moved = names.moved("orders")
        theirs = Queue(name=moved, arguments=parts.moved("orders").arguments | {"x-max-age": "1D"})
        await confirming.declarations.delete_queue(moved)
        await confirming.declarations.declare_queue(theirs)
        limit = Policy(name="theirs", pattern="^orders$", definition={"max-length": 9}, priority=1)
        await live.put_policy(limit_of_operator := _operator(limit))
        door.namespace.reconciler.due.wake()

        def are_named() -> bool:
            state = door.namespace.state
            said = " ".join([*state.warnings, *state.reasons])
            return repr(moved) in said and "'theirs'" in said

        await until(are_named, within_s=WITHIN_S)
        there = await live.queue(moved)
        assert there is not None
        assert there["arguments"]["x-max-age"] == "1D"
        assert limit_of_operator in await live.policies(operator=True)


def _operator(policy: Policy) -> Policy:
    return Policy(
        name=policy.name,
        pattern=policy.pattern,
        definition=policy.definition,
        priority=policy.priority,
        is_operator=True,
    )


async def test_a_binding_that_rabbitmq_cannot_list_stops_no_definition(
    endpoint: Endpoint, broker: Broker, confirming: Channel
) -> None:
    """Health says that nothing deleted by hand is found, and new entities are made all the same."""
    async with (
        open_door(endpoint, broker.management_url, model.Queue(name="orders")) as door,
        HttpBroker(endpoint, broker.management_url) as live,
    ):
        await confirming.declarations.bind(
            Binding(
                source="amq.headers", destination="orders", routing_key="a~b", arguments={"a": 1}
            )
        )
        form = definitions.to_json(model.Queue(name="late", incarnation="0123456789ab"))
        name = definitions.parameter_name(endpoint.vhost, "late")
        await live.put_global_parameter(name, form)
        door.namespace.reconciler.due.wake()
        await until(lambda: door.namespace.directory.find("late"), within_s=WITHIN_S)
        assert await live.queue("late") is not None
        assert any("is not found" in each for each in door.namespace.state.warnings)


@pytest.mark.long
async def test_no_other_bridge_leads_through_an_exchange_that_is_half_made(
    endpoint: Endpoint, broker: Broker, confirming: Channel
) -> None:
    """Two bridges, a topic's `$active` deleted under load three times: each copy arrives."""
    case = Case("two bridges", "topic", exchange(names.active_exchange, "direct"))
    others = tuple(f"sub-{number}" for number in range(8))
    subscriptions = tuple(
        model.Subscription(topic=case.name, name=each, lock_duration_ms=300_000)
        for each in (AUDIT, *others)
    )
    wanted = model.Namespace(topics=(model.Topic(name=case.name, subscriptions=subscriptions),))
    async with (
        open_door(endpoint, broker.management_url) as door,
        open_door(endpoint, broker.management_url) as other,
        HttpBroker(endpoint, broker.management_url) as live,
    ):
        await door.namespace.apply(wanted)
        other.namespace.reconciler.due.wake()
        await until(lambda: other.namespace.directory.find(case.name), within_s=WITHIN_S)
        is_over = False
        theirs = Case(case.what, case.kind, case.deleted)
        sending = [
            asyncio.create_task(load(door, case, lambda: is_over)),
            asyncio.create_task(load(other, theirs, lambda: is_over)),
        ]
        for _ in range(3):
            count = len(case.sent) + 20
            await until(lambda count=count: len(case.sent) > count, within_s=WITHIN_S)
            await delete(confirming, live, case.deleted(case.name, door))
            count = len(case.sent) + 50
            await until(lambda count=count: len(case.sent) > count, within_s=WITHIN_S)
        is_over = True
        await asyncio.gather(*sending)
        sent = len(case.sent) + len(theirs.sent)
        for each in (AUDIT, *others):
            client = door.client(path=EntityPath(f"{case.name}/subscriptions/{each}"))
            client.receiver.add_credit(5_000)
            with contextlib.suppress(TimeoutError):
                await until(lambda client=client: _numbers(client) >= sent, within_s=120)
            assert (each, _numbers(client)) == (each, sent)


def _numbers(client: Client) -> int:
    return len({each.sequence_number for each in client.received})


async def sent_and_unbound(door: Door, live: HttpBroker, case: Case) -> set[str]:
    """Send, delete the case's binding, and send more, all within a poll."""
    path = EntityPath(case.name)
    await until(lambda: case.name in [each.name for each in door.sidecar.leading])
    texts = [str(number) for number in range(20)]
    await door.namespace.send(path, [outgoing(each) for each in texts[:10]])
    resource = case.deleted(case.name, door)
    assert isinstance(resource, Binding)
    await live.delete_binding(resource)
    await door.namespace.send(path, [outgoing(each) for each in texts[10:]])
    return set(texts)


def leader_of(door: Door, case: Case) -> Leader:
    """The leader of a case's entity."""
    (leader,) = [each for each in door.sidecar.leading if each.name == case.name]
    return leader


async def arrived(door: Door, case: Case, texts: set[str]) -> None:
    """Receive until all have come, each once."""
    path = sub(case.name) if case.kind == "topic" else case.name
    client = door.client(path=EntityPath(path))
    client.receiver.add_credit(100)
    await until(lambda: texts <= _bodies(client), within_s=WITHIN_S)
    assert len(client.received) == len(texts)


UNBOUND = Case("unbound queue", "queue", from_active(names.active_queue))
UNBOUND_TOPIC = Case("unbound topic", "topic", to_subscription)
BOTH = pytest.mark.parametrize("case", [UNBOUND, UNBOUND_TOPIC], ids=lambda case: case.kind)


@BOTH
@pytest.mark.long
async def test_a_leader_that_ends_before_it_finds_a_deleted_binding(
    endpoint: Endpoint, broker: Broker, case: Case
) -> None:
    """The one that leads next finds it, and publishes again what the journal alone has."""
    async with (
        HttpBroker(endpoint, broker.management_url) as live,
        open_door(endpoint, broker.management_url) as other,
    ):
        async with open_door(endpoint, broker.management_url) as door:
            await door.namespace.apply(entity_of(case))
            other.namespace.reconciler.due.wake()
            await until(lambda: other.namespace.directory.find(case.name))
            texts = await sent_and_unbound(door, live, case)
        await arrived(other, case, texts)


@BOTH
@pytest.mark.parametrize("is_sent_to", [True, False])
async def test_a_binding_deleted_before_its_exchange_hides_nothing(
    endpoint: Endpoint,
    broker: Broker,
    confirming: Channel,
    monkeypatch: pytest.MonkeyPatch,
    case: Case,
    *,
    is_sent_to: bool,
) -> None:
    """All bindings go with the exchange: which of them was not there before, nobody can see.

    A publish tells the leader that the exchange is gone; else a look finds that.
    """
    monkeypatch.setattr(reconciler, "POLL_S", NEVER_S)
    kind = "direct" if case.kind == "topic" else "fanout"
    async with (
        open_door(endpoint, broker.management_url) as door,
        HttpBroker(endpoint, broker.management_url) as live,
    ):
        await door.namespace.apply(entity_of(case))
        texts = await sent_and_unbound(door, live, case)
        leader = leader_of(door, case)
        await until(lambda: leader.meters.arrivals >= 2 and not leader.in_flight.open)
        await delete(confirming, live, exchange(names.active_exchange, kind)(case.name, door))
        if is_sent_to:
            await door.namespace.send(EntityPath(case.name), [outgoing("last")])
            texts.add("last")
        else:
            door.namespace.reconciler.due.wake()
        await arrived(door, case, texts)
        await until(lambda: case.name in [each.name for each in door.sidecar.leading])
        terms = door.sidecar.meters[case.name].terms
        await door.namespace.reconciler.due.looked()
        assert (door.sidecar.meters[case.name].terms, door.sidecar.leading) == (
            terms,
            [leader_of(door, case)],
        ), "it is published again once"


@pytest.mark.long
async def test_a_bridge_that_starts_and_finds_a_deleted_binding(
    endpoint: Endpoint, broker: Broker
) -> None:
    """It was the only one, and ended right after the deletion: nothing is lost over that."""
    async with HttpBroker(endpoint, broker.management_url) as live:
        async with open_door(endpoint, broker.management_url) as door:
            await door.namespace.apply(entity_of(UNBOUND))
            texts = await sent_and_unbound(door, live, UNBOUND)
        async with open_door(endpoint, broker.management_url) as door:
            await arrived(door, UNBOUND, texts)


@pytest.mark.long
async def test_a_bridge_that_starts_leaves_a_route_to_the_one_that_leads(
    endpoint: Endpoint, broker: Broker
) -> None:
    """That one finds it with its next look; what it has sent to the journal alone comes again."""
    async with (
        HttpBroker(endpoint, broker.management_url) as live,
        open_door(endpoint, broker.management_url) as door,
    ):
        await door.namespace.apply(entity_of(UNBOUND))
        texts = await sent_and_unbound(door, live, UNBOUND)
        async with open_door(endpoint, broker.management_url) as other:
            await arrived(other, UNBOUND, texts)
        assert is_named(door, in_words(UNBOUND.deleted(UNBOUND.name, door)))


NEVER_S = 3_600.0
"""A poll of the definitions that does not come during a test."""


async def test_a_lone_message_that_meets_a_deleted_exchange_has_it_made_again(
    endpoint: Endpoint, broker: Broker, confirming: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RabbitMQ has surely not stored it: that it says so, too, is heard, and no poll waited for."""
    monkeypatch.setattr(reconciler, "POLL_S", NEVER_S)
    case = Case("lone", "topic", exchange(names.active_exchange, "direct"))
    async with (
        open_door(endpoint, broker.management_url) as door,
        HttpBroker(endpoint, broker.management_url) as live,
    ):
        await door.namespace.apply(entity_of(case))
        client = door.client(path=EntityPath(sub(case.name)))
        for text in ("before", "after"):
            await door.namespace.send(EntityPath(case.name), [outgoing(text)])
            (received,) = await client.receive()
            assert received.record.body.decode() == text
            await door.complete(received, path=EntityPath(sub(case.name)))
            await delete(confirming, live, case.deleted(case.name, door))


async def test_an_exchange_deleted_while_it_is_made_again_is_whole_before_it_is_used(
    endpoint: Endpoint, broker: Broker, confirming: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resources of the last subscription include the exchange, and no other one's binding.

    Each copy arrives in its turn: no leader publishes without the first subscription.
    """
    monkeypatch.setattr(reconciler, "POLL_S", NEVER_S)
    case = Case("again", "topic", exchange(names.active_exchange, "direct"))
    async with (
        open_door(endpoint, broker.management_url) as door,
        HttpBroker(endpoint, broker.management_url) as live,
    ):
        await door.namespace.apply(entity_of(case))
        made: list[str] = []
        administration = door.namespace.administration
        provide = administration.provide

        async def provide_and_delete(entity: model.Entity) -> None:
            await provide(entity)
            made.append(entity.path.lower())
            if made[-1] == sub(case.name) and made.count(made[-1]) == 1:
                await delete(confirming, live, case.deleted(case.name, door))

        monkeypatch.setattr(administration, "provide", provide_and_delete)
        is_over = False
        sending = asyncio.create_task(load(door, case, lambda: is_over))
        await until(lambda: len(case.sent) > 20, within_s=WITHIN_S)
        await delete(confirming, live, case.deleted(case.name, door))
        await until(lambda: made.count(sub(case.name)) > 0, within_s=WITHIN_S)
        await door.namespace.reconciler.due.whole(case.name)
        count = len(case.sent) + 20
        await until(lambda: len(case.sent) > count, within_s=WITHIN_S)
        is_over = True
        await sending
        assert await everything(door, case) == {}
