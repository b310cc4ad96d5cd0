"""Entities made, changed and deleted one by one, by bridges that know nothing of each other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pamqp.base
import pamqp.commands as spec
import pika
import pytest

from bridge.broker.connection.endpoint import Endpoint, parse_url
from bridge.broker.management.api import Management
from bridge.broker.management.listing import Listing
from bridge.engine.administration.live_resources import binding_of
from bridge.engine.namespace import RabbitNamespace
from bridge.model import entity as model
from bridge.model.errors import (
    EntityAlreadyExists,
    EntityConflict,
    EntityNotFound,
)
from bridge.model.name import EntityPath
from bridge.topology import definitions, names
from bridge.topology.compiler import compile_part
from bridge.topology.perils import key_of
from tests.fixtures.broker import Broker
from tests.fixtures.relay import Relay
from tests.fixtures.waiting import until
from tests.integration.door import open_door, outgoing


class Watched(Management):
    """The management API, and which of its listings of a namespace one task asked for."""

    def __init__(self, endpoint: Endpoint, url: str) -> None:
        super().__init__(endpoint, url)
        self.listings: list[str] = []
        self._task = asyncio.current_task()

    async def _listing(
        self, *path: str, columns: Sequence[str] = (), unless: bytes = b""
    ) -> Listing | None:
        if asyncio.current_task() is self._task:
            self.listings.append(path[0])
        return await super()._listing(*path, columns=columns, unless=unless)


class Interrupted(Management):
    """The management API, and what happens just before one of its listings, once."""

    before = ""

    async def _listing(
        self, *path: str, columns: Sequence[str] = (), unless: bytes = b""
    ) -> Listing | None:
        if path[0] == self.before:
            self.before = ""
            await self.happens()
        return await super()._listing(*path, columns=columns, unless=unless)

    async def happens(self) -> None:
        """What happens."""


async def test_one_of_two_creates_at_once_wins_and_the_other_is_told(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Two bridges, one name: one entity, one EntityAlreadyExists, in whatever case."""
    async with (
        open_door(endpoint, broker.management_url) as one,
        open_door(endpoint, broker.management_url) as other,
    ):
        for number in range(3):
            name = f"new-{number}"
            outcomes = await asyncio.gather(
                one.namespace.administration.create(model.Queue(name=name)),
                other.namespace.administration.create(model.Queue(name=name.upper())),
                return_exceptions=True,
            )
            made = [each for each in outcomes if isinstance(each, model.Queue)]
            told = [each for each in outcomes if isinstance(each, EntityAlreadyExists)]
            assert (len(made), len(told)) == (1, 1), outcomes
            path = EntityPath(name)
            await until(lambda path=path: one.namespace.directory.find(path.entity) is not None)
            await until(lambda path=path: other.namespace.directory.find(path.entity) is not None)
            assert one.namespace.entity(path) == other.namespace.entity(path) == made[0]


