"""A relay from one queue to another; prints its rate, or the milliseconds of single messages.

python -m tests.bench.relay_client CONNECTION_STRING SOURCE TARGET SCENARIO COUNT

`ours` is the relay's own route. `azure-servicebus` is the best that this library can be made to:
messages that come ahead, batches of 100, two of them under way, and completions together. `single`
are messages one by one, with the time from the send to the target's receive.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bridge.relay.plan.route import Place, RelayFile, Route
from bridge.relay.plan.side import Side
from bridge.relay.running.relay import Relay
from bridge.remote.address import RemoteAddress
from bridge.remote.credentials import credential_in
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.outcomes import Complete
from tests.bench.remote_client import CREDIT, WAIT_S, send_batches
from tests.bench.sdk_client import BATCH, BODY
from tests.fixtures.waiting import until

AT_ONCE = 2


def namespace_of(connection: str) -> RemoteNamespace:
    """Return the bridge's namespace."""
    credential = credential_in(connection)
    assert credential is not None
    return RemoteNamespace(RemoteAddress.of(connection), credential)


def relay_of(connection: str, source: str, target: str) -> Relay:
    """Return a relay with one route; both sides are the same bridge."""
    sides = {
        name: Side(name=name, id=name, host="localhost", connection_string=connection)
        for name in ("one", "other")
    }
    route = Route(
        name="bench", source=Place(sides["one"], source), target=Place(sides["other"], target)
    )
    return Relay(RelayFile(sides, (route,)))


async def ours(connection: str, source: str, target: str, count: int) -> dict[str, Any]:
    """Messages a second from the first confirmed one on; all of them are counted at the target."""
    async with namespace_of(connection) as namespace:
        await send_batches(await namespace.sender(source), count, 4)
        relay = relay_of(connection, source, target)
        relay.start()
        (status,) = relay.statuses
        await until(lambda: status.relayed)
        first, begin = status.relayed, time.perf_counter()
        await until(lambda: status.relayed >= count)
        rate = (status.relayed - first) / (time.perf_counter() - begin)
        await relay.stop()
        await account(namespace, source, target, count)
    return {"rate": rate}


async def account(namespace: RemoteNamespace, source: str, target: str, count: int) -> None:
    """Check that all messages are at the target, and none at the source."""
    receiver = await namespace.receiver(target, "receive-and-delete")
    found = 0
    while found < count and (more := await receiver.receive(2_000, WAIT_S)):
        found += len(more)
    assert found == count, f"{found} of {count} messages came"
    management = await namespace.management(source)
    assert not await management.peek(1, 1)


async def theirs(connection: str, source: str, target: str, count: int) -> dict[str, Any]:
    """The same by azure-servicebus."""
    from azure.servicebus import ServiceBusMessage
    from azure.servicebus.aio import ServiceBusClient

    async with namespace_of(connection) as namespace:
        await send_batches(await namespace.sender(source), count, 4)
        async with (
            ServiceBusClient.from_connection_string(connection) as client,
            client.get_queue_receiver(source, prefetch_count=CREDIT) as receiver,
            client.get_queue_sender(target) as sender,
        ):
            done = 0

            async def hand_over(messages: list[Any]) -> None:
                nonlocal done
                batch = await sender.create_message_batch()
                for each in messages:
                    batch.add_message(
                        ServiceBusMessage(
                            b"".join(each.body),
                            application_properties=each.application_properties,
                            message_id=each.message_id,
                        )
                    )
                await sender.send_messages(batch)
                await asyncio.gather(*(receiver.complete_message(each) for each in messages))
                done += len(messages)

            received, begin = 0, 0.0
            under_way: set[asyncio.Task[None]] = set()
            while received < count:
                messages = await receiver.receive_messages(BATCH, max_wait_time=WAIT_S)
                if not begin:
                    begin = time.perf_counter()
                received += len(messages)
                if len(under_way) >= AT_ONCE:
                    _, under_way = await asyncio.wait(
                        under_way, return_when=asyncio.FIRST_COMPLETED
                    )
                under_way.add(asyncio.create_task(hand_over(messages)))
            await asyncio.gather(*under_way)
            rate = done / (time.perf_counter() - begin)
        await account(namespace, source, target, count)
    return {"rate": rate}


async def single(connection: str, source: str, target: str, count: int) -> dict[str, Any]:
    """Milliseconds of single messages: through the relay, and sent and received without it."""
    async with namespace_of(connection) as namespace:
        senders = [await namespace.sender(each) for each in (source, target)]
        receiver = await namespace.receiver(target, credit=1)
        relay = relay_of(connection, source, target)
        relay.start()
        samples: list[list[float]] = [[], []]
        for number in range(2 * count):
            way = number % 2
            begin = time.perf_counter()
            await senders[way].send([RemoteMessage.of(data=BODY)])
            (found,) = await receiver.receive(1, WAIT_S)
            samples[way].append((time.perf_counter() - begin) * 1000)
            await receiver.settle(found, Complete())
        await relay.stop()
    return {"relayed_ms": samples[0], "direct_ms": samples[1]}


SCENARIOS: dict[str, Callable[[str, str, str, int], Awaitable[dict[str, Any]]]] = {
    "ours": ours,
    "azure-servicebus": theirs,
    "single": single,
}


if __name__ == "__main__":
    connection, source, target, scenario, count = sys.argv[1:]
    measured = SCENARIOS[scenario](connection, source, target, int(count))
    print(json.dumps(asyncio.run(measured)))  # type: ignore[arg-type]
