"""An entity that requires sessions is deleted while sessions are held and waited for."""

from __future__ import annotations

import asyncio

import pytest

from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import NotFound
from bridge.engine.api import Complete
from bridge.model import entity as model
from bridge.model.errors import EntityNotFound, ServerBusy, ServiceBusError
from bridge.model.name import EntityPath
from bridge.topology import names
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door
from tests.integration.session_door import PATH, SessionClient, bodies, send

QUEUE = model.Queue(name="orders", requires_session=True)


async def _knows(door: Door, *, is_there: bool) -> None:
    await until(lambda: (door.namespace.directory.find("orders") is not None) is is_there)


async def test_everybody_is_told_nothing_is_left_and_a_new_one_works(
    endpoint: Endpoint, broker: Broker, connection: Connection
) -> None:
    """At the bridge that holds the messages and at another one."""
    async with (
        open_door(endpoint, broker.management_url, QUEUE) as first,
        open_door(endpoint, broker.management_url, QUEUE, with_sidecar=False) as second,
    ):
        await send(first, "a", "old")
        await send(first, "b", "old")
        held = [await SessionClient(first).accept("a"), await SessionClient(second).accept("b")]
        for each in held:
            await each.receive()
        await first.namespace.set_session_state(PATH, "a", b"old")
        waiting = [asyncio.create_task(SessionClient(each).accept()) for each in (first, second)]
        doors = first, second  # either may be the one that all shards are to be owned by
        await until(lambda: any("2 waiting" in repr(each.namespace._sessions) for each in doors))
        await first.namespace.administration.delete("orders")
        for each in held:
            assert isinstance(await each.wait_for_loss(), ServiceBusError)
        for wait in waiting:
            with pytest.raises((EntityNotFound, ServerBusy)):
                async with asyncio.timeout(120):
                    await wait
        for door in (first, second):
            await _knows(door, is_there=False)
            with pytest.raises(EntityNotFound):
                await SessionClient(door).accept("a", timeout_s=1)
            await until(lambda door=door: not door.namespace._sessions.owners.all)
        for name in (names.active_queue("orders"), names.sessions_queue("orders")):
            with pytest.raises(NotFound):
                await (await connection.channel()).declarations.declare_queue(name, passive=True)
        assert first.namespace._sessions.owners.budget.used_bytes == 0
        await first.namespace.administration.create(QUEUE)
        await _knows(second, is_there=True)
        await send(first, "a", "new")
        again = await SessionClient(second).accept(timeout_s=120)
        assert again.receiver.session_id == "a"
        assert await second.namespace.session_state(EntityPath("orders"), "a") is None
        (message,) = await again.receive()
        assert bodies([message]) == ["new"]
        await again.settle(message, Complete())