async def test_creating_an_entity_lists_nothing_of_the_namespace(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Policies are shared, so they are read; no queues, exchanges, bindings or definitions."""
    async with (
        Watched(endpoint, broker.management_url) as management,
        open_door(endpoint, broker.management_url, model.Queue(name="there")),
    ):
        namespace = RabbitNamespace(endpoint, management, name="watched")
        await namespace.start()
        await namespace.apply(model.Namespace())
        await namespace.reconciler.check()
        management.listings.clear()

        made = await namespace.administration.create(model.Queue(name="new"))
        await namespace.administration.update(replace(made, max_delivery_count=3))

        assert set(management.listings) == {"policies", "operator-policies"}
        live = {each.definition.get("delivery-limit") for each in await management.policies()}
        assert 2 in live
        await namespace.close()


async def test_a_conflict_of_one_entity_stops_no_other(
    endpoint: Endpoint, broker: Broker, vhost: str
) -> None:
    """Somebody's classic queue has the name: it is told, and the entity behind it works."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url_of(vhost)))
    connection.channel().queue_declare("bad", durable=True)
    connection.close()
    async with open_door(endpoint, broker.management_url) as door:
        with pytest.raises(EntityConflict, match="bad"):
            await door.namespace.apply(
                model.Namespace(queues=(model.Queue(name="bad"), model.Queue(name="good")))
            )
        await door.namespace.reconciler.check()

        await door.namespace.send(EntityPath("good"), [outgoing("hello")])
        (received,) = await door.client(path=EntityPath("good")).receive()
        assert received.record.body == b"hello"
        with pytest.raises(EntityNotFound):
            door.namespace.entity(EntityPath("bad"))
        with pytest.raises(EntityConflict, match="bad"):
            await door.namespace.administration.create(model.Queue(name="bad"))


async def test_an_entity_that_is_deleted_and_made_again_begins_anew(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Its messages are gone, and numbers begin with 1."""
    async with open_door(endpoint, broker.management_url, model.Queue(name="orders")) as door:
        await door.send("a", "b")
        await door.client().receive(1)

        await door.namespace.administration.delete("ORDERS")
        with pytest.raises(EntityNotFound):
            door.namespace.entity(door.path)
        await door.namespace.administration.create(model.Queue(name="orders"))
        await door.send("c")
        (received,) = await door.client().receive()

        assert (received.record.body, received.sequence_number) == (b"c", 1)


async def test_a_topic_is_deleted_with_subscriptions_that_this_bridge_has_not_heard_of(
    endpoint: Endpoint, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made anew, the topic has none: they do not come back with their messages."""
    async with (
        open_door(endpoint, broker.management_url, model.Topic(name="events")) as one,
        open_door(endpoint, broker.management_url) as other,
    ):
        monkeypatch.setattr(other.namespace.reconciler.due, "wake_for", lambda path: None)
        there, elsewhere = one.namespace.administration, other.namespace.administration
        made = await there.create(model.Subscription(topic="events", name="audit"))

        await elsewhere.delete("events")
        await elsewhere.create(model.Topic(name="events"))

        assert await elsewhere.read(made.path) is None
        assert (await elsewhere.create(made)).path == made.path


async def test_an_update_that_knows_nothing_of_a_new_rule_keeps_it(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Another bridge has added it a moment ago."""
    rule = model.Rule(name="new", filter=model.FalseFilter())
    async with open_door(endpoint, broker.management_url) as door:
        entities = door.namespace.administration
        await entities.create(model.Topic(name="events"))
        read = await entities.create(model.Subscription(topic="events", name="all"))
        await entities.create_rule(read.path, rule)

        await entities.update(replace(read, max_delivery_count=3))

        found = entities.get(read.path)
        assert isinstance(found, model.Subscription)
        assert (found.max_delivery_count, found.rules) == (3, (*read.rules, rule))


async def test_nothing_is_made_of_an_entity_that_is_deleted_meanwhile(
    endpoint: Endpoint, broker: Broker, vhost: str
) -> None:
    """One bridge makes what an imported definition needs, another deletes the entity."""
    queue = model.Queue(name="orders")

    def is_its_queue(method: pamqp.base.Frame) -> bool:
        return isinstance(method, spec.Queue.Declare) and method.queue == names.active_queue(
            "orders"
        )

    with Relay(broker.url_of(vhost), holds=is_its_queue) as relay:
        async with (
            open_door(parse_url(relay.url), broker.management_url, with_sidecar=False) as one,
            open_door(endpoint, broker.management_url, with_sidecar=False) as other,
        ):
            name = definitions.parameter_name(vhost, "orders")
            await one.management.put_global_parameter(name, definitions.to_json(queue))
            making = asyncio.create_task(one.namespace.reconciler.check())
            await until(relay.holding.is_set)
            deleting = asyncio.create_task(other.namespace.administration.delete("orders"))
            # It waits for the one that makes it, or is done.
            await asyncio.wait((deleting,), timeout=2)
            relay.release()
            await asyncio.gather(making, deleting)

            left = [row["name"] for row in await one.management.queues()]
            assert [each for each in left if each.startswith("orders")] == []


async def test_a_bridge_that_starts_declares_nothing_that_is_there(
    endpoint: Endpoint, broker: Broker, vhost: str
) -> None:
    """Its listing is enough: it looks at no entity by itself because it has not before."""
    queues = [model.Queue(name=f"orders-{number}") for number in range(5)]
    async with open_door(endpoint, broker.management_url, *queues, with_sidecar=False):
        pass
    declared: list[str] = []

    def is_noted(method: pamqp.base.Frame) -> bool:
        if isinstance(method, spec.Queue.Declare) and method.queue.startswith("orders"):
            declared.append(method.queue)
        return False

    with Relay(broker.url_of(vhost), holds=is_noted) as relay:
        through = parse_url(relay.url)
        async with open_door(through, broker.management_url, with_sidecar=False) as door:
            await door.namespace.reconciler.check()
    assert declared == []


@pytest.mark.parametrize(
    "before", ["exchanges", "queues", "bindings", "policies", "global-parameters"]
)
async def test_a_bridge_that_starts_undoes_no_change_of_another(
    endpoint: Endpoint, broker: Broker, before: str
) -> None:
    """Entities that are deleted meanwhile stay deleted, and changed ones stay as they are."""
    there = model.Queue(name="gone"), model.Queue(name="changed", max_delivery_count=9)
    async with (
        Interrupted(endpoint, broker.management_url) as management,
        open_door(endpoint, broker.management_url, *there, with_sidecar=False) as other,
    ):
        entities = other.namespace.administration

        async def happens() -> None:
            await entities.delete("gone")
            await entities.update(replace(entities.get("changed"), max_delivery_count=3))

        management.happens = happens  # type: ignore[method-assign]
        namespace = RabbitNamespace(endpoint, management, name="starting")
        await namespace.start()
        management.before = before
        await namespace.apply(model.Namespace(queues=(model.Queue(name="new"),)))
        await namespace.close()

        await other.namespace.directory.read()
        found = other.namespace.directory.namespace
        assert [(each.name, each.max_delivery_count) for each in found.queues] == [
            ("changed", 3),
            ("new", 10),
        ]
        left = [row["name"] for row in await management.queues()]
        assert [each for each in left if each.startswith("gone")] == []


async def test_a_definition_that_is_changed_by_hand_during_a_start_is_followed(
    endpoint: Endpoint, broker: Broker
) -> None:
    """The start has made what the definition said before; the first check makes the rest."""
    there = model.Queue(name="orders")
    async with open_door(endpoint, broker.management_url, there, with_sidecar=False):
        pass
    async with Interrupted(endpoint, broker.management_url) as management:
        namespace = RabbitNamespace(endpoint, management, name="starting")
        await namespace.start()
        dead_letters = names.dead_letter_exchange("orders")
        before = await management.bindings_from(dead_letters)
        now = namespace.directory.receive_entity(EntityPath("orders"))
        assert isinstance(now, model.Queue)
        changed = replace(now, dead_lettering_on_message_expiration=True)
        name = definitions.parameter_name(endpoint.vhost, "orders")

        def happens(made: int, count: int) -> None:
            changing.append(
                asyncio.ensure_future(
                    management.put_global_parameter(name, definitions.to_json(changed))
                )
            )

        changing: list[asyncio.Future[None]] = []
        await namespace.apply(model.Namespace(queues=(model.Queue(name="new"),)), happens)
        await asyncio.gather(*changing)
        await namespace.reconciler.check()
        wanted = compile_part(
            model.Namespace(queues=(changed,)), (changed,), namespace.capabilities
        )
        bindings = [binding_of(row) for row in await management.bindings_from(dead_letters)]
        assert len(before) > 0
        assert {key_of(each) for each in bindings} == {
            key_of(each) for each in wanted.bindings if each.source == dead_letters
        }
        await namespace.close()


async def test_an_entity_that_rabbitmq_refuses_to_make_keeps_no_other_one_waiting(
    endpoint: Endpoint, broker: Broker, vhost: str
) -> None:
    """Somebody's exclusive queue has its name; it is made when that is gone."""
    async with open_door(endpoint, broker.management_url, with_sidecar=False) as door:
        with pika.BlockingConnection(pika.URLParameters(broker.url_of(vhost))) as connection:
            connection.channel().queue_declare("first", exclusive=True)
            for name in ("first", "second"):
                form = definitions.to_json(model.Queue(name=name))
                await door.management.put_global_parameter(
                    definitions.parameter_name(vhost, name), form
                )
            await door.namespace.reconciler.check()
            assert await door.management.queue(names.active_queue("second"))
            assert door.namespace.directory.find("second") is not None
            assert any("'first'" in each for each in door.namespace.state.warnings)
        await door.namespace.reconciler.check()
        assert await door.management.queue(names.dead_letter_queue("first"))
        assert not any("refuses" in each for each in door.namespace.state.warnings)


async def test_an_entity_is_deleted_whole_though_the_connection_is_lost_meanwhile(
    endpoint: Endpoint, broker: Broker, vhost: str
) -> None:
    """Without its definition nobody else would find what is left of it."""
    deleted: list[str] = []

    def is_second(method: pamqp.base.Frame) -> bool:
        if isinstance(method, spec.Queue.Delete) and method.queue.startswith("orders"):
            deleted.append(method.queue)
        return len(deleted) == 2

    queue = model.Queue(name="orders")
    with Relay(broker.url_of(vhost), holds=is_second) as relay:
        through = parse_url(relay.url)
        async with open_door(through, broker.management_url, queue, with_sidecar=False) as door:
            deleting = asyncio.create_task(door.namespace.administration.delete("orders"))
            await until(relay.holding.is_set)
            deleted.append("")
            relay.cut()
            await deleting

            left = [row["name"] for row in await door.management.queues()]
            assert [each for each in left if each.startswith("orders")] == []
