"""A declaration that RabbitMQ answers by ending the connection (541) costs its own entity alone."""

from __future__ import annotations

import asyncio
import urllib.error
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from bridge.broker.connection.endpoint import parse_url
from bridge.broker.errors import BrokerError
from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from bridge.model.name import EntityPath
from bridge.topology import names
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing

WAIT_S = 120.0
FAILED = 5

CRASH = "application:set_env(rabbit, quorum_cluster_size, of_no_size)."
HEAL = "application:unset_env(rabbit, quorum_cluster_size)."
"""Erlang: a declaration of a quorum queue crashes RabbitMQ's channel, as it does under load."""


@pytest.fixture
def own_broker(start_broker: Callable[[], Broker]) -> Broker:
    """A RabbitMQ that nobody else uses."""
    return start_broker()


@pytest_asyncio.fixture
async def door(own_broker: Broker) -> AsyncIterator[Door]:
    """A bridge on it, with queues of which some are to be deleted."""
    old = [model.Queue(name=f"old{number}") for number in range(FAILED)]
    queues = model.Queue(name="orders"), model.Queue(name="sessions", requires_session=True), *old
    endpoint = parse_url(own_broker.url_of("/"))
    async with open_door(endpoint, own_broker.management_url, *queues) as opened:
        yield opened


@asynccontextmanager
async def crashing(broker: Broker) -> AsyncIterator[None]:
    """RabbitMQ ends each connection that declares a new quorum queue."""
    assert broker.node is not None
    await asyncio.to_thread(broker.node.rabbitmqctl, "eval", CRASH)
    try:
        yield
    finally:
        await asyncio.to_thread(broker.node.rabbitmqctl, "eval", HEAL)


@pytest.mark.long
async def test_others_keep_their_locks_and_the_bridge_its_name(
    own_broker: Broker, door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    """Changes of other entities that are under way succeed; the entity is made when it can be."""
    namespace = door.namespace
    administration = namespace.administration
    await door.send("locked")
    client = door.client()
    [locked] = await client.receive()
    before = await door.namespace.disposal.bridges()
    async with crashing(own_broker):
        failing = [
            asyncio.create_task(administration.create(model.Queue(name=f"new{number}")))
            for number in range(FAILED)
        ]
        for number in range(FAILED):
            await administration.delete(f"old{number}")
        async with asyncio.timeout(WAIT_S):
            failures = await asyncio.gather(*failing, return_exceptions=True)
    assert all(isinstance(each, BrokerError | ServiceBusError) for each in failures), failures
    assert await door.namespace.disposal.bridges() == before
    assert not namespace.state.reasons
    await door.complete(locked)
    assert not [each for each in caplog.messages if "session.unseen" in each]
    made = await administration.create(model.Queue(name="new0"))
    await namespace.send(EntityPath(made.path), [outgoing("sent")])


@pytest.mark.long
async def test_what_was_deleted_of_others_is_made_again_meanwhile(
    own_broker: Broker, door: Door
) -> None:
    """And health names the entity, until that is whole, too."""
    state = door.namespace.state
    refused = "RabbitMQ refuses to make a resource of 'orders'"
    exchange = f"/api/exchanges/%2F/{names.front('sessions')}"
    async with crashing(own_broker):
        own_broker.management("DELETE", f"/api/queues/%2F/{names.active_queue('orders')}")
        own_broker.management("DELETE", exchange)
        await until(lambda: any(refused in each for each in state.warnings))
        await until(lambda: is_there(own_broker, exchange))
        assert state.management is None
    await until(lambda: not any(refused in each for each in state.warnings))
    await door.send("sent")
    await door.client().receive()


def is_there(broker: Broker, path: str) -> bool:
    """Whether RabbitMQ has an object."""
    try:
        broker.management("GET", path)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return False
        raise
    return True
