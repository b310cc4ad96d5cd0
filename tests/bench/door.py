"""A door for the bench: envelopes out, answers in; and a native consumer with a clock."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Sequence

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.delivery import Delivery
from bridge.topology import names
from bridge.wire import envelope
from bridge.wire.basic import Properties
from bridge.wire.envelope import Item, Operation
from bridge.wire.reply import Done, decode_reply

REPLY_TO = "amq.rabbitmq.reply-to"
PROPERTIES = Properties(delivery_mode=2, content_type="text/plain").encode()


class Refusal(Exception):
    """The sequencer did not do it."""


class Door:
    """Sends, schedules and cancels messages of one entity, and waits for the answers."""

    def __init__(self, channel: Channel, entity: str) -> None:
        self._channel = channel
        self._entity = entity
        self._waiting: dict[str, asyncio.Future[tuple[int, ...]]] = {}

    @classmethod
    async def open(cls, connection: Connection, entity: str) -> Door:
        """Open a channel with a reply address."""
        door = cls(await connection.channel(), entity)
        await door._channel.consumers.consume(REPLY_TO, door._on_reply, no_ack=True)
        return door

    async def send(self, items: Sequence[Item]) -> tuple[int, ...]:
        """Send or schedule in one envelope; returns the numbers."""
        return await self._ask(envelope.encode(Operation.SCHEDULE, os.urandom(16), items))

    async def cancel(self, number: int) -> None:
        """Cancel one scheduled message."""
        await self._ask(envelope.encode_cancel(os.urandom(16), [number]))

    async def send_all(self, batches: Sequence[Sequence[Item]], at_once: int) -> list[int]:
        """Send many envelopes, so many of them at once; returns all numbers."""
        numbers: list[int] = []
        left = iter(batches)

        async def work() -> None:
            for items in left:
                numbers.extend(await self.send(items))

        await asyncio.gather(*(work() for _ in range(at_once)))
        return numbers

    async def _ask(self, body: bytes) -> tuple[int, ...]:
        key = os.urandom(8).hex()
        future = asyncio.get_running_loop().create_future()
        self._waiting[key] = future
        properties = Properties(
            headers=envelope.HEADERS, delivery_mode=2, reply_to=REPLY_TO, correlation_id=key
        ).encode()
        self._channel.publisher.publish(names.front(self._entity), "", properties, body)
        async with asyncio.timeout(60):
            return await future

    def _on_reply(self, delivery: Delivery) -> None:
        key = Properties.decode(delivery.properties).correlation_id or ""
        answer = decode_reply(delivery.body)
        future = self._waiting.pop(key, None)
        if future is None or future.done():  # Answered twice, behind a kill.
            return
        if isinstance(answer, Done):
            future.set_result(answer.numbers)
        else:
            future.set_exception(Refusal(answer.description))


async def lateness(
    connection: Connection,
    queue: str,
    count: int,
    due_ms: Callable[[Delivery], float],
    *,
    is_peer: bool = False,
) -> list[float]:
    """Consume so many messages; returns by how many milliseconds each came after its time.

    Of a peer that takes longer than two minutes, what came.
    """
    channel = await connection.channel()
    late: list[float] = []
    done = asyncio.get_running_loop().create_future()

    def on_delivery(delivery: Delivery) -> None:
        late.append(time.time() * 1000 - due_ms(delivery))
        channel.consumers.ack(delivery.tag)
        if len(late) == count:
            done.set_result(None)

    await channel.consumers.qos(2_000)
    await channel.consumers.consume(queue, on_delivery)
    with contextlib.suppress(TimeoutError) if is_peer else contextlib.nullcontext():
        async with asyncio.timeout(120):
            await done
    await channel.close()
    return late
