"""Entities made, changed and deleted one by one, by bridges that know nothing of each other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pika
import pytest

from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.management.api import Management
from bridge.engine.namespace import RabbitNamespace
from bridge.model import entity as model
from bridge.model.errors import (
    EntityAlreadyExists,
    EntityConflict,
    EntityNotFound,
)
from bridge.model.name import EntityPath
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import open_door, outgoing


class Watched(Management):
    """The management API, and which of its listings of a namespace were asked for."""

    def __init__(self, endpoint: Endpoint, url: str) -> None:
        super().__init__(endpoint, url)
        self.listings: list[str] = []

    async def _rows(self, *path: str, columns: Sequence[str] = ()) -> list[dict[str, Any]]:
        self.listings.append(path[0])
        return await super()._rows(*path, columns=columns)


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
        monkeypatch.setattr(other.namespace.reconciler, "wake_for", lambda path: None)
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
