"""The change lock of an entity: whoever has it is the only one that changes the entity."""

from __future__ import annotations

import asyncio

from bridge.broker.connection.endpoint import Endpoint
from bridge.model import entity as model
from tests.fixtures.broker import Broker
from tests.integration.door import open_door

CLIENTS = 3
CHANGES = 4


async def test_changes_of_one_entity_through_one_bridge_take_turns(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Changes that come while another one waits, or has just begun, wait too."""
    async with open_door(endpoint, broker.management_url, model.Queue(name="orders")) as door:
        administration = door.namespace.administration
        inside: set[int] = set()

        async def change(client: int) -> None:
            for _ in range(CHANGES):
                async with administration.alone("orders"):
                    assert not inside
                    inside.add(client)
                    await administration.read("orders")
                    inside.remove(client)

        await asyncio.gather(*map(change, range(CLIENTS)))
        assert not administration._locks
