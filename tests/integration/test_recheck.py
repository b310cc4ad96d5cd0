"""The check of all links after a change of entities: a few in each turn of the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from bridge.broker.connection.endpoint import Endpoint
from bridge.gateway.links.receiving import ReceivingLink
from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from bridge.wire.amqp10.performatives import Attach, Detach
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import open_door
from tests.integration.gateway_door import peer, serve

KEPT, DELETED = model.Queue(name="orders"), model.Queue(name="other")
PEERS, LINKS, FIRST = 8, 50, 100
A_TURN = 200


async def test_many_links_are_checked_in_many_turns(
    endpoint: Endpoint, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are, those of a deleted entity end, and other work has its turn in between."""
    checked: Counter[int] = Counter()
    turn = 0
    refusal = ReceivingLink.refusal

    def count(link: ReceivingLink) -> ServiceBusError | None:
        checked[turn] += 1
        return refusal(link)

    monkeypatch.setattr(ReceivingLink, "refusal", count)

    async with (
        open_door(endpoint, broker.management_url, KEPT, DELETED) as door,
        serve(door) as served,
        AsyncExitStack() as stack,
    ):
        peers = [await stack.enter_async_context(peer(served)) for _ in range(PEERS)]
        for of in peers:
            for handle in range(FIRST, FIRST + LINKS):
                of.receive_from(handle, "other" if handle == FIRST else "orders")
            for handle in range(FIRST, FIRST + LINKS):
                await of.next(Attach, handle=handle)
        await door.namespace.administration.delete("other")
        checked.clear()
        served.gateway.connections.recheck()
        served.gateway.connections.recheck()

        while sum(checked.values()) < PEERS * LINKS:
            turn += 1
            await asyncio.sleep(0)
        assert max(checked.values()) <= A_TURN
        for of in peers:
            assert (await of.next(Detach, handle=FIRST)).error is not None

        async def only_those_are_gone() -> bool:
            alive = [len(each.links) for each in served.gateway.connections]
            return alive == [LINKS - 1] * PEERS

        await until(only_those_are_gone)
