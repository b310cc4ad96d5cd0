"""An entity's first transaction on a real RabbitMQ: all bridges know before a commit goes out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.settlement.locktable import INSTANCE_BYTES
from bridge.model import entity as model
from bridge.model.errors import EntityNotFound, ServerBusy
from bridge.model.name import EntityPath
from bridge.topology import names
from bridge.topology.parts import bound_by_own_name
from bridge.wire import commits
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door
from tests.integration.transacting import member

AUDIT, OTHER = "events/subscriptions/audit", "events/subscriptions/other"
QUEUES = (model.Queue(name="orders"), model.Queue(name="plain"))
TOPIC = model.Topic(
    name="events",
    subscriptions=tuple(
        model.Subscription(topic="events", name=each) for each in ("audit", "other")
    ),
)


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge whose client commits."""
    async with member(endpoint, broker.management_url, *QUEUES, with_sidecar=False) as opened:
        await opened.namespace.apply(model.Namespace(queues=QUEUES, topics=(TOPIC,)))
        yield opened


@pytest_asyncio.fixture
async def beside(door: Door, endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """Another one, known to the first."""
    async with member(endpoint, broker.management_url, with_sidecar=False) as opened:
        other = opened.namespace.membership.standbys.own
        await until(lambda: other in door.namespace.membership._features)
        yield opened


def knows(door: Door, path: str) -> bool:
    """Whether a bridge has read that an entity had a transaction."""
    return door.namespace.entity(EntityPath(path)).transactional


async def test_every_bridge_knows_before_the_first_commit_and_the_next_one_costs_nothing(
    door: Door, beside: Door, caplog: pytest.LogCaptureFixture
) -> None:
    """Of this entity alone; another bridge has a round of questions of its own."""
    caplog.set_level(logging.INFO)
    first = door.namespace.transactional
    await asyncio.gather(first("Orders"), first("orders"))
    assert knows(door, "orders")
    assert knows(beside, "orders")
    assert not knows(door, "plain")
    assert caplog.text.count("entity.transactional path=orders") == 1
    rounds = "transactions.followed path=orders bridges=2"
    assert rounds in caplog.text
    caplog.clear()
    waits_for_nothing = first("orders")
    with pytest.raises(StopIteration):
        waits_for_nothing.send(None)
    await beside.namespace.transactional("orders")
    assert caplog.text.count(rounds) == 1
    assert "entity.transactional" not in caplog.text


async def test_a_subscription_is_marked_with_its_topic_and_another_one_by_itself(
    door: Door, beside: Door
) -> None:
    """The topic's leader carries its commits out; its own deliverers ask."""
    await door.namespace.transactional(AUDIT)
    assert all(knows(beside, each) for each in ("events", AUDIT))
    assert not knows(beside, OTHER)
    await door.namespace.transactional("events")
    assert not knows(beside, OTHER)
    await door.namespace.transactional(OTHER)
    assert knows(beside, OTHER)


async def test_a_bridge_that_does_not_answer_holds_the_first_commit_up(
    door: Door, beside: Door, confirming: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may deliver without asking. The same call goes on when it is gone."""
    monkeypatch.setattr("bridge.engine.definition_followers.FOLLOWED_S", 1.0)
    silent = names.bridge_queue(bytes(range(INSTANCE_BYTES)))
    declarations = confirming.declarations
    await declarations.declare_queue(silent, durable=False, exclusive=True, auto_delete=True)
    await declarations.bind(bound_by_own_name(names.ADMINISTRATION, silent))
    for each in (door, beside):
        with pytest.raises(ServerBusy, match=r"Not all bridges .* 'orders': no answer .* again"):
            await each.namespace.transactional("orders")
    await declarations.delete_queue(silent)
    await door.namespace.transactional("orders")


async def test_beside_an_older_bridge_nothing_is_marked(
    door: Door, beside: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would lead the entity, and deliver, without knowing how."""
    monkeypatch.setitem(
        door.namespace.membership._features, beside.namespace.membership.standbys.own, frozenset()
    )
    monkeypatch.setattr(door.namespace.membership, "_met", lambda *told: None)
    with pytest.raises(ServerBusy, match=commits.FEATURE):
        await door.namespace.transactional("orders")
    assert not knows(door, "orders")


async def test_an_entity_that_is_made_anew_begins_without_transactions(
    door: Door, beside: Door
) -> None:
    """An update keeps them; one that is not there is refused."""
    administration, first = door.namespace.administration, door.namespace.transactional
    await first("orders")
    await administration.update(model.Queue(name="orders", max_delivery_count=3))
    assert knows(door, "orders")
    await administration.delete("orders")
    with pytest.raises(EntityNotFound):
        await first("orders")
    await administration.create(model.Queue(name="orders"))
    assert not knows(door, "orders")
    await first("orders")
    assert knows(door, "orders")
    assert knows(beside, "orders")
