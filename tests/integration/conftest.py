"""A connection and a channel of the bridge's own client, on the test's virtual host."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint, parse_url
from bridge.sidecar.shared_connection import SharedConnection
from tests.fixtures.broker import Broker


@pytest.fixture
def endpoint(broker: Broker, vhost: str) -> Endpoint:
    """The test's virtual host."""
    return parse_url(broker.url_of(vhost))


@pytest_asyncio.fixture
async def connection(endpoint: Endpoint) -> AsyncIterator[Connection]:
    """A connection to it."""
    opened = await Connection.open(endpoint, name="test")
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def shared(connection: Connection) -> SharedConnection:
    """The connection as sequencers share it."""
    opened = SharedConnection(connection)
    await opened.open()
    return opened


@pytest_asyncio.fixture
async def confirming(connection: Connection) -> Channel:
    """A channel on it with confirms."""
    channel = await connection.channel()
    await channel.publisher.confirm_select()
    return channel
