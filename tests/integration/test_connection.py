"""Connections on a real RabbitMQ: logins, hosts, alarms, silence, and boots."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import quote

import pytest

from bridge.broker.connection.boot import node_boot
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint, parse_url
from bridge.broker.errors import ConnectionLost, LoginRefused
from bridge.wire.basic import Properties
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.inbox import QUORUM, WITHIN_S

PLAIN = Properties(delivery_mode=2).encode()


async def test_a_connection_says_what_it_is_connected_to(
    broker: Broker, connection: Connection
) -> None:
    """RabbitMQ's version is there without asking the management API."""
    assert connection.server_properties["version"] == broker.version_text
    assert repr(connection) == "<Connection 'test' [open, 0 channels]>"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"password": "wrong"}, "ACCESS_REFUSED"),
        ({"user": "nobody"}, "ACCESS_REFUSED"),
        ({"vhost": "nowhere"}, "NOT_ALLOWED"),
        ({"is_external": True}, "EXTERNAL"),
    ],
)
async def test_a_refused_login_is_told_from_a_missing_rabbitmq(
    endpoint: Endpoint, change: dict[str, object], sentence: str
) -> None:
    """It is not retryable, and carries RabbitMQ's words."""
    with pytest.raises(LoginRefused, match=sentence) as refused:
        await Connection.open(replace(endpoint, **change), name="test")  # type: ignore[arg-type]

    assert not refused.value.is_retryable


async def test_hosts_are_tried_in_turn(endpoint: Endpoint) -> None:
    """A host that refuses is passed over; when none is left, each one's fault is told."""
    closed = ("127.0.0.1", 1)
    connection = await Connection.open(
        replace(endpoint, hosts=(closed, *endpoint.hosts)), name="test"
    )
    await connection.close()
    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1.*; 127\.0\.0\.1:2") as lost:
        await Connection.open(replace(endpoint, hosts=(closed, ("127.0.0.1", 2))), name="test")

    assert lost.value.is_retryable


async def test_an_operator_closes_a_connection(
    broker: Broker, endpoint: Endpoint, connection: Connection
) -> None:
    """RabbitMQ's reason reaches the connection, its channels, and what waits on them."""
    channel = await connection.channel()
    await channel.publisher.confirm_select()

    def close_it() -> bool:
        rows = broker.management("GET", "/api/connections")
        names = [row["name"] for row in rows if row.get("vhost") == endpoint.vhost]
        for name in names:
            broker.management("DELETE", f"/api/connections/{quote(name, safe='')}")
        return bool(names)

    await until(lambda: asyncio.to_thread(close_it))
    await asyncio.wait_for(connection.closed.wait(), WITHIN_S)

    assert connection.close_reason is not None
    assert connection.close_reason.code == 320
    assert channel.close_reason == connection.close_reason
    with pytest.raises(ConnectionLost):
        await connection.channel()


@pytest.mark.long
async def test_an_alarm_blocks_and_unblocks(start_broker: Callable[[], Broker]) -> None:
    """Publishes wait for the end of a memory alarm, acks on another connection do not."""
    broker = await asyncio.to_thread(start_broker)
    node = broker.node
    assert node is not None
    endpoint = parse_url(broker.url)
    publishing = await Connection.open(endpoint, name="publishing")
    consuming = await Connection.open(endpoint, name="consuming")
    states: asyncio.Queue[tuple[bool, str]] = asyncio.Queue()
    publishing.on_blocked = lambda *state: states.put_nowait(state)
    sender, receiver = await publishing.channel(), await consuming.channel()
    await sender.publisher.confirm_select()
    await sender.declarations.declare_queue("q", arguments=QUORUM)
    for body in (b"1", b"2"):
        await sender.publisher.publish_confirmed("", "q", PLAIN, body)
    delivery = await receiver.consumers.get("q")
    assert delivery is not None
    await asyncio.to_thread(node.rabbitmqctl, "set_vm_memory_high_watermark", "0.000001")
    blocked = asyncio.ensure_future(sender.publisher.publish_confirmed("", "q", PLAIN, b"3"))

    assert (await asyncio.wait_for(states.get(), WITHIN_S))[0] is True
    assert publishing.is_blocked
    receiver.consumers.ack(delivery.tag)
    assert await receiver.consumers.get("q") is not None
    assert not blocked.done()
    await asyncio.to_thread(node.rabbitmqctl, "set_vm_memory_high_watermark", "0.6")
    assert (await asyncio.wait_for(states.get(), WITHIN_S)) == (False, "")
    await asyncio.wait_for(blocked, WITHIN_S)
    await publishing.close()
    await consuming.close()


@pytest.mark.long
async def test_a_rabbitmq_that_stands_still_is_noticed(
    start_broker: Callable[[], Broker],
) -> None:
    """A process that is stopped keeps its sockets open and says nothing: heartbeats tell."""
    broker = await asyncio.to_thread(start_broker)
    node = broker.node
    assert node is not None
    connection = await Connection.open(parse_url(broker.url), name="test", heartbeat_s=1)
    channel = await connection.channel()
    node.signal(signal.SIGSTOP)
    try:
        with pytest.raises(ConnectionLost, match="silent"):
            await asyncio.wait_for(channel.barrier(), WITHIN_S)
    finally:
        node.signal(signal.SIGCONT)


@pytest.mark.long
async def test_a_boot_has_a_name_of_its_own(start_broker: Callable[[], Broker]) -> None:
    """Every connection to one boot of a node sees the same name, and another one after a kill."""
    broker = await asyncio.to_thread(start_broker)
    assert broker.node is not None
    names = []
    for _ in range(2):
        for _ in range(2):
            connection = await Connection.open(parse_url(broker.url), name="test")
            names.append(await node_boot(connection))
            await connection.close()
        await asyncio.to_thread(broker.node.kill)
        await asyncio.to_thread(broker.node.start)

    assert names[0] == names[1]
    assert names[2] == names[3]
    assert names[0] != names[2]


@pytest.mark.parametrize("turns", range(1, 6))
async def test_a_close_that_is_cancelled_ends_the_connection(
    endpoint: Endpoint, turns: int
) -> None:
    """A caller that is cancelled while it closes a connection leaves no socket open."""
    connection = await Connection.open(endpoint, name="cancelled")
    await connection.channel()
    closing = asyncio.create_task(connection.close())
    for _ in range(turns):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert connection.is_closed
