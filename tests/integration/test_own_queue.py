"""A bridge that cannot declare its own queue for a while: receivers receive when it can again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

from bridge.broker.connection.endpoint import Endpoint
from bridge.model import entity as model
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door

WITHIN_S = 120.0
REFUSED_S = 10.0

EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}
NOTHING_NEW = {"configure": "^$", "write": ".*", "read": ".*"}


@dataclass
class Site:
    """A bridge with a user of its own, whose name is the virtual host's."""

    broker: Broker
    vhost: str
    door: Door

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the management API."""
        return await asyncio.to_thread(self.broker.management, method, path, body)

    async def end_connection(self) -> None:
        """End the connection that consumes the bridge's own queue, as an operator does."""
        consuming: list[str] = []

        async def is_listed() -> bool:
            consuming[:] = [
                each["name"]
                for each in await self.ask("GET", f"/api/vhosts/{self.vhost}/connections")
                if each.get("user_provided_name") == "test consuming"
            ]
            return bool(consuming)

        await until(is_listed, within_s=WITHIN_S)
        for name in consuming:
            await self.ask("DELETE", f"/api/connections/{quote(name, safe='')}")


@pytest_asyncio.fixture
async def site(broker: Broker, vhost: str, endpoint: Endpoint) -> AsyncIterator[Site]:
    """A bridge with one queue."""
    user = f"/api/users/{vhost}"
    await asyncio.to_thread(
        broker.management, "PUT", user, {"password": "p", "tags": "policymaker,monitoring"}
    )
    broker.management("PUT", f"/api/permissions/{vhost}/{vhost}", EVERYTHING)
    login = replace(endpoint, user=vhost, password="p")
    address = broker.management_url.partition("@")[2]
    async with open_door(login, f"http://{address}", model.Queue(name="orders")) as door:
        yield Site(broker, vhost, door)
    broker.management("DELETE", user)


@contextmanager
def no_new_queue(site: Site) -> Iterator[None]:
    """The virtual host has as many queues as it may have."""
    path = f"/api/vhost-limits/{site.vhost}/max-queues"
    site.broker.management("PUT", path, {"value": 1})
    yield
    site.broker.management("DELETE", path)


@contextmanager
def no_right_to_configure(site: Site) -> Iterator[None]:
    """The bridge's user may declare nothing."""
    put = partial(site.broker.management, "PUT", f"/api/permissions/{site.vhost}/{site.vhost}")
    put(NOTHING_NEW)
    yield
    put(EVERYTHING)


@pytest.mark.parametrize(
    "refusing", [no_new_queue, pytest.param(no_right_to_configure, marks=pytest.mark.long)]
)
async def test_receivers_receive_once_the_bridge_may_declare_its_queue_again(
    site: Site, refusing: Callable[[Site], Any]
) -> None:
    """Meanwhile health says why they get nothing; receivers opened before and after, by lock."""
    door = site.door
    client = door.client()
    await door.send("before")
    await door.complete(*await client.receive())
    with refusing(site):
        await site.end_connection()
        await until(lambda: door.namespace.state.reasons, within_s=WITHIN_S)
        await asyncio.sleep(REFUSED_S)
        assert any("consuming" in each for each in door.namespace.state.reasons)
    await until(lambda: door.namespace.state.is_ready, within_s=WITHIN_S)
    await door.send("after", "later")
    async with asyncio.timeout(WITHIN_S):
        [after] = await client.receive()
        await door.complete(after)
        [later] = await door.client().receive()
        await door.complete(later)
    assert (after.record.body, later.record.body) == (b"after", b"later")
