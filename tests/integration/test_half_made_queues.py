"""A queue that RabbitMQ was killed over while it made it is made anew."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.administration.half_made_queues import LOOK_S, SILENT_MS
from bridge.engine.clock import now_ms
from bridge.machine.suspects import Suspect
from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from bridge.model.name import EntityPath
from bridge.topology import names
from tests.fixtures.broker import Broker
from tests.fixtures.dead import dead_queue, half_make_queue
from tests.fixtures.waiting import until
from tests.integration.door import open_door, outgoing
from tests.integration.session_door import SessionClient

pytestmark = pytest.mark.kills

SESSIONS = model.Queue(name="sessions", requires_session=True)
ORDERS = model.Queue(name="orders")


@pytest.fixture(scope="module")
def broker(own_broker: Broker) -> Broker:
    """No other test meets what these do to a RabbitMQ."""
    return own_broker


def is_old(suspect: Suspect) -> bool:
    """Whether a queue gives no answer for as long as it takes until it is looked at."""
    return suspect.since_ms < now_ms() - SILENT_MS


async def is_done(work: Awaitable[object]) -> bool:
    """Whether something is done; RabbitMQ may refuse it for a while."""
    try:
        await work
    except ServiceBusError:
        return False
    return True


async def test_sessions_are_accepted_again(endpoint: Endpoint, broker: Broker, vhost: str) -> None:
    """Who asks for a session is refused for a while; then the queue of states is a new one."""
    path = EntityPath(SESSIONS.name)
    async with open_door(endpoint, broker.management_url, SESSIONS) as door:
        await SessionClient(door, path).accept("s0")
        queues = await door.management.queues_ending("$sessions")
    for queue in queues:
        await half_make_queue(broker, vhost, queue)
    async with open_door(endpoint, broker.management_url, SESSIONS) as door:
        await until(lambda: is_done(SessionClient(door, path).accept("s0")))
        await door.namespace.set_session_state(path, "s0", b"now")
        assert await door.namespace.session_state(path, "s0") == b"now"
        assert any("$sessions" in each for each in door.namespace.state.warnings)


async def test_an_entity_with_a_half_made_inbox_takes_messages_again(
    endpoint: Endpoint, broker: Broker, vhost: str
) -> None:
    """Its leader begins anew with a new inbox."""
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await until(lambda: door.sidecar.meters[ORDERS.name].is_active)
    await half_make_queue(broker, vhost, names.inbox(ORDERS.name))
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await until(lambda: is_done(door.namespace.send(door.path, [outgoing("one")])))
        (message,) = await door.client().receive()
        assert message.record.body == b"one"


async def test_a_queue_that_is_only_silent_keeps_its_messages(
    endpoint: Endpoint, broker: Broker, vhost: str
) -> None:
    """A Raft server that is stopped has a log that nobody sees: nothing is deleted."""
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await door.send("one")
        receiver = door.client()
        async with dead_queue(broker, vhost, ORDERS.name):
            receiver.receiver.add_credit(1)
            await until(lambda: any(is_old(each) for each in door.namespace.state.silent))
            await asyncio.sleep(3 * LOOK_S)
        (message,) = await receiver.wait(1)
        assert message.record.body == b"one"
